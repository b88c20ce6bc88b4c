"""Finished runs that a study can begin with, because it could have proposed them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.yaml_file import load_mapping
from assay.errors import AssayError, ConfigError
from assay.record.run_directory import RunDirectory, find_runs
from assay.record.run_record import RunRecord
from assay.sweep.search.space import Choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna

    from assay.record.objective import Objective
    from assay.sweep.search.constraint import Constraint
    from assay.sweep.search.space import Dimension, Space

_RUN = "run"


@final
@dataclass(frozen=True)
class EarlierRun:
    """A finished run inside a search space.

    Attributes:
        run_dir: Where it lies.
        values: Of each parameter, by its key.
        scores: One per objective.
        metrics: Last value of each scalar.
    """

    run_dir: Path
    values: dict[str, Any]
    scores: tuple[float, ...]
    metrics: dict[str, float]


def earlier_runs(
    folders: Sequence[str], space: Space, objectives: Sequence[Objective]
) -> tuple[list[EarlierRun], int]:
    """The finished runs that lie within a search space, and how many runs were looked at.

    Args:
        folders: Run directories, sweep directories, or any folder of runs.
        space: Each parameter must have a value in the run's config that belongs to it.
        objectives: The run must have each of these scores.

    Raises:
        ConfigError: A folder is not there or holds no run.
    """
    fitting: list[EarlierRun] = []
    looked_at = 0
    for folder in folders:
        runs = sorted(find_runs(Path(folder)))
        if not runs:
            raise ConfigError(
                f"{folder} holds no run",
                key="hydra.sweeper.warm_start",
                hint="hydra.sweeper.warm_start=[outputs/NAME/sweeps/DATE]",
            )
        looked_at += len(runs)
        fitting += [run for run in (_read(path, space, objectives) for path in runs) if run is not None]
    return fitting, looked_at


def add_earlier(
    study: optuna.Study,
    runs: Sequence[EarlierRun],
    distributions: Mapping[str, optuna.distributions.BaseDistribution],
    constraints: Sequence[Constraint],
) -> None:
    """Add runs to a study as finished trials; those that it has already stay as they are.

    Args:
        study: The study.
        runs: From `earlier_runs`.
        distributions: Of each parameter.
        constraints: Bounds on metrics.
    """
    import optuna

    there = {trial.user_attrs.get(_RUN) for trial in study.get_trials(deepcopy=False)}
    for run in runs:
        if str(run.run_dir) not in there:
            bounds = [constraint.excess(run.metrics) for constraint in constraints]
            study.add_trial(
                optuna.trial.create_trial(
                    params=run.values,
                    distributions=dict(distributions),
                    values=list(run.scores),
                    user_attrs={_RUN: str(run.run_dir)},
                    system_attrs={"constraints": bounds} if bounds else {},
                )
            )


def _read(run_dir: Path, space: Space, objectives: Sequence[Objective]) -> EarlierRun | None:
    try:
        record = RunRecord.load(run_dir)
        config = load_mapping(RunDirectory(run_dir).config)
    except AssayError:
        return None  # one damaged run among many is no reason not to use the others
    scores = [objective.score(record.outcome) for objective in objectives]
    if record.status != "finished" or None in scores:
        return None
    values: dict[str, Any] = {}
    for dimension in space.dimensions:
        name = dimension.key.lstrip("+")
        try:
            was = record.choices.get(name, OmegaConf.select(config, name))
        except OmegaConfBaseException:  # such as `a@b`, or what is still an interpolation
            return None
        value = _within(dimension, was)
        if value is None:
            return None
        values[dimension.key] = value
    return EarlierRun(
        run_dir.resolve(), values, tuple(score for score in scores if score is not None), dict(record.metrics)
    )


def _within(dimension: Dimension, value: Any) -> Any:
    """The value as the space writes it; None where it does not belong to it."""
    if isinstance(dimension, Choice):
        plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        parser = OverridesParser.create()
        texts = (text for text in dimension.values if parser.parse_override(f"x={text}").value() == plain)
        return next(texts, None)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not dimension.low <= value <= dimension.high or (dimension.integer and value != int(value)):
        return None
    steps = (value - dimension.low) / dimension.step if dimension.step else 0.0
    on_grid = math.isclose(steps, round(steps), abs_tol=1e-9)
    return (int(value) if dimension.integer else float(value)) if on_grid else None
