"""Which parts of a study go together."""

from __future__ import annotations

from typing import Any

import pytest

from assay.analysis.objective import Objective
from assay.errors import ConfigError
from assay.sweep.search.optuna import NO_PRUNER, check_installed, check_parts, prunes

TPE = {"_target_": "optuna.samplers.TPESampler"}
CMA = {"_target_": "optuna.samplers.CmaEsSampler"}
RANDOM = {"_target_": "optuna.samplers.RandomSampler"}
MEDIAN = {"_target_": "optuna.pruners.MedianPruner"}
NONE = {"_target_": NO_PRUNER}
VAL, TEST = Objective("val/accuracy", "maximize"), Objective("test/accuracy", "maximize")
SIZE = Objective("model/parameters", "minimize")


def test_what_prunes() -> None:
    assert prunes(MEDIAN)
    assert not prunes(NONE)


@pytest.mark.parametrize(
    ("sampler", "pruner", "aims", "constrained"),
    [(TPE, MEDIAN, [VAL], True), (TPE, NONE, [VAL, SIZE], False), (CMA, MEDIAN, [VAL], False)],
)
def test_these_go_together(sampler: Any, pruner: Any, aims: list[Objective], constrained: bool) -> None:
    check_parts(sampler, pruner, aims, constrained=constrained)


@pytest.mark.parametrize(
    ("sampler", "pruner", "aims", "constrained", "said"),
    [
        (RANDOM, NONE, [VAL], True, ("constraints", "knows no constraints")),
        (TPE, MEDIAN, [VAL, SIZE], False, ("pruner", "several objectives")),
        (TPE, MEDIAN, [TEST], False, ("pruner", "known only at the end")),
        (CMA, NONE, [VAL, SIZE], False, ("sampler", "takes one objective")),
        ({"_target_": "os.system"}, NONE, [VAL], False, ("sampler", "is not one of Optuna's samplers")),
        (TPE, TPE, [VAL], False, ("pruner", "is not one of Optuna's pruners")),
        (TPE, {**MEDIAN, "n_startup_trials": -1}, [VAL], False, ("pruner", "MedianPruner")),
    ],
)
def test_these_do_not(
    sampler: Any, pruner: Any, aims: list[Objective], constrained: bool, said: tuple[str, str]
) -> None:
    key, message = said
    with pytest.raises(ConfigError, match=message) as error:
        check_parts(sampler, pruner, aims, constrained=constrained)
    assert error.value.key == f"hydra.sweeper.{key}"


def test_a_package_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed(CMA)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "cmaes" else object())
    check_installed(TPE)
    with pytest.raises(ConfigError, match="needs the package cmaes"):
        check_installed(CMA)
