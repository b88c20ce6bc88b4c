"""Callbacks and loggers that contradict each other."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.check.callbacks import check_callbacks, notes_on
from assay.errors import ConfigError

LIGHTNING = "lightning.pytorch.callbacks"
EMA = {"_target_": "assay.callbacks.ema.EMA", "decay": 0.99}
SWA = {"_target_": "assay.callbacks.swa.SWA"}


def job(total_steps: int = 10_000, **groups: Any) -> DictConfig:
    base = {
        "run_dir": "/run",
        "spec": {"total_steps": total_steps},
        "trainer": {},
        "callbacks": {},
        "logger": {},
    }
    return OmegaConf.create(base | groups)


def checkpoint(**options: Any) -> dict[str, Any]:
    return {"_target_": f"{LIGHTNING}.ModelCheckpoint", **options}


def csv(**options: Any) -> dict[str, Any]:
    return {"_target_": "lightning.pytorch.loggers.CSVLogger", **options}


def refused(**groups: Any) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        check_callbacks(job(**groups))
    return error.value


@pytest.mark.parametrize(
    "groups",
    [
        {"callbacks": {"ema": EMA, "checkpoint": checkpoint(filename="best", monitor="val/loss")}},
        {"logger": {"one": csv(save_dir="/a", version="x"), "other": csv(save_dir="/b", version="x")}},
    ],
)
def test_these_go_together(groups: Any) -> None:
    check_callbacks(job(**groups))


@pytest.mark.parametrize(
    "name", ["LearningRateFinder", "BatchSizeFinder", "BackboneFinetuning", "StochasticWeightAveraging"]
)
def test_callbacks_that_do_not_do_here_what_they_say(name: str) -> None:
    error = refused(callbacks={"mine": {"_target_": f"{LIGHTNING}.{name}"}})
    assert error.key == "callbacks.mine"
    assert f"{name} cannot be used: " in error.message
    assert error.hint


def test_two_averages() -> None:
    error = refused(callbacks={"ema": EMA, "swa": SWA})
    assert (error.key, error.hint) == ("callbacks.swa", "~callbacks.swa, or ~callbacks.ema")


def test_two_accumulations() -> None:
    node = {"_target_": f"{LIGHTNING}.GradientAccumulationScheduler", "scheduling": {4: 2}}
    check_callbacks(job(callbacks={"accumulation": node}))
    error = refused(callbacks={"accumulation": node}, trainer={"accumulate_grad_batches": 2})
    assert "accumulates already" in error.message
    schedule = {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max": "${spec.total_steps}"}
    error = refused(callbacks={"accumulation": node}, scheduler=schedule)
    assert "scheduler.T_max is computed from" in error.message
    error = refused(callbacks={"accumulation": node}, optimizer={"_target_": "torch.optim.LBFGS"})
    assert (error.key, "LBFGS cannot accumulate" in error.message) == ("callbacks.accumulation", True)


def test_logs_that_take_each_others_place() -> None:
    same = csv(save_dir="/a", name="x", version="y")
    assert refused(logger={"one": same, "other": dict(same)}).key == "logger.other"
    error = refused(logger={"mine": csv(save_dir="/", name="run", version="")})
    assert "assay itself writes the same file" in error.message


def test_an_average_that_is_too_slow_for_its_run() -> None:
    assert refused(total_steps=50, callbacks={"ema": EMA | {"update_every_n_steps": 6}}).key == (
        "callbacks.ema.update_every_n_steps"
    )
    check_callbacks(job(total_steps=60, callbacks={"ema": EMA | {"update_every_n_steps": 6}}))


@pytest.mark.parametrize(
    ("steps", "node", "says"),
    [
        (10_000, EMA, ""),
        (100, EMA | {"warmup_fraction": None}, "37 % of the average are the initial weights"),  # e^-1
        (50, EMA | {"warmup_fraction": 0.1}, "looks back 100 steps, and the run has 50"),
        (10_000, EMA | {"warmup_fraction": 0.1}, ""),
    ],
)
def test_an_average_that_looks_back_too_far_is_said(steps: int, node: Any, says: str) -> None:
    notes = notes_on(job(total_steps=steps, callbacks={"ema": node}))
    assert len(notes) == bool(says)
    assert says in "".join(notes)
