"""A run that a limit cut off within an epoch, trained longer, ends as one of that length, bit for bit."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from tests.interrupting import outcome
from tests.loop.small_fit import Line, batches, by_hand, fit, same_weights
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from typing_extensions import override

from assay.errors import AssayError
from assay.run.resume import resume

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import lightning as L
    from tests.conftest import Train

JOB = (
    *("data=iris", "model=mlp", "data.batch_size=16", "scheduler=none", "baseline=none", "optimizer.lr=0.01"),
    *("trainer.max_epochs=3", "callbacks=[checkpoint,last_checkpoint,lr_monitor]"),
)
KINDS = {
    "plain": (),
    "accumulating": ("trainer.accumulate_grad_batches=2",),
    "validations": ("trainer.val_check_interval=2", "scheduler=plateau", "scheduler.patience=0"),
    "each_step": ("scheduler=step", "scheduler.step_size=2", "scheduler.interval=step"),
    "average": ("callbacks=[checkpoint,last_checkpoint,ema]", "callbacks.ema.decay=0.9"),
}


def same_training(one: Path, other: Path) -> bool:
    """All but what the shorter run, which is validated at its end, has shown and saved there."""
    names = ("state_dict", "optimizer_states", "lr_schedulers")
    first, second = outcome(one), outcome(other)
    return rows(one) == rows(other) and all(first.get(name) == second.get(name) for name in names)


def rows(run_dir: Path) -> list[dict[str, str]]:
    """Of training."""
    with (run_dir / "metrics.csv").open(newline="") as file:
        every = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]
    return [row for row in every if not any(name.startswith(("val/", "test/")) for name in row)]


@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_end_as_a_run_of_that_length(train: Train, kind: str) -> None:
    """An epoch has seven batches."""
    job = (*JOB, *KINDS[kind])
    whole = train(*job, "trainer.max_steps=6").run_dir
    cut = train(*job, "trainer.max_steps=3").run_dir
    assert not same_training(whole, cut)
    assert resume(cut, ["trainer.max_steps=6"]).status == "finished"
    assert same_training(whole, cut)


def test_more_epochs_after_an_early_stop_within_one(train: Train) -> None:
    job = (*JOB, "trainer.val_check_interval=2", "callbacks=[checkpoint,last_checkpoint,early_stopping]")
    stop = ("callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=1.0")
    whole = train(*job, "callbacks.early_stopping.patience=100", stop[1]).run_dir
    cut = train(*job, *stop).run_dir
    with pytest.raises(AssayError, match="early stopping ended this run") as refused:
        resume(cut, ["trainer.max_epochs=5"])
    assert "callbacks.early_stopping.patience=" in str(refused.value.hint)
    result = resume(cut, ["callbacks.early_stopping.patience=100"])
    assert result.status == "finished"
    assert same_training(whole, cut)


class Stops(Callback):
    """Asks for the end of training after some steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    @override
    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.should_stop or trainer.global_step == self.step


@pytest.mark.parametrize("limit", [{"max_steps": 2}, {"callbacks": Stops(2)}])
def test_the_rest_of_the_epoch_is_trained(tmp_path: Path, limit: dict[str, Any]) -> None:
    options = dict(limit)
    stops = [options.pop("callbacks")] if "callbacks" in options else []
    trainer = fit(Line(), *stops, **options, max_epochs=2)
    assert trainer.current_epoch == 1, "as Lightning has it"
    trainer.save_checkpoint(tmp_path / "cut.ckpt")
    module = Line()
    seen: list[tuple[int, int]] = []
    module.on_train_batch_start = lambda _, index: seen.append((module.current_epoch, index))  # type: ignore[method-assign]
    resumed = fit(module, ckpt_path=tmp_path / "cut.ckpt", max_epochs=2)  # a plain loader begins anew
    assert resumed.global_step == (2 if stops else 12)
    assert seen == ([] if stops else [(0, 2), (0, 3), (0, 4), (0, 5), *((1, batch) for batch in range(6))])
    assert not stops or same_weights(module, by_hand(2))


def test_a_step_of_fewer_batches_is_their_mean() -> None:
    """Six batches, four a step: two are left for the last one."""
    module, reference = Line(), Line()
    optimizer: Any = reference.configure_optimizers()
    for window in (range(4), range(4, 6)):
        losses = []
        for inputs, targets in [batch for index, batch in enumerate(batches()) if index in window]:
            losses.append(nn.functional.mse_loss(reference.net(inputs), targets))
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()  # type: ignore[no-untyped-call]  # torch left it untyped
        optimizer.step()
    expected = reference.state_dict()
    for data in (batches(), _Endless()):
        module = Line()
        assert fit(module, train=data, accumulate_grad_batches=4).global_step == 2
        for name, value in module.state_dict().items():
            assert torch.allclose(value, expected[name], atol=1e-6, rtol=0)


class _Endless:
    """Batches of unknown number."""

    def __iter__(self) -> Iterator[Any]:
        yield from batches()


class Stream(IterableDataset[Any]):
    """Counts how often it is read."""

    opened = 0

    @override
    def __iter__(self) -> Iterator[Any]:
        Stream.opened += 1
        yield from batches()


def test_a_stream_is_opened_once_when_a_run_goes_on(tmp_path: Path) -> None:
    fit(Line(), train=DataLoader(Stream(), batch_size=None)).save_checkpoint(tmp_path / "end.ckpt")
    Stream.opened = 0
    resumed = fit(
        Line(), train=DataLoader(Stream(), batch_size=None), max_epochs=2, ckpt_path=tmp_path / "end.ckpt"
    )
    assert (resumed.global_step, Stream.opened) == (12, 1)


class Passes:
    """Orders its batches by the number of its pass, which is its state."""

    def __init__(self) -> None:
        self.passes = 0
        self.orders: list[int] = []

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Iterator[Any]:
        self.orders.append(self.passes)
        self.passes += 1
        yield from batches()

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


@pytest.mark.parametrize("saver", [None, ModelCheckpoint])
def test_a_loader_goes_on_from_its_own_state(tmp_path: Path, saver: Any) -> None:
    def savers() -> list[Callback]:
        return [] if saver is None else [saver(dirpath=tmp_path, filename="end")]

    path, saves = tmp_path / "end.ckpt", saver is not None
    first = fit(Line(), *savers(), train=Passes(), enable_checkpointing=saves)
    if not saves:
        first.save_checkpoint(path)
    loader = Passes()
    fit(Line(), *savers(), train=loader, max_epochs=3, ckpt_path=path, enable_checkpointing=saves)
    assert loader.orders == [1, 2]


def test_the_epoch_is_known_when_training_starts_again(tmp_path: Path) -> None:
    saver = ModelCheckpoint(dirpath=tmp_path, filename="end")
    fit(Line(), saver, enable_checkpointing=True)
    module, seen = Line(), []
    module.on_train_start = lambda: seen.append((module.current_epoch, module.global_step))  # type: ignore[method-assign]
    saver = ModelCheckpoint(dirpath=tmp_path, filename="end")
    path = tmp_path / "end.ckpt"
    trainer = fit(module, saver, max_epochs=2, ckpt_path=path, enable_checkpointing=True)
    assert trainer.current_epoch == 2
    assert seen == [(1, 6)]


class Saves(Callback):
    """Saves in the middle of a step."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @override
    def on_before_optimizer_step(self, trainer: L.Trainer, *_: Any) -> None:
        trainer.save_checkpoint(self.path)


def test_a_checkpoint_of_half_a_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "half.ckpt"
    fit(Line(), Saves(path))
    with pytest.raises(AssayError, match="holds no position to continue from"):
        fit(Line(), max_epochs=2, ckpt_path=path)
