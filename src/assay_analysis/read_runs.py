"""Thousands of run directories and their curves, read in seconds without torch; and as data frames."""

from __future__ import annotations

import csv
import os
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.errors import AssayError
from assay.files.atomic import is_temporary
from assay.files.checksum import is_yaml_intact
from assay.files.symlinks import read_whole
from assay.record.run_directory import JOURNAL, log
from assay.record.run_lock import is_written
from assay.record.run_record import FILE, Outcome, RunRecord
from assay_analysis.journal import Journal
from assay_analysis.run import (
    ConfigValues,
    Run,
    is_config,
    list_metrics,
    plain_value,
    typed_values,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd


METRICS_FILE = "metrics.csv"


@final
@dataclass(frozen=True)
class Curve:
    """One metric over the course of a run."""

    steps: list[int] = field(default_factory=list)
    epochs: list[int | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def read_curves(run_dir: Path) -> dict[str, Curve]:
    """Every metric that a run has logged; a last line that is still being written is left out."""
    path = run_dir / METRICS_FILE
    try:
        content = read_whole(path, 1 << 30)
    except FileNotFoundError as error:
        message = f"{run_dir} has no {METRICS_FILE}"
        raise AssayError(message, hint="logger=[csv], the default, writes it") from error
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {error.strerror}") from error
    # A last line without its end is still being written, or was cut off by a kill.
    lines = content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    reader = csv.reader(lines, strict=True)
    curves: dict[str, Curve] = {}
    try:
        header = next(reader, [])
        if header[:2] != ["epoch", "step"]:
            raise ValueError("its columns are not epoch, step and the names of metrics")
        for row in reader:
            epoch, step = (int(cell) if cell else None for cell in row[:2])
            for name, cell in zip(header[2:], row[2:], strict=True):
                if cell:
                    curve = curves.setdefault(name, Curve())
                    curve.values.append(float(cell))
                    curve.steps.append(step or 0)
                    curve.epochs.append(epoch)
    except (ValueError, csv.Error) as error:
        raise AssayError(f"{path}:{max(1, reader.line_num)} is damaged: {error}") from error
    return curves


def read_runs(paths: Iterable[str | Path], *, lost: bool = False) -> list[Run]:
    """Every run in some folders, each once, those that cannot be read as `broken`.

    Args:
        paths: Folders.
        lost: Also jobs of sweeps that failed before they had a directory.
    """
    folders = [Path(path) for path in paths]
    run_dirs: dict[str, Path] = {}
    sweeps: list[Path] | None = None
    if lost:
        sweeps = []
    # below one folder every run is found once
    identity = os.path.realpath if len(folders) > 1 else str
    for folder in folders:
        in_folder = {
            identity(path): path for path in find_runs(folder, broken=True, sweeps=sweeps)
        }
        if not in_folder and not sweeps:
            raise _no_run_error(folder)
        run_dirs |= {real: path for real, path in in_folder.items() if real not in run_dirs}
    runs = [_read_run(path) for path in run_dirs.values()]
    for sweep in dict.fromkeys(sweeps or ()):
        runs += read_lost_jobs(sweep, [run for run in runs if run.path.is_relative_to(sweep)])
    if not runs:
        raise _no_run_error(*folders)
    return runs


def _read_run(path: Path) -> Run:
    if not (path / FILE).exists():
        return Run(path, "broken", reason=f"{path} has a config but no {FILE}")
    try:
        record = RunRecord.load(path)
    except AssayError as error:
        return Run(path, "broken", reason=error.message)
    is_running = record.status == "running"
    end: RunRecord | Outcome = record.outcome
    if is_running and is_written(path):
        end = record
    metrics = record.metrics or (_last_values(path) if is_running else {})
    resumed = (override for entry in record.resumed for override in entry.get("overrides", ()))
    return Run(
        path,
        end.status,
        end.cause,
        end.reason,
        typed=typed_values([*record.overrides, *resumed]),
        metrics=metrics,
        code=f"{(record.git or {}).get('commit') or ''}{record.patch_sha256}",
        warnings=tuple(record.warnings),
        **{name: getattr(record, name) for name in _OF_THE_RECORD},
    )


_OF_THE_RECORD = (
    "name",
    "started",
    "seconds",
    "seed",
    "fold",
    "fingerprint",
    "config_fingerprint",
    "choices",
    "best",
    "directions",
    "shares",
    "data_sha256",
    "interpolations",
)


def _no_run_error(*folders: Path) -> AssayError:
    names = ", ".join(map(str, folders))
    return AssayError(
        f"{names} holds no run", hint="name the folder of the runs, such as outputs/"
    )


def _last_values(path: Path) -> dict[str, float]:
    """The last value of each metric, for a run whose record lacks them so far."""
    try:
        curves = read_curves(path)
    except AssayError:
        return {}
    return {name: curve.values[-1] for name, curve in curves.items()}


def read_lost_jobs(sweep: Path, runs: Sequence[Run]) -> list[Run]:
    """Failed jobs without a directory, whether it was never made or removed."""
    try:
        jobs = Journal.open(sweep, repair=False).jobs
    except AssayError:
        return []

    def identify(typed: Mapping[str, str]) -> str:
        return repr(sorted((key, text) for key, text in typed.items() if is_config(key)))

    existing = {found for run in runs for found in (run.fingerprint, run.path)}
    twins = {identify(run.typed): run for run in runs}
    found = []
    for number, job in sorted(jobs.items()):
        path = sweep / str(number)
        if job.status != "failed" or existing & {job.fingerprint, path}:
            continue
        outcome = job.outcome or Outcome("interrupted")
        typed = typed_values(job.overrides)
        identity = identify(typed)
        unlike = Run(path, "failed", config_fingerprint=identity)
        if runs:
            unlike = replace(runs[0], config_fingerprint=identity)
        like = twins.get(identity, unlike)
        found.append(
            Run(
                path,
                job.status,
                outcome.cause,
                outcome.reason,
                name=typed.get("name", like.name),
                typed=typed,
                choices={key: typed.get(key, option) for key, option in like.choices.items()},
                config_fingerprint=like.config_fingerprint,
                warnings=tuple(outcome.warnings),
                **{
                    name: getattr(job, name)
                    for name in ("started", "seed", "fold", "fingerprint")
                },
                **{name: getattr(outcome, name) for name in ("seconds", "metrics", "best")},
            )
        )
    return found


_FIRST_COLUMNS = ("run", "name", "status", "cause", "reason", "seed", "started", "seconds")


def runs(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Every run below a folder, one row each.

    Args:
        path: A run, a sweep, a folder of either, or several of these.

    Returns:
        Columns, in this order:

        - `run` (str): the run directory; `name`, `status`, `cause`, `reason` (str); `seed` (Int64); `started`
          (datetime64, UTC); `seconds` (float64). `status` is `finished`, `running`, `failed`, `interrupted`,
          `pruned`, or `broken` where the record cannot be read, and then `reason` says why.
        - the option of each config group, such as `model`; None where the group is left out.
        - each key that was typed for any of the runs, such as `optimizer.lr`: numbers where all values are
          numbers. A run for which it was not typed has the value of its config.
        - `best_epoch` (Int64) and each metric, such as `val/accuracy` (float64): of validation at the best
          checkpoint, others at the end. NaN where a run has none.

    Raises:
        AssayError: A folder is not there, or holds no run.
    """
    import pandas as pd

    table = read_runs(_as_list(path))
    configs = ConfigValues()
    frame = pd.DataFrame({name: [_field(run, name) for run in table] for name in _FIRST_COLUMNS})
    frame["seed"] = frame["seed"].astype("Int64")
    frame["started"] = pd.to_datetime(frame["started"], utc=True, errors="coerce")
    groups = dict.fromkeys(key for run in table for key in run.choices if is_config(key))
    typed = dict.fromkeys(
        key for run in table for key in run.typed if is_config(key) and key not in groups
    )
    columns: dict[str, Any] = {
        key: [plain_value(run.choices.get(key)) for run in table] for key in groups
    }
    columns |= {key: [plain_value(value_of(run, key, configs)) for run in table] for key in typed}
    columns["best_epoch"] = pd.array([run.best.get("epoch") for run in table], dtype="Int64")
    for metric in list_metrics(table):
        # A custom module may log a `loss`, which is a group as well.
        name = metric
        if metric in (*columns, *_FIRST_COLUMNS):
            name = f"{metric} (metric)"
        columns[name] = pd.array([run.score(metric) for run in table], dtype="float64")
    return pd.concat([frame, pd.DataFrame(columns, index=frame.index)], axis=1)


def curves(path: str | Path | Iterable[str | Path]) -> pd.DataFrame:
    """Every value that the runs below a folder have logged, one row each.

    Args:
        path: As for `runs`.

    Returns:
        Columns `run` (category: the run directory), `epoch` (Int64, from 1; NA where a value was logged
        without one), `step` (int64, optimizer steps before it), `metric` (category) and `value` (float64).

    Raises:
        AssayError: A folder is not there, or holds no run.

    Warns:
        UserWarning: The metrics.csv of a run is missing or damaged; its rows are left out.
    """
    import pandas as pd

    frames = []
    for run in read_runs(_as_list(path)):
        try:
            curves = read_curves(run.path)
        except AssayError as error:
            warnings.warn(f"left out: {error.message}", stacklevel=2)
            continue
        frames += [
            pd.DataFrame(
                {
                    "run": str(run.path),
                    "epoch": pd.array(curve.epochs, dtype="Int64"),
                    "step": curve.steps,
                    "metric": metric,
                    "value": curve.values,
                }
            )
            for metric, curve in curves.items()
        ]
    kinds = {
        "run": "category",
        "epoch": "Int64",
        "step": "int64",
        "metric": "category",
        "value": "float64",
    }
    frame = pd.DataFrame(columns=list(kinds))
    if frames:
        frame = pd.concat(frames, ignore_index=True)
    return frame.astype(kinds)


def _field(run: Run, name: str) -> Any:
    if name == "run":
        return str(run.path)
    if run.status == "broken" and name in ("seed", "started", "seconds"):
        return None
    return getattr(run, name)


def _as_list(path: str | Path | Iterable[str | Path]) -> list[str | Path]:
    if isinstance(path, str | Path):
        return [path]
    return list(path)


def find_runs(
    root: Path, *, broken: bool = False, sweeps: list[Path] | None = None
) -> Iterator[Path]:
    """Every run directory below a folder, by name; a directory with a record is not searched further."""
    if not root.is_dir():
        message = f"there is no folder {root}"
        if root.exists():
            message = f"{root} is a file"
        raise AssayError(message, hint="name the folder that holds the runs, such as outputs/")
    pending = [str(root)]
    while pending:
        folder = pending.pop()
        # Asking for the one name is several times as fast as listing a run's files.
        if os.path.isfile(f"{folder}{os.sep}{FILE}") or (broken and _lacks_record(folder)):  # noqa: PTH113 - pathlib is slow here
            yield Path(folder)
        else:
            if sweeps is not None and os.path.isfile(f"{folder}{os.sep}{JOURNAL}"):  # noqa: PTH113 - as above
                sweeps.append(Path(folder))
            pending += sorted(_folders(folder), reverse=True)


def log_candidates(run_log: Path | None, printed: Path | None, *, died: bool) -> list[Path]:
    """Where the last words of a job may stand, the likelier place first."""
    return [
        path for path in ((printed, run_log) if died else (run_log, printed)) if path is not None
    ]


def _lacks_record(folder: str) -> bool:
    """Whether a run has begun here, of whose record nothing is left."""
    config = Path(folder, "config.yaml")
    try:
        return os.path.isfile(config) and is_yaml_intact(read_whole(config, 8 << 20)) is True  # noqa: PTH113 - as above
    except OSError:
        return False


def _folders(folder: str) -> list[str]:
    """Folders in a folder, without half-removed runs. Links are not followed: there are no circles."""
    try:
        with os.scandir(folder) as entries:
            return [
                entry.path
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and not is_temporary(entry.name)
            ]
    except OSError as error:  # gone in the meantime, or somebody else's
        log.warning("%s cannot be searched for runs: %s", folder, error.strerror)
        return []
