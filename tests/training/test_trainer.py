"""What the trainer's own keys promise, in real runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

if TYPE_CHECKING:
    import lightning as L
    from tests.conftest import Train

SGD = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.nesterov=false", "optimizer.weight_decay=0")
DIGITS = ("data=digits", "model=linear", "scheduler=none")


@final
class Count(Callback):
    """Counts the batches of each stage."""

    def __init__(self) -> None:
        self.batches = {"train": 0, "val": 0, "test": 0}
        self.validations: list[int] = []

    def on_train_batch_end(self, *_: object) -> None:
        self.batches["train"] += 1

    def on_validation_batch_end(self, *_: object) -> None:
        self.batches["val"] += 1

    def on_test_batch_end(self, *_: object) -> None:
        self.batches["test"] += 1

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.validations.append(trainer.global_step)


def test_clipping_bounds_the_norm_of_each_step(train: Train) -> None:
    steps = (*DIGITS, *SGD, "trainer.limit_train_batches=8")
    free = train(*steps)
    clipped = train(*steps, "trainer.gradient_clip_val=0.5")
    assert max(free.watch.grad_norms) > 0.6
    assert max(clipped.watch.grad_norms) == pytest.approx(0.5, rel=1e-4)
    assert all(norm <= 0.5 * (1 + 1e-5) for norm in clipped.watch.grad_norms)


def test_accumulation_takes_the_step_of_the_larger_batch(train: Train) -> None:
    plain = (*DIGITS, *SGD, "data.shuffle=false")
    whole = train(*plain, "data.batch_size=128", "trainer.limit_train_batches=2")
    halves = train(
        *plain, "data.batch_size=64", "trainer.limit_train_batches=4", "trainer.accumulate_grad_batches=2"
    )
    assert len(halves.watch.losses) == 2 * len(whole.watch.losses) == 4
    assert len(halves.watch.lrs) == len(whole.watch.lrs) == 2
    for name, value in whole.weights.items():
        torch.testing.assert_close(halves.weights[name], value, rtol=1e-5, atol=1e-6)


def test_limits(train: Train) -> None:
    run = train(
        *(*DIGITS, "data.eval_batch_size=16", "trainer.max_epochs=2"),
        *("trainer.limit_train_batches=3", "trainer.limit_val_batches=4", "trainer.limit_test_batches=5"),
        callbacks=[count := Count()],
    )
    assert count.batches == {"train": 6, "val": 8, "test": 5}
    assert run.trainer.global_step == 6


def test_max_steps_ends_in_mid_epoch(train: Train) -> None:
    run = train(*DIGITS, "trainer.max_steps=5", "trainer.max_epochs=3")
    assert run.trainer.global_step == 5 == len(run.watch.losses)
    assert run.result.status == "finished"
    assert "test/accuracy" in run.result.metrics


def test_validation_every_so_often(train: Train) -> None:
    train(
        *(*DIGITS, "trainer.limit_train_batches=8", "trainer.val_check_interval=4"),
        callbacks=[within := Count()],
    )
    assert within.validations == [4, 8]
    train(
        *(
            *DIGITS,
            "trainer.limit_train_batches=3",
            "trainer.check_val_every_n_epoch=2",
            "trainer.max_epochs=4",
        ),
        callbacks=[every_second := Count()],
    )
    assert every_second.validations == [6, 12]


def test_channels_last(train: Train) -> None:
    small = ("data=digits", "model=small_cnn", "model.widths=[8,16]", "trainer.limit_train_batches=4")
    plain = train(*small, keep_passes=True)
    last = train(*small, "trainer.channels_last=true", keep_passes=True)
    kernels = [p for p in last.module.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    assert kernels
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    assert not any(p.is_contiguous() for p in kernels)
    assert all(one.inputs.is_contiguous(memory_format=torch.channels_last) for one in last.watch.passes)
    for name, value in plain.weights.items():
        torch.testing.assert_close(last.weights[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_compile_computes_the_same_and_keeps_the_names(
    train: Train, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With torch's own backend (which calls a C++ compiler), and with the one that only traces."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    short = (
        "data=digits",
        "model=mlp",
        "model.hidden=[16]",
        "scheduler=none",
        "trainer.limit_train_batches=3",
    )
    plain = train(*short)
    torch._dynamo.utils.counters.clear()
    compiled = train(*short, "trainer.compile=true", "callbacks=[last_checkpoint]")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert list(compiled.checkpoint("last")["state_dict"]) == list(plain.weights)
    for name, value in plain.weights.items():
        torch.testing.assert_close(compiled.weights[name], value, rtol=1e-4, atol=1e-5)
