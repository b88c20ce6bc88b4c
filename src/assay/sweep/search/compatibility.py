"""Whether a study's sampler, pruner, objectives and constraints are there and go together."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from assay.callbacks.optuna_study import build_part, takes_argument
from assay.errors import ConfigError
from assay.targets.optional_packages import install

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.record.objective import Objective

NO_PRUNER: Final = "optuna.pruners.NopPruner"


def prunes(pruner: Mapping[str, Any]) -> bool:
    """Whether trials may be ended early.

    Args:
        pruner: `_target_` of one of Optuna's and its arguments.
    """
    return str(pruner.get("_target_")) != NO_PRUNER


def check_installed(sampler: Mapping[str, Any] | None) -> None:
    """Refuse a search whose packages are not there.

    Args:
        sampler: `_target_` of one of Optuna's, and its arguments.

    Raises:
        ConfigError: Naming the package and how to install it.
    """
    needed = ["optuna"]
    if str((sampler or {}).get("_target_")).endswith(".CmaEsSampler"):
        needed.append("cmaes")
    for package in needed:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"this search needs the package {package}, which is not installed",
                key="hydra/sweeper",
                hint=install("hydra.sweeper.optuna", package),
            )


def check_parts(
    sampler: Mapping[str, Any],
    pruner: Mapping[str, Any],
    aims: Sequence[Objective],
    *,
    constrained: bool,
) -> None:
    """Refuse parts that cannot be made, or not together.

    Args:
        sampler: `_target_` of one of Optuna's, and its arguments.
        pruner: The same.
        aims: What is optimized.
        constrained: There are bounds on metrics.

    Raises:
        ConfigError: Naming the part.
    """
    for kind, node in (("sampler", sampler), ("pruner", pruner)):
        try:
            knows_constraints = takes_argument(kind, node, "constraints_func")
        except ValueError as error:
            raise ConfigError(str(error), key=f"hydra.sweeper.{kind}") from error
        if kind == "sampler" and constrained and not knows_constraints:
            raise ConfigError(
                "this sampler knows no constraints",
                key="hydra.sweeper.constraints",
                hint="hydra/sweeper/sampler=tpe, or nsgaii",
            )
    try:
        build_part("pruner", pruner)
    except ValueError as error:
        raise ConfigError(str(error), key="hydra.sweeper.pruner") from error
    tested = next((aim.name for aim in aims if aim.name.startswith("test/")), None)
    if prunes(pruner) and (len(aims) > 1 or tested):
        what = f"{tested} is known only at the end" if tested else "there are several objectives"
        raise ConfigError(
            f"{what}: nothing can be pruned",
            key="hydra.sweeper.pruner",
            hint="hydra/sweeper/pruner=none",
        )
    if len(aims) > 1 and str(sampler["_target_"]).endswith("CmaEsSampler"):
        raise ConfigError(
            "CMA-ES takes one objective", key="hydra.sweeper.sampler", hint="hydra/sweeper/sampler=nsgaii"
        )
