"""Of two runs of one config, what first differs, and perhaps why."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError
from assay.record import predictions_file
from assay.record.provenance import differences_within, machine_changes, segments

if TYPE_CHECKING:
    from pathlib import Path

    from assay.record.run_record import RunRecord


_OF_THE_MACHINE = ("DeviceStatsMonitor",)
"""Columns that say how busy a machine was."""
_SHOWN = 6


def differences(run_dir: Path, record: RunRecord, again: Path, made: RunRecord) -> list[str]:
    """What is not the same in two runs, the first step that differs before all else."""
    lines = []
    row = first_row(run_dir / "metrics.csv", again / "metrics.csv")
    if row:
        lines.append(row)
    scores = [
        f"{name} {record.metrics.get(name)} then, {made.metrics.get(name)} now"
        for name in sorted(record.metrics.keys() | made.metrics.keys())
        if not name.startswith(_OF_THE_MACHINE)
        and not _same(record.metrics.get(name), made.metrics.get(name))
    ]
    if scores:
        lines.append("final scores: " + "; ".join(scores[:_SHOWN]))
    if other := _other_predictions(run_dir, again):
        lines.append(other)
    if record.weights_sha256 and record.weights_sha256 != made.weights_sha256:
        then, now = record.weights_sha256[:12], made.weights_sha256[:12]
        lines.append(f"weights: SHA-256 {then} then, {now or 'none'} now")
    elif not record.weights_sha256:
        last = (record.files.get("checkpoints/last.ckpt"), made.files.get("checkpoints/last.ckpt"))
        if None not in last and last[0] != last[1] and not lines:
            lines.append(
                "weights: the record says nothing of them, and the last checkpoints are not the same"
            )
    return lines


def _other_predictions(run_dir: Path, again: Path) -> str:
    """How many samples a model says something else of; empty where none, or where a run has kept nothing."""
    import numpy as np

    try:
        before, after = (predictions_file.read(one / predictions_file.FILE) for one in (run_dir, again))
    except AssayError:
        return ""
    if before.keys != after.keys or before.outputs.shape != after.outputs.shape:
        return "predictions: they are of other samples"
    same = np.isclose(before.outputs, after.outputs, rtol=0, atol=0, equal_nan=True)
    changed = int(np.count_nonzero(~np.all(same, axis=1)))
    return f"predictions: of {changed:,} of {len(before.keys):,} samples other ones" if changed else ""


def first_row(then: Path, now: Path) -> str:
    """The first logged value that is not the same in two tables; empty when all are."""
    before, after = _rows(then), _rows(now)
    for row, new in zip(before, after, strict=False):
        for name in {**row, **new}:
            value, again = row.get(name, ""), new.get(name, "")
            if value != again and not name.startswith(_OF_THE_MACHINE):
                where = f"step {row.get('step', '?')}, epoch {row.get('epoch', '?')}"
                return f"{where}: {name} {value or 'not logged'} then, {again or 'not logged'} now"
    if len(before) != len(after):
        more = (before if len(before) > len(after) else after)[min(len(before), len(after))]
        return f"step {more.get('step', '?')}: {len(before)} rows then, {len(after)} now"
    return ""


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = [
            {name: value for name, value in row.items() if name and value} for row in csv.DictReader(file)
        ]
    # Rows that a machine's load alone has made may be more or fewer.
    return [
        row for row in rows if any(not name.startswith((*_OF_THE_MACHINE, "epoch", "step")) for name in row)
    ]


def _same(first: Any, second: Any) -> bool:
    both_nan = all(isinstance(value, float) and math.isnan(value) for value in (first, second))
    return both_nan or first == second


def causes(then: RunRecord, now: RunRecord) -> list[str]:
    """What differs between the circumstances of two runs, the most likely cause of a difference first."""
    likely = [
        f"config: changed at step {entry.get('from_step')} ({', '.join(entry['changed'])})"
        for entry in then.resumed
        if entry.get("changed")
    ]
    likely += differences_within(then)
    if then.git is None:
        likely.append("code: it is not known, the run was outside a git repository")
    if then.data_sha256 != now.data_sha256:
        likely.append("data: its SHA-256 is another one")
    likely += machine_changes(segments(then)[0], segments(now)[0])
    return likely or [
        "nothing on record differs: an operation that is not deterministic (trainer.deterministic=true "
        "names it), or a record that was changed"
    ]
