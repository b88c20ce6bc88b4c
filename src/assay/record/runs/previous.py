"""The run before this one: what has changed since, and by how much the scores have moved."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from assay.errors import AssayError
from assay.record.run_directory import find_runs
from assay.record.run_record import FILE
from assay.record.runs.config_values import ConfigValues, config_columns, unlike_data, unlike_losses
from assay.record.runs.read_runs import read_runs
from assay.record.runs.run import same_value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.record.runs.run import Run

_LOOKED_AT: Final = 50
"""Runs that are read in search of one of the same name."""


@final
@dataclass(frozen=True)
class Step:
    """From one run to the next of the same name.

    Attributes:
        before: The earlier one.
        changes: By key what it was and what it is now; `code` and `data` say that these have changed.
        moves: Name of a score, what it was and is, and `better`, `worse`, `the same`, or nothing where that
            is not known.
    """

    before: Run
    changes: dict[str, tuple[str, str]]
    moves: list[tuple[str, float, float, str]]


def since_previous(run_dir: Path) -> Step | None:
    """What has changed since the last run of the same name and data that has finished before this one.

    Returns:
        None where there is none, or where it cannot be read.
    """
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
