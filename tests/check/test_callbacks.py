"""Callbacks, loggers and what they follow: judged before the first step, and right about the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf

from assay.check.callbacks import check_checkpoint_names, notes_on_averages
from assay.check.checker import Checker

if TYPE_CHECKING:
    from pathlib import Path


EMA = {"_target_": "assay.callbacks.ema.EMA", "decay": 0.99}
CHECKPOINT = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}


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


def test_what_the_trainer_warns_of_when_it_is_built_is_for_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talking").mkdir()
    (tmp_path / "talking" / "__init__.py").write_text(
        "import warnings\nfrom lightning.pytorch import Callback\nclass Talking(Callback):\n"
        "    def __init__(self):\n"
        "        warnings.warn('old', DeprecationWarning)\n        warnings.warn('slow')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    checker = Checker()
    typed = ["data=iris", "device=cpu", "+callbacks.talking._target_=talking.Talking"]
    proof = checker.check(checker.job([*typed, "trusted_packages=[talking]"]))
    assert [text for text in proof.report.warnings if text in ("old", "slow")] == ["slow"]


# -- names of checkpoints

NAMES = ["val/loss", "val/accuracy"]
PLAIN = {"auto_insert_metric_name": False}


def named(filename: str) -> dict[str, Any]:
    return CHECKPOINT | {"filename": filename}


@pytest.mark.parametrize("filename", ["best", "{epoch:03d}-{step}", "{val/accuracy:.3f}", "a b {lr-AdamW}"])
def test_names_that_lightning_writes(filename: str, tmp_path: Path) -> None:
    check_checkpoint_names(job(callbacks={"mine": named(filename) | PLAIN}), NAMES)
    callback = ModelCheckpoint(tmp_path, filename=filename, auto_insert_metric_name=False)
    values = dict.fromkeys(["epoch", "step"], torch.tensor(1)) | dict.fromkeys(NAMES, torch.tensor(0.5))
    assert callback.format_checkpoint_name(values).endswith(".ckpt")
