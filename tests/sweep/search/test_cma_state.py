"""CMA-ES keeps its state pickled in a study: the same trials as with any pickle, and no code runs."""

from __future__ import annotations

import os
import pickle
import sqlite3
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pytest
from cmaes import CMA  # type: ignore[import-untyped]  # it has no stubs
from optuna.samplers import _cmaes

from assay.errors import ConfigError
from assay.record.outcome import Outcome
from assay.sweep.search.optuna import OptunaSearch
from assay.sweep.search.study import CmaState, restrict_pickle

if TYPE_CHECKING:
    from collections.abc import Iterator

NODE = {"_target_": "optuna.samplers.CmaEsSampler", "n_startup_trials": 1, "warn_independent_sampling": False}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield
    optuna.logging.set_verbosity(before)


def trials(state: Any, monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> list[tuple[float, ...]]:
    """What a study tries whose state is written and read in some way, by a new sampler each time."""
    monkeypatch.setattr(_cmaes, "pickle", state)
    study = optuna.create_study()
    for number in range(40):
        study.sampler = optuna.samplers.CmaEsSampler(seed=number, n_startup_trials=1, **arguments)
        trial = study.ask()
        x, y = trial.suggest_float("x", -5, 5), trial.suggest_int("y", -5, 5)
        study.tell(trial, (x - 1) ** 2 + (y - 2) ** 2)
    return [tuple(trial.params.values()) for trial in study.trials]


@pytest.mark.parametrize("kind", [{}, {"use_separable_cma": True}, {"with_margin": True}, {"lr_adapt": True}])
def test_the_trials_are_those_of_any_pickle(kind: dict[str, bool], monkeypatch: pytest.MonkeyPatch) -> None:
    assert trials(CmaState, monkeypatch, **kind) == trials(pickle, monkeypatch, **kind)


class Payload:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return eval, (f"open({str(Path('owned').absolute())!r}, 'w').close()",)


class Inside(CMA):  # type: ignore[misc]  # cmaes has no stubs
    """An optimizer that is not of cmaes itself."""


def search(folder: Path) -> OptunaSearch:
    return OptunaSearch(
        ["x=interval(-5,5)", "y=interval(-5,5)"],
        folder,
        sampler=NODE,
        num_trials=40,
        objective="val/loss",
        direction="minimize",
    )


def step(searching: OptunaSearch) -> None:
    proposal = searching.next()
    assert proposal is not None
    loss = sum(float(one.partition("=")[2]) ** 2 for one in proposal.overrides)
    searching.tell(proposal.token, Outcome("finished", metrics={"val/loss": loss}), [loss])


def test_code_in_a_study_is_refused_and_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = search(tmp_path)
    for _ in range(12):
        step(first)
    first.close()
    with sqlite3.connect(tmp_path / "study.db") as connection:
        rows = connection.execute("SELECT key, value_json FROM trial_system_attributes").fetchall()
        states = [key for key, _ in rows if "optimizer" in key]
        assert states, "CMA-ES has written its state"
        evil = f'"{pickle.dumps(Payload()).hex()}"'
        connection.execute(
            "UPDATE trial_system_attributes SET value_json = ? WHERE key LIKE '%optimizer%'", (evil,)
        )
    connection.close()
    second = search(tmp_path)
    second.restore([])
    with pytest.raises(ConfigError, match=r"state of CMA-ES in this study cannot be read: .*eval"):
        step(second)
    second.close()
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    "state",
    [
        *(b"", b"[]", b"cos\nsystem\n(S'touch owned'\ntR.", b"cnumpy\nload\n."),
        *(pickle.dumps(value) for value in (Payload(), None, [1], np.zeros(2), CMA, os.system)),
        pickle.dumps(Inside(mean=np.zeros(2), sigma=1.0)),
    ],
)
def test_what_is_no_state_is_one_error(state: bytes) -> None:
    with pytest.raises(ValueError, match="state of CMA-ES"):
        CmaState.loads(state)


def test_optuna_has_the_place_that_is_replaced() -> None:
    restrict_pickle()
    assert vars(_cmaes)["pickle"] is CmaState
    source = Path(_cmaes.__file__).read_text(encoding="utf-8")
    assert "pickle.dumps(optimizer).hex()" in source
    assert "pickle.loads(bytes.fromhex(optimizer_str))" in source
    assert source.count("pickle") == 3, "import, write, read"
