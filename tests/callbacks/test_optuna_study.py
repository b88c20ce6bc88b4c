"""Optuna's storages, samplers and pruners from plain data."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import optuna
import pytest

from assay.callbacks.optuna_study import build_part, close_storage, open_storage, sqlite_url

if TYPE_CHECKING:
    from pathlib import Path


def concrete(module: Any, base: type) -> list[type]:
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, base) and not inspect.isabstract(kind)]


SAMPLERS = concrete(optuna.samplers, optuna.samplers.BaseSampler)
PRUNERS = concrete(optuna.pruners, optuna.pruners.BasePruner)
REQUIRED: dict[str, dict[str, Any]] = {
    "GridSampler": {"search_space": {"x": [1, 2]}},
    "PartialFixedSampler": {
        "fixed_params": {"x": 1},
        "base_sampler": {"_target_": "optuna.samplers.RandomSampler"},
    },
    "PatientPruner": {"wrapped_pruner": {"_target_": "optuna.pruners.MedianPruner"}, "patience": 1},
    "PercentilePruner": {"percentile": 25.0},
    "ThresholdPruner": {"upper": 1.0},
    "WilcoxonPruner": {},
}


@pytest.mark.parametrize("kind", [*SAMPLERS, *PRUNERS], ids=lambda kind: kind.__name__)
def test_each_of_optunas(kind: type) -> None:
    part, module = ("sampler", "samplers") if kind in SAMPLERS else ("pruner", "pruners")
    node = {"_target_": f"optuna.{module}.{kind.__name__}", **REQUIRED.get(kind.__name__, {})}
    assert type(build_part(part, node, seed=1)) is kind


@pytest.mark.parametrize(
    ("kind", "node", "message"),
    [
        ("sampler", {"_target_": "os.system"}, "is not one of Optuna's samplers"),
        ("sampler", {"_target_": "optuna.pruners.NopPruner"}, "is not one of Optuna's samplers"),
        ("pruner", {"_target_": "optuna.pruners.BasePruner"}, "is not one of Optuna's pruners"),
        ("sampler", {"_target_": "optuna.samplers.TPESampler", "seed": 1}, r"hydra\.sweeper\.seed"),
        ("sampler", {"_target_": "optuna.samplers.TPESampler", "sede": 1}, "takes no 'sede'; it takes"),
        ("sampler", {"_target_": "optuna.samplers.TPESampler", "gamma": "os.system"}, "gamma is a function"),
        ("pruner", {"_target_": "optuna.pruners.PercentilePruner", "percentile": -1.0}, "PercentilePruner: "),
    ],
)
def test_what_is_refused(kind: str, node: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_part(kind, node)


def test_a_storage_is_an_sqlite_file_of_any_name(tmp_path: Path) -> None:
    database = open_storage(sqlite_url(tmp_path / "a b#?.db"), is_new=True)
    study = optuna.create_study(storage=database, study_name="x")
    study.add_trial(optuna.trial.create_trial(value=1.0))
    close_storage(database)
    assert (tmp_path / "a b#?.db").is_file()
    again = open_storage(sqlite_url(tmp_path / "a b#?.db"), is_new=False)
    assert optuna.load_study(study_name="x", storage=again).best_value == 1.0
    close_storage(again)
