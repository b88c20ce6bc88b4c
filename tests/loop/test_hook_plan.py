"""Hooks are called if somebody overrides them, in the order of the callbacks, and whoever comes later too."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping, LambdaCallback
from lightning.pytorch.demos.boring_classes import BoringModel

from assay.loop.hook_plan import HookPlan

CALLED: list[str] = []


class Says(Callback):
    """Says its name, and which hook `self.log` takes it for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def on_train_batch_end(self, _: Any, pl_module: Any, *__: Any) -> None:
        CALLED.append(f"{self.name}:{pl_module._current_fx_name}")


class Saves(Says, Checkpoint):
    """A callback that saves."""


class Waits(EarlyStopping):
    """A callback that waits for a metric."""

    def __init__(self) -> None:
        super().__init__("val/loss")

    def on_train_batch_end(self, *_: Any) -> None:
        CALLED.append("waits")


def plan(*callbacks: Callback, profiler: str | None = None, module: Any = None) -> tuple[HookPlan, L.Trainer]:
    CALLED.clear()
    trainer = L.Trainer(
        callbacks=[*callbacks],
        profiler=profiler,
        logger=False,
        accelerator="cpu",
        enable_checkpointing=any(isinstance(one, Checkpoint) for one in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.strategy.connect(module or BoringModel())
    trainer.lightning_module.trainer = trainer
    return HookPlan(trainer), trainer


def test_those_that_override_it_are_called_in_order() -> None:
    last = LambdaCallback(on_train_batch_end=lambda *_: CALLED.append("lambda"))
    hooks, trainer = plan(Says("a"), Callback(), Saves("b"), Waits(), last)
    hooks.callbacks("on_train_batch_end", {}, None, 0)
    assert CALLED == ["a:on_train_batch_end", "waits", "lambda", "b:on_train_batch_end"]
    assert trainer.lightning_module._current_fx_name is None


def test_by_what_they_do() -> None:
    hooks, _ = plan(Says("a"), Saves("b"), Waits())
    for chosen, expected in (
        ({"saving": True}, ["b"]),
        ({"saving": False}, ["a", "waits"]),
        ({"monitoring": False}, ["a"]),
        ({"saving": False, "monitoring": True}, ["waits"]),
    ):
        CALLED.clear()
        hooks.callbacks("on_train_batch_end", {}, None, 0, **chosen)
        assert [one.partition(":")[0] for one in CALLED] == expected, chosen


def test_a_callback_that_comes_later_is_called_too() -> None:
    hooks, trainer = plan(Says("a"))
    hooks.callbacks("on_train_batch_end", {}, None, 0)
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    callbacks.append(Says("b"))
    hooks.callbacks("on_train_batch_end", {}, None, 0)
    del callbacks[0]
    hooks.callbacks("on_train_batch_end", {}, None, 0)
    assert [one[0] for one in CALLED] == ["a", "a", "b", "b"]


def test_hooks_in_which_lightning_does_something_are_called_though_nobody_overrides_them() -> None:
    hooks, trainer = plan()
    module = trainer.lightning_module
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    hooks.module("on_train_start")
    hooks.module("on_validation_model_zero_grad")
    assert all(parameter.grad is None for parameter in module.parameters())


def test_a_batch_on_its_device_is_handed_on_and_any_other_is_moved() -> None:
    hooks, trainer = plan()
    trainer._data_connector.attach_data(trainer.lightning_module, train_dataloaders=[torch.ones(2)])
    lying = (torch.ones(2), torch.zeros(2))
    assert hooks.to_device(lying) is lying
    moved = hooks.to_device({"x": torch.ones(2)})
    assert moved["x"].tolist() == [1.0, 1.0]
