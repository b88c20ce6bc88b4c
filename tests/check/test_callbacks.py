"""Callbacks, loggers and what they follow: judged before the first step, and right about the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf
from tests.check.jobs import prove

from assay.check.callbacks import check_checkpoint_names, notes_on

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train

EMA = {"_target_": "assay.callbacks.ema.EMA", "decay": 0.99}
SLOW = EMA | {"update_every_n_steps": 6}
CHECKPOINT = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}
CSV = {"_target_": "lightning.pytorch.loggers.CSVLogger", "name": "x", "version": "y"}


def job(total_steps: int = 10_000, **groups: Any) -> DictConfig:
    base = {"run_dir": "/run", "spec": {"total_steps": total_steps, "num_val": 10}}
    return OmegaConf.create({**base, "trainer": {}, "callbacks": {}, "logger": {}} | groups)


@pytest.mark.parametrize(
    ("steps", "node", "says"),
    [
        (10_000, EMA, ""),
        (100, EMA | {"warmup_fraction": None}, "37 % of the average are the initial weights"),  # e^-1
        (50, EMA | {"warmup_fraction": 0.1}, "looks back 100 steps, and the run has 50"),
        (10_000, EMA | {"warmup_fraction": 0.1}, ""),
    ],
)
def test_an_average_that_looks_back_too_far_is_noted(steps: int, node: Any, says: str) -> None:
    notes = notes_on(job(steps, callbacks={"ema": node}))
    assert len(notes) == bool(says)
    assert says in "".join(notes)


# -- names of checkpoints

NAMES = ["val/loss", "val/accuracy"]
PLAIN = {"auto_insert_metric_name": False}
BEST = CHECKPOINT | {"filename": "best", "monitor": "val/loss"}
LAST = CHECKPOINT | {"filename": "last", "enable_version_counter": False}


def named(filename: str) -> dict[str, Any]:
    return CHECKPOINT | {"filename": filename}


@pytest.mark.parametrize("filename", ["best", "{epoch:03d}-{step}", "{val/accuracy:.3f}", "a b {lr-AdamW}"])
def test_names_that_lightning_writes(filename: str, tmp_path: Path) -> None:
    check_checkpoint_names(job(callbacks={"mine": named(filename) | PLAIN}), NAMES)
    callback = ModelCheckpoint(tmp_path, filename=filename, auto_insert_metric_name=False)
    values = dict.fromkeys(["epoch", "step"], torch.tensor(1)) | dict.fromkeys(NAMES, torch.tensor(0.5))
    assert callback.format_checkpoint_name(values).endswith(".ckpt")


# -- what is followed


IRIS = ("data=iris", "model=linear", "data.batch_size=12", "data.drop_last=true", "device=cpu")
"""Eight batches an epoch."""
STOP = (
    *("callbacks=[early_stopping]", "callbacks.early_stopping.min_delta=100"),
    "callbacks.early_stopping.patience=2",
)
PLATEAU = (
    *("scheduler=plateau", "scheduler.threshold=100", "+scheduler.threshold_mode=abs"),
    *("scheduler.patience=2", "optimizer.lr=0.01"),
)


@pytest.mark.always(
    "base0-trainer.max_epochs=2-False",
    "base3-trainer.max_epochs=1 trainer.val_check_interval=0.25-True",
    "base10-trainer.max_epochs=2 scheduler.interval=step scheduler.frequency=4 "
    "trainer.val_check_interval=4-True",
)
@pytest.mark.parametrize(
    ("base", "typed", "reached"),
    [
        (STOP, "trainer.max_epochs=2", False),
        (STOP, "trainer.max_epochs=3", True),
        (STOP, "trainer.max_epochs=5 trainer.check_val_every_n_epoch=2", False),
        (STOP, "trainer.max_epochs=1 trainer.val_check_interval=0.25", True),
        (STOP, "trainer.max_epochs=1 trainer.val_check_interval=3", False),
        (STOP, "trainer.max_epochs=1 callbacks.early_stopping.patience=0", False),
        (PLATEAU, "trainer.max_epochs=4", True),
        (PLATEAU, "trainer.max_epochs=3", False),
        (PLATEAU, "trainer.max_epochs=7 scheduler.frequency=2", False),
        (PLATEAU, "trainer.max_epochs=8 scheduler.frequency=2", True),
        (
            PLATEAU,
            "trainer.max_epochs=2 scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4",
            True,
        ),
    ],
)
def test_patience_out_of_reach_is_said(
    train: Train, base: tuple[str, ...], typed: str, reached: bool
) -> None:
    words = (*IRIS, *base, *typed.split())
    warned = [warning for warning in prove(*words).warnings if "patience" in warning]
    assert bool(warned) is not reached, warned
    run = train(*words)
    log = (run.run_dir / "log.txt").read_text()
    if base is STOP:
        assert ("stopped early" in log) is reached
    else:
        assert (run.trainer.optimizers[0].param_groups[0]["lr"] < 0.01) is reached
