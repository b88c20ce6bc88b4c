"""Batch norm's statistics at validation against those of the same samples, taken by torch's own layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import update_bn

from assay.callbacks.batch_norm import BatchNormStatistics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train

ON = "callbacks.batch_norm.num_samples=512"
PICTURES = (
    "data=synthetic",
    "data.source.num_samples=256",
    "data.source.num_classes=3",
    "data.batch_size=32",
)
SMALL = ("data.source.input_shape=[3,32,32]", "data.source.noise=0.3")
MODELS = {"small_cnn": (), "mlp": ("model.norm=batch",), "timm": ("model.name=resnet10t",)}


class Look(L.Callback):
    """Compares evaluation with training, in which batch norm takes the statistics of the batch."""

    def __init__(self) -> None:
        self.gaps: list[float] = []

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
        inputs = data.normalize(data.subset("train", "eval").data.inputs[:256], torch.float32)
        modes = {one: one.training for one in pl_module.modules()}
        kept = {name: one.clone() for name, one in pl_module.state_dict().items()}
        with torch.no_grad():
            pl_module.eval()
            evaluated = pl_module(inputs).softmax(1)
            for one in pl_module.modules():
                if isinstance(one, nn.BatchNorm1d | nn.BatchNorm2d):
                    one.train()
            trained = pl_module(inputs).softmax(1)
        pl_module.load_state_dict(kept)
        for one, training in modes.items():
            one.training = training
        self.gaps.append(float((evaluated - trained).abs().mean()))


@pytest.mark.parametrize("name", MODELS)
def test_training_and_evaluation_agree_after_the_first_epoch(train: Train, name: str) -> None:
    look = Look()
    train(*PICTURES, *SMALL, f"model={name}", *MODELS[name], ON, callbacks=[look])
    assert look.gaps[0] < 0.01, "a class's probability, in the mean"


def test_without_it_they_are_far_apart(train: Train) -> None:
    look = Look()
    train(*PICTURES, *SMALL, "model=small_cnn", callbacks=[look])
    assert look.gaps[0] > 0.1, "the control: this is what is mended"


def test_they_are_torchs_own(train: Train) -> None:
    run = train("data=digits", "model=small_cnn", ON.replace("512", "4000"))
    data, module = run.trainer.datamodule, run.trainer.lightning_module
    ours = {name: one.clone() for name, one in module.state_dict().items()}
    subset = data.subset("train", "eval")
    inputs = data.normalize(subset.data.inputs[subset.rows], torch.float32)
    update_bn(list(inputs.split(data.eval_batch_size)), module)
    for name, one in module.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(one, ours[name], rtol=0.02, atol=0.02)  # batches in another order


def test_frozen_layers_stay_as_they_are(train: Train, tmp_path: Path) -> None:
    run = train(*PICTURES, *SMALL, "model=small_cnn", "finetune=head", ON)
    means = [
        one
        for name, one in run.trainer.lightning_module.state_dict().items()
        if name.endswith("running_mean")
    ]
    assert means
    assert all(bool((one == 0).all()) for one in means)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="num_samples=0"):
        BatchNormStatistics(0)
