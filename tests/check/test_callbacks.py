"""Callbacks, loggers and what they follow: judged before the first step, and right about the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf

from assay.check.callbacks import check_checkpoint_names, notes_on_averages

if TYPE_CHECKING:
    from pathlib import Path


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
        (50, EMA | {"warmup_fraction": 0.1}, ""),
        (10_000, EMA | {"warmup_fraction": 0.1}, ""),
    ],
)
def test_an_average_that_looks_back_too_far_is_noted(steps: int, node: Any, says: str) -> None:
    notes = notes_on_averages(job(steps, callbacks={"ema": node}))
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
