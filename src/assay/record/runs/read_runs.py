"""Thousands of run directories, read in seconds and without torch."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.errors import AssayError
from assay.record.journal import Journal
from assay.record.run_directory import find_runs
from assay.record.run_lock import is_written
from assay.record.run_record import FILE, RunRecord
from assay.record.runs.config_values import ConfigValues, fold_of, value_of
from assay.record.runs.curves import read_curves
from assay.record.runs.run import Run, is_config, typed_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """Every run in some folders, each once, those that cannot be read as `broken`.

    Args:
        paths: Run directories, sweep directories, or any folders above them.

    Raises:
        AssayError: A folder is not there or cannot be read, or none of them holds a run.
    """
    return RunReader().read(paths)


@final
class RunReader:
    """Reads runs; a second time only those that are no longer as they were."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, int, int], Run]] = {}
        self._shared: dict[Any, Any] = {}

    def read(self, paths: Iterable[str | Path], *, lost: bool = False) -> list[Run]:
        """As `read_runs`.

        Args:
            paths: As for `read_runs`.
            lost: With the jobs of sweeps that failed before they had a directory.

        Raises:
            AssayError: As for `read_runs`.
        """
        folders = [Path(path) for path in paths]
        found: dict[str, Path] = {}
        sweeps: list[Path] | None = [] if lost else None
        identity = os.path.realpath if len(folders) > 1 else str  # below one folder every run is found once
        for folder in folders:
            own = {identity(path): path for path in find_runs(folder, broken=True, sweeps=sweeps)}
            if not own and not sweeps:
                raise _no_run(folder)
            found |= {real: path for real, path in own.items() if real not in found}
        runs = [self._run(path) for path in found.values()]
        for sweep in dict.fromkeys(sweeps or ()):
            runs += lost_jobs(sweep, [run for run in runs if run.path.is_relative_to(sweep)])
        if not runs:
            raise _no_run(*folders)
        return runs

    def _run(self, path: Path) -> Run:
        try:
            status = os.stat(f"{path}{os.sep}{FILE}")  # noqa: PTH116 - pathlib is slow here
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            return Run(path, "broken", reason=f"{path} has a config, and no {FILE}")
        before = self._known.get(str(path))
        if before is not None and before[0] == state and before[1].status != "running":
            return before[1]
        try:
            run = self._of(path, RunRecord.load(path))
        except AssayError as error:
            run = Run(path, "broken", reason=error.message)
        self._known[str(path)] = (state, run)
        return run

    def _of(self, path: Path, record: RunRecord) -> Run:
        status, cause, reason = record.status, record.cause, record.reason
        metrics: Mapping[str, float] = record.metrics
        if status == "running":
            if not is_written(path):
                outcome = record.outcome
                status, cause, reason = outcome.status, outcome.cause, outcome.reason
            metrics = metrics or _last_values(path)
        git = record.git or {}
        resumed = (word for entry in record.resumed for word in entry.get("overrides", ()))
        again = (word for word in resumed if isinstance(word, str))
        run = Run(
            path,
            status,
            cause,
            reason,
            record.name,
            record.started,
            record.seconds,
            record.seed,
            record.fingerprint,
            record.config_fingerprint,
            self._interned(typed_values([*record.overrides, *again])),
            self._one(record.choices),
            {sys.intern(name): value for name, value in metrics.items()},
            _best(record.best),
            self._one(record.directions),
            record.data_sha256,
            sys.intern(f"{git.get('commit') or ''}{record.patch_sha256}"),
            tuple(record.warnings),
            self._one(record.interpolations),
        )
        # Typed, or set by an option such as `experiment=mine`.
        is_set = "fold" in run.typed or "fold" in record.set_by
        fold = value_of(run, "fold", ConfigValues()) if is_set else None
        return replace(run, fold=int(fold)) if fold and fold.isdecimal() else run

    def _interned(self, values: Mapping[str, str]) -> Mapping[str, str]:
        return {sys.intern(key): sys.intern(value) for key, value in values.items()}

    def _one(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same mapping for all runs that say the same."""
        key = repr(values)
        return self._shared.setdefault(key, values)  # type: ignore[no-any-return]  # what was put in


def _no_run(*folders: Path) -> AssayError:
    names = ", ".join(map(str, folders))
    return AssayError(f"{names} holds no run", hint="name the folder of the runs, such as outputs/")


def _best(best: Mapping[str, Any]) -> Mapping[str, Any]:
    monitor, value, epoch = (best.get(name) for name in ("monitor", "value", "epoch"))
    if not isinstance(monitor, str) or type(value) not in (int, float):
        return {}
    kept = {"monitor": sys.intern(monitor), "value": value}
    return {**kept, "epoch": epoch} if type(epoch) is int else kept


def _last_values(path: Path) -> dict[str, float]:
    """The last value of each metric, of a run whose record does not say them yet."""
    try:
        curves = read_curves(path)
    except AssayError:
        return {}
    return {name: curve.values[-1] for name, curve in curves.items()}


def lost_jobs(sweep: Path, runs: Sequence[Run]) -> list[Run]:
    """Failed jobs that have no directory, as if each had one; also one whose directory was removed.

    Args:
        sweep: Its directory. Where its journal is damaged, there are none.
        runs: Those that were found in it.
    """
    try:
        jobs = Journal.open(sweep, repair=False).jobs
    except AssayError:
        return []
    known = {run.fingerprint for run in runs}
    choices = dict(runs[0].choices) if runs else {}
    twins: dict[frozenset[tuple[str, str]], Run] = {}
    for run in runs:
        twins.setdefault(_config(run.typed), run)
    found = []
    for number, job in sorted(jobs.items()):
        path = sweep / str(number)
        if job.status != "failed" or job.outcome is None or job.fingerprint in known or path.exists():
            continue
        typed = typed_values(job.overrides)
        config = _config(typed)
        twin = twins.get(config)
        found.append(
            Run(
                path,
                "failed",
                job.outcome.cause,
                job.outcome.reason,
                name=typed.get("name", runs[0].name if runs else ""),
                started=job.history[0].started if job.history else "",
                seconds=job.outcome.seconds,
                seed=job.seed,
                fingerprint=job.fingerprint,
                config_fingerprint=twin.config_fingerprint if twin else repr(sorted(config)),
                typed=typed,
                choices={key: typed.get(key, option) for key, option in choices.items()},
                fold=fold_of(job.overrides),
            )
        )
    return found


def _config(typed: Any) -> frozenset[tuple[str, str]]:
    return frozenset((key, text) for key, text in typed.items() if is_config(key))
