"""`out_of_fold.parquet` of a sweep: what was predicted of each sample by the run that tested its fold."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, first_line
from assay.files.atomic import write_bytes
from assay.record.run_record import reason_of
from assay.task.task_of import TASKS, find_task
from assay_analysis import predictions_file
from assay_analysis.statistics import mean_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from assay.task.evaluator import Score
    from assay.task.predictions import StoredPredictions
    from assay_analysis.comparison import Row

FILE = "out_of_fold.parquet"


@final
@dataclass(frozen=True)
class OutOfFold:
    """All folds of one configuration and seed."""

    values: Mapping[str, str]
    seed: int
    runs: Mapping[int, str]
    predictions: StoredPredictions
    rows: Mapping[int, int]
    found: tuple[str, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is missing or doubtful, and what a custom task fails to compute, a sentence each."""
        problems = list(self.found)
        if self.predictions.task not in TASKS:
            for ask in (self.scores, self._prediction_columns):
                try:
                    ask()
                except Exception as error:  # of a custom task
                    problems.append(reason_of(error))
        return tuple(problems)

    def scores(self) -> list[Score]:
        """Over all samples at once, with intervals over samples; see `assay.task.task.Task.scores`."""
        task = find_task(self.predictions.task)
        if self.predictions.targets is None or task is None:
            return []
        return task.scores(self.predictions)

    def to_frame(self) -> pd.DataFrame:
        """A row per sample: key, target, what was predicted, and by which run."""
        import pandas as pd

        stored = self.predictions
        columns: dict[str, Any] = {"key": list(stored.keys), **_target_columns(stored)}
        try:
            columns |= self._prediction_columns()
        except Exception:  # which is one of the problems
            columns |= self._output_columns()
        numbers = list(self.rows.values())
        columns["fold"] = np.repeat(list(self.rows), numbers)
        columns["run"] = np.repeat(np.array(list(self.runs.values()), dtype=object), numbers)
        columns["seed"] = self.seed
        return pd.DataFrame(columns)

    def _prediction_columns(self) -> Mapping[str, Any]:
        stored = self.predictions
        task = find_task(stored.task)  # None: a custom task, which is not trusted here
        if task is None or stored.kind == task.kept_kind:
            return self._output_columns()
        return task.typed(stored.outputs, stored.kind, stored.class_names).columns(1)

    def _output_columns(self) -> Mapping[str, Any]:
        return {
            f"output_{index}": values for index, values in enumerate(self.predictions.outputs.T)
        }


def gather_folds(rows: Iterable[Row]) -> list[OutOfFold]:
    """Gather the predictions of all folds, per configuration and seed, in the order of the runs."""
    gathered = []
    for row in rows:
        seeds: dict[int, dict[int, Path]] = {}
        for run in row.runs:
            if run.status == "finished" and run.fold is not None:
                seeds.setdefault(run.seed, {})[run.fold] = run.path
        values = {key: value for key, value in row.values.items() if value is not None}
        gathered += [_merge_folds(values, seed, folds) for seed, folds in seeds.items()]
    return [seed_folds for seed_folds in gathered if seed_folds is not None]


def group_by_configuration(folds: Sequence[OutOfFold]) -> list[list[OutOfFold]]:
    """Group by configuration: its seeds together."""
    return [list(seeds) for _, seeds in itertools.groupby(folds, lambda fold: fold.values)]


def write(path: Path, folds: Sequence[OutOfFold]) -> None:
    """Write all of them as one table, whole or not at all; take away an earlier one where there are none."""
    if not folds:
        path.unlink(missing_ok=True)
        return
    import pandas as pd

    frames = [fold.to_frame().assign(**fold.values) for fold in folds]
    table = pd.concat(frames, ignore_index=True)
    # A column may hold classes of one configuration and numbers of another.
    mixed = [name for name in table if pd.api.types.infer_dtype(table[name]).startswith("mixed")]
    table = table.astype(dict.fromkeys(mixed, "string"))
    write_bytes(path, table.to_parquet(index=False, compression="zstd"))


def mean_scores(folds: Sequence[OutOfFold]) -> dict[str, float]:
    """Scores of one configuration over all samples, each the mean of its seeds, as far as a task has them."""
    values: dict[str, list[float]] = {}
    for fold in folds:
        with suppress(Exception):  # which is one of the problems
            for score in fold.scores():
                values.setdefault(score.name, []).append(score.value)
    means = {name: mean_of(scores) for name, scores in values.items()}
    return {name: mean.mean for name, mean in means.items() if mean is not None}


def _merge_folds(
    values: Mapping[str, str], seed: int, runs: Mapping[int, Path]
) -> OutOfFold | None:
    parts: dict[int, StoredPredictions] = {}
    problems: list[str] = []
    folds = 0
    for fold, run_dir in sorted(runs.items()):
        try:
            split = (load_mapping(run_dir / "config.yaml").get("data") or {}).get("split") or {}
            folds = max(folds, int(split.get("folds") or 0))
            parts[fold] = predictions_file.read(run_dir / predictions_file.FILE)
        except (AssayError, OSError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"run {run_dir.name}, fold {fold}: {first_line(error)}")
    if missing := [str(fold) for fold in range(folds) if fold not in parts]:
        problems.append(f"fold {', '.join(missing)} of {folds} is missing")
    if not parts:
        return None
    first = next(iter(parts.values()))
    alike = {
        fold: part
        for fold, part in parts.items()
        if _output_format(part) == _output_format(first)
    }
    if len(alike) < len(parts):
        problems.append(
            "not all runs predict the same: those that differ from the first are left out"
        )
    if thinned := [part for part in alike.values() if part.num_evaluated]:
        saved = sum(len(part.keys) for part in thinned)
        total = sum(part.num_evaluated for part in thinned)
        problems.append(
            f"only {saved:,} of {total:,} predictions were kept, drawn at random: predictions.max_megabytes"
        )
    keys = tuple(key for part in alike.values() for key in part.keys)
    if len(set(keys)) < len(keys):
        problems.append(
            "some samples are in several folds: the data or its split has changed in between"
        )
    targets = [part.targets for part in alike.values() if part.targets is not None]
    merged = replace(
        first,
        keys=keys,
        outputs=np.concatenate([part.outputs for part in alike.values()]),
        targets=np.concatenate(targets) if len(targets) == len(alike) else None,
        num_evaluated=0,
    )
    names = {fold: runs[fold].name for fold in alike}
    rows = {fold: len(part.keys) for fold, part in alike.items()}
    return OutOfFold(values, seed, names, merged, rows, tuple(problems))


def _output_format(fold: StoredPredictions) -> tuple[object, ...]:
    return (fold.task, fold.kind, fold.class_names, fold.outputs.shape[1:], fold.targets is None)


def _target_columns(fold: StoredPredictions) -> dict[str, Any]:
    if fold.targets is None:
        return {}
    names: Any = fold.class_names
    if fold.targets.ndim == 1:
        if names and fold.targets.dtype.kind == "i":
            return {"target": np.asarray(names, dtype=object)[fold.targets]}
        return {"target": fold.targets}
    width = fold.targets.shape[1]
    if width == 1:
        return {"target": fold.targets[:, 0]}
    if len(names) != width:
        names = range(width)
    return {f"target_{name}": column for name, column in zip(names, fold.targets.T, strict=True)}
