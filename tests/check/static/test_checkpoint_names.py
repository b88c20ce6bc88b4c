"""Names that checkpoints can have, judged before the first one is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf

from assay.check.static.checkpoint_names import check_checkpoint_names
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["val/loss", "val/accuracy"]


def job(filename: str, **options: Any) -> DictConfig:
    node = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "filename": filename, **options}
    return OmegaConf.create({"callbacks": {"mine": node}})


@pytest.mark.parametrize("filename", ["best", "{epoch:03d}-{step}", "{val/accuracy:.3f}", "a b {lr-AdamW}"])
def test_names_that_lightning_writes(filename: str, tmp_path: Path) -> None:
    check_checkpoint_names(job(filename, auto_insert_metric_name=False), NAMES)
    callback = ModelCheckpoint(tmp_path, filename=filename, auto_insert_metric_name=False)
    values = dict.fromkeys(["epoch", "step"], torch.tensor(1)) | dict.fromkeys(NAMES, torch.tensor(0.5))
    assert callback.format_checkpoint_name(values).endswith(".ckpt")


@pytest.mark.parametrize(
    ("filename", "message"),
    [
        ("{val/acuracy}", "val/acuracy"),
        ("{epoch:q}", "was given"),
        ("{epoch", "was given"),
        ("{{x}}-{epoch}", "was given"),  # Lightning cannot write it either
        ("{}", "cannot be filled in"),
        ("{epoch!r}", "cannot be filled in"),
        ("{epoch:0100000000d}", "cannot be filled in"),
        ("../{epoch}", "is not a name of a file in the run's folder"),
        ("/home/{epoch}", "is not a name of a file in the run's folder"),
        ("x" * 300, "was given"),
    ],
)
def test_names_that_no_checkpoint_can_have(filename: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check_checkpoint_names(job(filename), NAMES)
    assert error.value.key == "callbacks.mine.filename"
    assert len(error.value.message) < 400


def test_nobody_knows_the_metrics_of_a_module_of_ones_own() -> None:
    check_checkpoint_names(job("{mine/score:.2f}"), None)
