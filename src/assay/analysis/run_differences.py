"""What has changed since the previous run; of two runs of one config, what first differs, and perhaps why."""

from __future__ import annotations

import csv
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from assay.analysis.config_values import ConfigValues, config_columns, unlike_data, unlike_losses
from assay.analysis.read_runs import read_runs
from assay.analysis.run import same_value
from assay.errors import AssayError
from assay.record import predictions_file
from assay.record.provenance import differences_within, machine_changes, segments
from assay.record.run_directory import find_runs
from assay.record.run_record import FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.analysis.run import Run
    from assay.record.run_record import RunRecord

_LOOKED_AT: Final = 50
"""Runs that are read in search of one of the same name."""


@final
@dataclass(frozen=True)
class Step:
    """From one run to the next of the same name."""

    before: Run
    changes: dict[str, tuple[str, str]]
    moves: list[tuple[str, float, float, str]]


def since_previous(run_dir: Path) -> Step | None:
    """What has changed since the last run of the same name and data that has finished before this one."""
    try:
        (now,) = read_runs([run_dir])
        before = next(_earlier(now), None)
        return None if before is None else Step(before, _changes(before, now), _moves(before, now))
    except (AssayError, OSError, ValueError):
        return None


def _earlier(now: Run) -> Iterator[Run]:
    """Earlier runs of the same name and data, the last first; jobs of sweeps do not count."""
    above = now.path.resolve().parents
    folder = above[1] if above[1].name == now.name else above[0]
    ended = [(_ended(path), path) for path in find_runs(folder)]
    for _, path in sorted(ended, reverse=True)[:_LOOKED_AT]:
        if path.resolve() == now.path.resolve() or (path.parent / "journal.jsonl").is_file():
            continue
        (run,) = read_runs([path])
        if run.status != "finished" or run.name != now.name or run.started > now.started:
            continue
        if not unlike_data([run, now], ConfigValues()):  # a name may stand for any table
            yield run


def _ended(path: Path) -> float:
    try:
        return os.stat(path / FILE).st_mtime  # noqa: PTH116 - a plain call, for each of many runs
    except OSError:
        return -math.inf


def _changes(before: Run, now: Run) -> dict[str, tuple[str, str]]:
    keys, (was, is_), _ = config_columns([before, now], (), ConfigValues())
    differ = [key for key in keys if not same_value(was[key], is_[key])]
    found = {key: (was[key] or "–", is_[key] or "–") for key in differ}
    if before.seed != now.seed:
        found["seed"] = (str(before.seed), str(now.seed))
    if before.code != now.code:
        found["code"] = (before.code[:8] or "–", now.code[:8] or "–")
    digests = before.data_sha256[:8], now.data_sha256[:8]
    if digests[0] != digests[1] and all(digests) and not any(key.startswith("data") for key in found):
        found["data"] = digests
    return found


def _moves(before: Run, now: Run) -> list[tuple[str, float, float, str]]:
    """The score that checkpoints are kept by, and the first of the test; other losses say nothing."""
    monitor = now.best.get("monitor", "")
    tests = [name for name in now.metrics if name.startswith("test/")]
    ordered = [monitor, *sorted(tests, key=lambda name: name.endswith("/loss"))]
    configs = ConfigValues()
    other_loss = unlike_losses((run.choices.get("loss"), configs.loss(run)) for run in (before, now))
    # Of other samples, a score may be higher or lower, but is not better or worse.
    directions = now.directions if before.data_sha256 == now.data_sha256 else {}
    found = []
    for name in dict.fromkeys(ordered):
        was, is_ = before.score(name), now.score(name)
        if was is None or is_ is None or (other_loss and name.endswith("loss")):
            continue
        found.append((name, was, is_, _judged(was, is_, directions.get(name, ""))))
    return found[:2]


def _judged(was: float, is_: float, direction: str) -> str:
    if was == is_:
        return "the same"
    if not direction or not math.isfinite(was) or not math.isfinite(is_):
        return ""
    return "better" if (is_ < was) == (direction == "min") else "worse"


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
