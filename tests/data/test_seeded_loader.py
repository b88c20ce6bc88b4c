"""Custom loaders: against torch's own samplers, and stopped in an epoch."""

from __future__ import annotations

import random
from contextlib import chdir
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, Told, outcome
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

from assay.data.core.seeded_loader import SeededLoader, SeededSamples
from assay.run.resume import resume

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from tests.conftest import Train, Trained


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> int:
        return index


DATA = Numbers()


def trainer(rank: int = 0, world_size: int = 1, epoch: int = 0, done: int = 0, overfit: int = 0) -> Any:
    progress = SimpleNamespace(current=SimpleNamespace(ready=done))
    return SimpleNamespace(
        global_rank=rank,
        world_size=world_size,
        current_epoch=epoch,
        overfit_batches=overfit,
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
    )


def batches(loader: DataLoader[Any], seed: int = 0, **position: int) -> list[list[int]]:
    seeded = SeededLoader(loader, seed, trainer(**position))
    assert seeded.exact
    assert not seeded.note
    found = [batch.tolist() for batch in seeded]
    assert len(seeded) == len(found) + position.get("done", 0)
    return found


class Noisy(Numbers):
    """Draws from a generator of its own, or from the global one."""

    def __init__(self, generator: np.random.Generator | None) -> None:
        self.generator = generator

    def __getitem__(self, index: int) -> Any:
        return np.random.normal() if self.generator is None else self.generator.normal()


def test_samples_that_cannot_be_read_again_are_noted() -> None:
    apart = DataLoader(Noisy(np.random.default_rng(0)), shuffle=True)
    note = SeededLoader(apart, 0, trainer()).note
    assert note.startswith("a sample of Noisy differs when it is read again")
    assert not SeededLoader(DataLoader(Noisy(None), shuffle=True), 0, trainer()).note


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_divide_the_samples_as_torch_does(world_size: int, drop_last: bool) -> None:
    loader = DataLoader(DATA, batch_size=3, drop_last=drop_last)
    for rank in range(world_size):
        sampler: DistributedSampler[int] = DistributedSampler(DATA, world_size, rank, shuffle=False)
        expected = list(DataLoader(DATA, batch_size=3, drop_last=drop_last, sampler=sampler))
        found = batches(loader, rank=rank, world_size=world_size)
        assert found == [batch.tolist() for batch in expected]


def test_shuffled_ranks_have_no_sample_in_common() -> None:
    loader = DataLoader(DATA, batch_size=3, shuffle=True)
    first, second = (batches(loader, rank=rank, world_size=2, epoch=1) for rank in (0, 1))
    assert sorted(sum(first + second, start=[])) == list(range(22))  # noqa: RUF017 - short


def test_whole_batches_of_a_batch_sampler_are_divided() -> None:
    loader = DataLoader(DATA, batch_sampler=list(BatchSampler(range(22), 2, False)))
    ranks = [batches(loader, rank=rank, world_size=2) for rank in (0, 1)]
    assert ranks[0][:2] == [[0, 1], [4, 5]]
    assert ranks[1][:2] == [[2, 3], [6, 7]]
    assert len(ranks[0]) == len(ranks[1]) == 6


def test_a_sampler_that_divides_is_left_to_it() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 2, 1, seed=4)
    found = batches(DataLoader(DATA, batch_size=4, sampler=sampler), rank=1, world_size=2, epoch=3)
    sampler.set_epoch(3)
    assert found == [batch.tolist() for batch in DataLoader(DATA, batch_size=4, sampler=sampler)]


def test_order_is_a_function_of_seed_and_epoch() -> None:
    loader = DataLoader(DATA, batch_size=4, shuffle=True)
    torch.manual_seed(1)
    first = batches(loader, seed=7, epoch=2)
    torch.manual_seed(2)
    assert batches(loader, seed=7, epoch=2) == first
    assert batches(loader, seed=7, epoch=2, done=2) == first[2:]
    assert batches(loader, seed=8, epoch=2) != first != batches(loader, seed=7, epoch=3)


def test_a_fixed_generator_wins_over_the_seed_of_the_run() -> None:
    def loader() -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(3)
        return DataLoader(DATA, batch_size=4, shuffle=True, generator=generator)

    assert batches(loader(), seed=0) == batches(loader(), seed=1) != batches(loader(), seed=0, epoch=1)


def test_overfitting_takes_the_first_samples_in_their_order() -> None:
    loader = DataLoader(DATA, batch_size=4, shuffle=True)
    assert batches(loader, overfit=2)[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]


Keys = list[tuple[tuple[int, ...], Any]]


class Drawing:
    """Draws from all three generators, a sample at a time."""

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return (index, random.random(), float(np.random.rand()), float(torch.rand(())))


def test_a_sample_is_the_same_in_any_order() -> None:
    samples = SeededSamples(Drawing())
    keys: Keys = [((1, 2, index), index) for index in range(6)]
    forwards = [samples[key] for key in keys]
    assert [samples[key] for key in reversed(keys)][::-1] == forwards
    assert samples.__getitems__(keys) == forwards
    assert len({one[1:] for one in forwards}) == 6


PROJECT = Path(__file__).parents[1] / "training" / "project"

EXACT = {
    "shuffle": 6,
    "drop_last": 5,
    "generator": 6,
    "weighted": 5,
    "batch_sampler": 11,
    "distributed": 6,
    "subset": 5,
    "one_by_one": 22,
    "two": 6,
}
"""Batches an epoch of each kind of loader whose order is a function of the seed."""

USUAL = ("shuffle", "one_by_one")
WHOLE_EPOCHS = {"stream": 6, "remembering": 6, "batches": 6}


@pytest.fixture(autouse=True)
def own_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))


def job(kind: str, *more: str) -> tuple[str, ...]:
    return (
        *("data=shuffled", "experiment=counted", f"data.kind={kind}", "trainer.max_epochs=3"),
        *("callbacks=[checkpoint,last_checkpoint,lr_monitor]", *more),
    )


def run(train: Train, *words: str, callbacks: tuple[Callback, ...] = ()) -> tuple[Trained, list[list[int]]]:
    """A run, and the samples of each of its steps."""
    trained: list[list[int]] = import_module("own_project.shuffled").TRAINED
    trained.clear()
    return train(*words, callbacks=callbacks, config_dir=PROJECT / "conf"), list(trained)


def resumed(run_dir: Path) -> list[list[int]]:
    """The samples of each step of a run that goes on."""
    trained: list[list[int]] = import_module("own_project.shuffled").TRAINED
    trained.clear()
    with chdir(run_dir.parent), unchanged_process():
        assert resume(run_dir, trusted_packages=["own_project"]).status == "finished"
    return list(trained)


@pytest.mark.parametrize(
    "kind", [*USUAL, *(pytest.param(kind, marks=pytest.mark.long) for kind in EXACT if kind not in USUAL)]
)
def test_a_stopped_run_trains_the_samples_it_had_still_to_train(train: Train, kind: str) -> None:
    whole, steps = run(train, *job(kind))
    batches = EXACT[kind]
    assert len(steps) == 3 * batches
    epochs = [steps[start : start + batches] for start in range(0, len(steps), batches)]
    assert epochs[0] != epochs[1] != epochs[2], "each epoch has an order of its own"
    if kind in ("shuffle", "generator", "batch_sampler", "distributed", "one_by_one"):
        assert all(sorted(chain(*epoch)) == list(range(22)) for epoch in epochs)

    workers = list(EXACT).index(kind) % 3  # none, one or two, and the result is that of none
    stopped, before = run(
        train,
        *job(kind, f"data.num_workers={workers}", f"data.persistent={workers == 2}"),
        callbacks=(Told(batches + 2),),
    )
    assert stopped.record["signal"] == "SIGTERM"
    assert before == steps[: batches + 3]
    assert resumed(stopped.run_dir) == steps[batches + 3 :]
    assert outcome(stopped.run_dir) == outcome(whole.run_dir)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["shuffle", "batch_sampler", "two"])
@pytest.mark.parametrize("workers", [0, 2])
def test_stopped_anywhere_it_trains_each_sample_once(train: Train, kind: str, workers: int) -> None:
    words = job(kind, f"data.num_workers={workers}", "callbacks.last_checkpoint.every_n_train_steps=1")
    whole, steps = run(train, *words)
    for count in range(1, len(steps)):
        broken, before = run(train, *words, callbacks=(Interrupt("batch", count),))
        assert before + resumed(broken.run_dir) == steps, count
        assert outcome(broken.run_dir) == outcome(whole.run_dir), count


@pytest.mark.always("stream")
@pytest.mark.parametrize("kind", WHOLE_EPOCHS)
def test_what_can_only_be_read_from_its_beginning_goes_on_at_an_epoch(
    train: Train, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    words = job(kind, "data.num_workers=2", "data.persistent=true", "trainer.val_check_interval=3")
    batches = WHOLE_EPOCHS[kind]
    whole, steps = run(train, *words)
    assert len(steps) == 3 * batches
    assert "resumes from the start of the epoch" in caplog.text
    stopped, before = run(train, *words, callbacks=(Told(batches + 3),))
    assert before[:batches] == steps[:batches]
    assert len(before) == batches + 4
    after = resumed(stopped.run_dir)
    assert len(after) == 2 * batches, "the epoch it was in is done anew, from the weights it began with"
    assert all(sorted(chain(*after[at : at + batches])) == list(range(22)) for at in (0, batches))
    if kind != "remembering":  # the order of its epochs depends on what it was asked before
        assert after == steps[batches:]
        assert outcome(stopped.run_dir) == outcome(whole.run_dir)


def test_stopped_in_its_first_epoch_a_stream_begins_anew(train: Train) -> None:
    stopped, before = run(train, *job("stream"), callbacks=(Told(2),))
    assert len(before) == 3
    assert len(resumed(stopped.run_dir)) == 3 * WHOLE_EPOCHS["stream"]
