"""Averages of weights in half precision are those that float64 gives, and go on bit for bit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint
from tests.loop.small_fit import Line, batches, fit
from torch import Tensor, nn
from typing_extensions import override

from assay.callbacks.ema import EMA
from assay.callbacks.swa import SWA

if TYPE_CHECKING:
    from pathlib import Path

    import lightning as L

EPOCHS, BATCHES, DECAY = 4, 6, 0.99


class Normed(Line):
    """With buffers, of which one counts, and steps that bfloat16 loses in an average."""

    def __init__(self) -> None:
        super().__init__()
        self.net: Any = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return nn.functional.mse_loss(self.net(batch[0]).float(), batch[1].float())

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.net(batch[0])


class Saves(Checkpoint):
    """Saves each epoch: after training, the weights are those of the average."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.save_checkpoint(self.path)


class Watch(Callback):
    """Keeps the weights after each step, as float64."""

    def __init__(self) -> None:
        self.weights: list[dict[str, Tensor]] = []
        self.validated: list[set[torch.dtype]] = []

    @override
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        state = pl_module.state_dict()
        self.weights.append({name: value.double().clone() for name, value in state.items()})

    @override
    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.validated.append({value.dtype for value in pl_module.parameters()})


def averaged(weights: list[dict[str, Tensor]], name: str, kind: type) -> Tensor:
    """By the definition: of all steps, or the mean of the ends of the last epochs."""
    values = [one[name] for one in weights]
    if kind is SWA:
        return torch.stack(values[3 * BATCHES - 1 :: BATCHES]).mean(0)
    average = values[0]
    for value in values[1:]:
        average = DECAY * average + (1 - DECAY) * value
    return average


def average_of(kind: type) -> Any:
    return SWA(start_fraction=0.5) if kind is SWA else EMA(decay=DECAY, warmup_fraction=None)


def train(
    folder: Path, kind: type, epochs: int, start: Path | None = None, limit: int = -1
) -> tuple[Watch, dict[str, Any]]:
    watch, module = Watch(), Normed()
    options: dict[str, Any] = {"precision": "bf16-true", "max_steps": limit, "enable_checkpointing": True}
    fit(
        *(module, watch, average_of(kind), Saves(folder / "end.ckpt")),
        **{"val": batches(), "max_epochs": epochs, "ckpt_path": start, **options},
    )
    return watch, torch.load(folder / "end.ckpt", weights_only=False)


@pytest.mark.parametrize("kind", [EMA, SWA])
def test_averages_of_half_precision_are_those_of_float64(tmp_path: Path, kind: type) -> None:
    watch, saved = train(tmp_path, kind, EPOCHS)
    assert watch.validated
    assert {*watch.validated[0]} == {torch.bfloat16}
    for name, value in saved["state_dict"].items():
        if not value.is_floating_point():
            assert int(value) == EPOCHS * BATCHES
            continue
        assert value.dtype == torch.float32, name
        expected = averaged(watch.weights, name, kind)
        assert torch.allclose(value.double(), expected, rtol=1e-5, atol=1e-6), name
        assert saved["current_model_state"][name].dtype == torch.bfloat16


@pytest.mark.parametrize(("kind", "epochs"), [(EMA, 3), (SWA, 1), (SWA, 3)])  # SWA begins between
def test_a_resumed_average_is_the_same(tmp_path: Path, kind: type, epochs: int) -> None:
    _, whole = train(tmp_path / "whole", kind, EPOCHS)
    # SWA's share is of the epochs that are asked for, so a run that stops halfway is one of as many.
    stop = tmp_path / "cut"
    train(stop, kind, EPOCHS, limit=epochs * BATCHES)
    _, resumed = train(tmp_path / "resumed", kind, EPOCHS, stop / "end.ckpt")
    for part in ("state_dict", "current_model_state"):
        for name, value in whole[part].items():
            assert torch.equal(resumed[part][name], value), (part, name)


def test_the_average_is_where_the_model_is_trained() -> None:
    """Not where it was made: each update would copy all weights, and wait for them."""
    callback, module = average_of(EMA), Normed()
    elsewhere = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("meta")))
    callback.setup(elsewhere, module, "fit")
    state: dict[str, Any] = {"state_dict": module.state_dict()}
    callback.on_save_checkpoint(elsewhere, module, state)
    assert {value.device.type for value in state["state_dict"].values()} == {"meta"}
    assert {value.device.type for value in state["averaging_state"].values()} == {"meta"}
