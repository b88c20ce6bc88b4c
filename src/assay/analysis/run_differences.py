"""Of two runs of one config, what first differs, and perhaps why."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from assay.analysis.read_runs import METRICS_FILE, Curve, read_curves
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
    names = sorted(record.metrics.keys() | made.metrics.keys())
    pairs = {name: (record.metrics.get(name), made.metrics.get(name)) for name in names}
    scores = [
        f"{name} {then} then, {now} now"
        for name, (then, now) in pairs.items()
        if not name.startswith(_OF_THE_MACHINE) and not _same(then, now)
    ]
    weights = record.weights_sha256[:12], made.weights_sha256[:12]
    lines = [
        first_value(run_dir, again),
        f"final scores: {'; '.join(scores[:_SHOWN])}" if scores else "",
        _other_predictions(run_dir, again),
        f"weights: SHA-256 {weights[0]} then, {weights[1] or 'none'} now"
        if weights[0] and record.weights_sha256 != made.weights_sha256
        else "",
    ]
    return [line for line in lines if line]


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


def first_value(then: Path, now: Path) -> str:
    """The first logged value that is not the same in two runs; empty when all are."""
    before, after = (read_curves(run) if (run / METRICS_FILE).is_file() else {} for run in (then, now))
    different = []
    for name in dict.fromkeys((*before, *after)):
        curves = before.get(name, Curve()), after.get(name, Curve())
        old, new = (dict(zip(one.steps, one.values, strict=True)) for one in curves)
        steps = [step for step in old.keys() | new.keys() if not _same(old.get(step), new.get(step))]
        if steps and not name.startswith(_OF_THE_MACHINE):
            step = min(steps)
            values = f"{old.get(step, 'not logged')} then, {new.get(step, 'not logged')} now"
            different.append((step, f"step {step}: {name} {values}"))
    return min(different, key=lambda one: one[0])[1] if different else ""


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
