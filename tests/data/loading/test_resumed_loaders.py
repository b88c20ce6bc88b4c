"""Somebody's own LightningDataModule, stopped in an epoch: no sample is lost, and none trained twice."""

from __future__ import annotations

from contextlib import chdir
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, Told, outcome

from assay.run.resume import resume

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback
    from tests.conftest import Train, Trained

PROJECT = Path(__file__).parents[2] / "training" / "project"
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
    assert "goes on from the start of the epoch it was in" in caplog.text
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


def test_a_data_set_with_a_generator_of_its_own_is_told(
    train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    run(train, *job("restless", "trainer.max_epochs=1"))
    assert "Restless gives another sample when asked for the same one again" in caplog.text


def test_another_order_than_before_is_refused(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, _ = run(train, *job("batch_sampler"), callbacks=(Told(3),))
    pairs = import_module("own_project.shuffled").Pairs
    monkeypatch.setattr(pairs, "__iter__", lambda _: iter([[n, n + 1] for n in range(0, 22, 2)]))
    with (
        chdir(stopped.run_dir.parent),
        unchanged_process(),
        pytest.raises(Exception, match="gives another order than when the run was stopped"),
    ):
        resume(stopped.run_dir, trusted_packages=["own_project"])
