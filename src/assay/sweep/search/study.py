"""Where a study lies, and opening it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.callbacks.optuna_study import (
    JOURNAL_ENDINGS,
    build_part,
    close_storage,
    no_news,
    open_storage,
    sqlite_url,
)
from assay.error_location import one_line_of
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import optuna

    from assay.record.objective import Objective

FILE = "study.db"


def storage_of(storage: str | None, sweep_dir: Path) -> str:
    """The storage as another process can open it, wherever it runs.

    Args:
        storage: `hydra.sweeper.storage`.
        sweep_dir: Of the sweep.

    Raises:
        ConfigError: It is neither a URL nor the path of a journal.
    """
    if storage is None:
        return sqlite_url(sweep_dir / FILE)
    if "://" in storage:
        return storage
    path = Path(storage).absolute()
    if path.suffix not in JOURNAL_ENDINGS:
        raise ConfigError(
            f"{storage!r} is not a storage of studies",
            key="hydra.sweeper.storage",
            hint=f"a URL such as {sqlite_url(path)}, or a path ending in .journal",
        )
    return str(path)


def open_study(
    storage: str, name: str, objectives: Sequence[Objective], pruner: Mapping[str, Any]
) -> tuple[optuna.Study, optuna.storages.BaseStorage]:
    """Open a study, or make it.

    Args:
        storage: From `storage_of`.
        name: Of the study.
        objectives: What it optimizes.
        pruner: `_target_` and arguments.

    Raises:
        ConfigError: The storage cannot be used, or holds a study of that name with other objectives.
    """
    import optuna

    directions = [objective.direction for objective in objectives]
    try:
        with no_news():
            opened = optuna.storages.get_storage(open_storage(storage, is_new=True))
            study = optuna.create_study(
                storage=opened,
                study_name=name,
                directions=directions,
                load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(0),
                pruner=build_part("pruner", pruner),
            )
    # Optuna lets through what SQLAlchemy, a driver or a missing one says.
    except Exception as error:
        raise ConfigError(
            f"the study cannot be opened: {one_line_of(error.__cause__ or error)}",
            key="hydra.sweeper.storage",
            hint="null, a URL such as sqlite:///study.db, or a path such as study.journal",
        ) from error
    if [direction.name.lower() for direction in study.directions] != directions:
        raise ConfigError(
            f"the study {name!r} has other objectives already",
            key="hydra.sweeper.study_name",
            hint="hydra.sweeper.study_name=ANOTHER",
        )
    return study, opened


def make_own(sweep_dir: Path, name: str, objectives: Sequence[Objective], pruner: Mapping[str, Any]) -> None:
    """Make the study of a sweep directory, whole or not at all: Optuna cannot go on with half a database.

    Args:
        sweep_dir: Takes the file.
        name: Of the study.
        objectives: What it optimizes.
        pruner: `_target_` and arguments.
    """
    sweep_dir.mkdir(parents=True, exist_ok=True)
    if (sweep_dir / FILE).exists():
        return
    unfinished = sweep_dir / f".{FILE}.tmp"
    beside = sweep_dir / f"{unfinished.name}-journal"
    for path in (beside, unfinished):
        path.unlink(missing_ok=True)
    close_storage(open_study(sqlite_url(unfinished), name, objectives, pruner)[1])
    os.replace(unfinished, sweep_dir / FILE)  # noqa: PTH105 - the usual name of this step
    beside.unlink(missing_ok=True)
