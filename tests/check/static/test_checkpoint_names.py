"""Names that checkpoints can have, judged before the first one is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf

from assay.check.callbacks import check_checkpoint_names
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["val/loss", "val/accuracy"]


def checkpoint(**options: Any) -> dict[str, Any]:
    return {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", **options}


def job(filename: str, **options: Any) -> DictConfig:
    return several(mine=checkpoint(filename=filename, **options))


def several(**callbacks: Any) -> DictConfig:
    return OmegaConf.create({"callbacks": callbacks})


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


BEST = {"filename": "best", "monitor": "val/loss"}
LAST = {"filename": "last", "enable_version_counter": False}


@pytest.mark.parametrize(
    "callbacks",
    [
        {"one": checkpoint(), "other": checkpoint(monitor="val/loss")},  # Lightning counts: …-v1.ckpt
        {"one": checkpoint(filename="best"), "other": checkpoint(filename="{epoch}")},
        {"one": checkpoint(filename="{epoch}"), "other": checkpoint(filename="{step}")},
        {
            "one": checkpoint(filename="{val/loss:.3f}", auto_insert_metric_name=False),
            "other": checkpoint(filename="{val/accuracy:.3f}", auto_insert_metric_name=False),
        },
        {"best": checkpoint(**BEST, save_last=True), "each": checkpoint(filename="each")},
        {"best": checkpoint(**BEST, save_last=False), "last": checkpoint(**LAST)},
    ],
)
def test_checkpoints_that_lie_beside_each_other(callbacks: Any) -> None:
    check_checkpoint_names(several(**callbacks), NAMES)


@pytest.mark.parametrize(
    ("callbacks", "key", "message", "hint"),
    [
        (
            {"a": checkpoint(**BEST | {"filename": "last"})},
            *("a.filename", "last.ckpt is what a run that is stopped leaves", "callbacks.a.filename=best"),
        ),
        (
            {"a": checkpoint(filename="best"), "b": checkpoint(filename="best")},
            *(
                "b.filename",
                "callbacks.a writes best.ckpt already",
                "callbacks.b.filename='best-{epoch:02d}'",
            ),
        ),
        (
            {"a": checkpoint(filename="best"), "b": checkpoint(filename="./best")},
            *(
                "b.filename",
                "callbacks.a writes best.ckpt already",
                "callbacks.b.filename='best-{epoch:02d}'",
            ),
        ),
        (
            {"a": checkpoint(filename="{epoch}"), "b": checkpoint(filename="{epoch:d}")},
            *(
                "b.filename",
                "callbacks.a writes {epoch:d}.ckpt already",
                "callbacks.b.filename='best-{epoch:02d}'",
            ),
        ),
        (
            {"a": checkpoint(enable_version_counter=False), "b": checkpoint(monitor="val/loss")},
            *(
                "b.filename",
                "callbacks.a writes {epoch}-{step}.ckpt already",
                "+callbacks.b.filename='best-{epoch:02d}'",
            ),
        ),
        (
            {"best": checkpoint(**BEST, save_last=True), "last": checkpoint(**LAST)},
            *("best.save_last", "callbacks.last writes last.ckpt already", "callbacks.best.save_last=null"),
        ),
        (
            {"last": checkpoint(**LAST), "best": checkpoint(**BEST, save_last="link")},
            *("best.save_last", "callbacks.last writes last.ckpt already", "callbacks.best.save_last=null"),
        ),
        (
            {"last": checkpoint(**LAST, save_last=True)},
            *("last.save_last", "callbacks.last writes last.ckpt already", "callbacks.last.save_last=null"),
        ),
        (
            {"a": checkpoint(save_last=True), "b": checkpoint(monitor="val/loss", save_last=True)},
            *("b.save_last", "callbacks.a writes last.ckpt already", "callbacks.b.save_last=null"),
        ),
    ],
)
def test_checkpoints_that_take_each_others_place(callbacks: Any, key: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        check_checkpoint_names(several(**callbacks), NAMES)
    assert error.value.key == f"callbacks.{key}"
    assert message in error.value.message
    assert error.value.hint == hint
