"""Two runs of one config: the first thing that is not the same, and what may have made it so."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from assay.record.run_record import RunRecord

_OF_THE_MACHINE = ("DeviceStatsMonitor",)
"""Columns that say how busy a machine was."""
_NUMERIC_PACKAGES = (
    *("torch", "lightning", "numpy", "torchvision", "torchmetrics", "scikit-learn", "assay", "pandas"),
    *("pillow", "scipy"),
)
_SHOWN = 6


def differences(run_dir: Path, record: RunRecord, again: Path, made: RunRecord) -> list[str]:
    """What is not the same in two runs, the first step that differs before all else.

    Args:
        run_dir: Of the run.
        record: Its record.
        again: Of the same run once more.
        made: Its record.

    Returns:
        One line each; empty when everything is the same.
    """
    found = []
    row = first_row(run_dir / "metrics.csv", again / "metrics.csv")
    if row:
        found.append(row)
    scores = [
        f"{name} {record.metrics.get(name)} then, {made.metrics.get(name)} now"
        for name in sorted(record.metrics.keys() | made.metrics.keys())
        if not name.startswith(_OF_THE_MACHINE)
        and not _same(record.metrics.get(name), made.metrics.get(name))
    ]
    if scores:
        found.append("final scores: " + "; ".join(scores[:_SHOWN]))
    if record.weights_sha256 and record.weights_sha256 != made.weights_sha256:
        then, now = record.weights_sha256[:12], made.weights_sha256[:12]
        found.append(f"weights: SHA-256 {then} then, {now or 'none'} now")
    elif not record.weights_sha256:
        last = (record.files.get("checkpoints/last.ckpt"), made.files.get("checkpoints/last.ckpt"))
        if None not in last and last[0] != last[1] and not found:
            found.append(
                "weights: the record says nothing of them, and the last checkpoints are not the same"
            )
    return found


def first_row(then: Path, now: Path) -> str:
    """The first logged value that is not the same in two tables; empty when all are.

    Args:
        then: metrics.csv of a run.
        now: metrics.csv of the same run once more.
    """
    before, after = _rows(then), _rows(now)
    for one, other in zip(before, after, strict=False):
        for name in {**one, **other}:
            value, again = one.get(name, ""), other.get(name, "")
            if value != again and not name.startswith(_OF_THE_MACHINE):
                where = f"step {one.get('step', '?')}, epoch {one.get('epoch', '?')}"
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


def _same(one: Any, other: Any) -> bool:
    both_nan = isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    return both_nan or one == other


def causes(then: RunRecord, now: RunRecord) -> list[str]:
    """What differs between the circumstances of two runs, the most likely cause of a difference first.

    Args:
        then: Of the run.
        now: Of the same run once more.
    """
    found = [
        f"config: changed at step {entry.get('from_step')} ({', '.join(entry['changed'])})"
        for entry in then.resumed
        if entry.get("changed")
    ]
    if then.git is None:
        found.append("code: it is not known, the run was outside a git repository")
    if then.data_sha256 != now.data_sha256:
        found.append("data: its SHA-256 is another one")
    before, after = then.machine, now.machine
    for key, name in (("gpus", "device"), ("gpu_driver", "device driver")):
        if before.get(key) != after.get(key):
            found.append(f"{name}: {before.get(key) or 'none'} then, {after.get(key) or 'none'} now")
    changed = package_changes(then.packages, now.packages)
    if changed:
        found.append(f"packages: {', '.join(changed)}")
    for key, name in (("cpu", "CPU"), ("threads", "threads"), ("python", "python"), ("platform", "platform")):
        if before.get(key) != after.get(key):
            found.append(f"{name}: {before.get(key)} then, {after.get(key)} now")
    flags = set(before.get("cpu_flags", [])) ^ set(after.get("cpu_flags", []))
    if flags:
        found.append(f"CPU flags: {' '.join(sorted(flags))}")
    switches = _switches(before.get("environment", {}), after.get("environment", {}))
    if switches:
        found.append(f"environment: {', '.join(switches)}")
    return found or [
        "nothing on record differs: an operation that is not deterministic (trainer.deterministic=true "
        "names it), or a record that was changed"
    ]


def package_changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Packages of another version, those that compute first.

    Args:
        then: Version by name.
        now: Version by name.

    >>> package_changes({"torch": "2.14", "a": "1"}, {"torch": "2.15", "a": "1"})
    ['torch 2.14 then, 2.15 now']
    """
    names = [name for name in then if then[name] != now.get(name)]
    names.sort(key=lambda name: (_rank(name), name))
    shown = [f"{name} {then[name]} then, {now.get(name, 'none')} now" for name in names[:_SHOWN]]
    return [*shown, f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else shown


def _rank(name: str) -> int:
    return _NUMERIC_PACKAGES.index(name) if name in _NUMERIC_PACKAGES else len(_NUMERIC_PACKAGES)


def _switches(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    # The number of threads is compared as such.
    names = sorted((then.keys() | now.keys()) - {"OMP_NUM_THREADS"})
    return [
        f"{name}={then.get(name, '')} then, {now.get(name, '')} now"
        for name in names
        if then.get(name) != now.get(name)
    ]
