"""Every option of conf/debug does what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from assay.compose.listing import list_options

if TYPE_CHECKING:
    from tests.conftest import Train

DIGITS = ("data=digits", "model=mlp")


def test_every_option_is_tried() -> None:
    assert {option.name for option in list_options("debug")} == {
        "one_batch",
        "overfit",
        "profiler",
        "anomaly",
        "small",
    }


def test_one_batch(train: Train) -> None:
    run = train(
        *DIGITS, "debug=one_batch", "data.eval_batch_size=256", "trainer.max_epochs=1", keep_passes=True
    )
    assert [len(one.inputs) for one in run.watch.passes] == [32, 180, 256]


def test_overfit_learns_one_batch_by_heart(train: Train) -> None:
    run = train(*DIGITS, "debug=overfit", "optimizer.lr=0.01", "trainer.max_epochs=40", keep_passes=True)
    batches = [one.inputs for one in run.watch.passes if one.training]
    assert len(batches) == 40
    assert all(torch.equal(batch, batches[0]) for batch in batches)
    assert run.watch.losses[0] > 2
    assert run.watch.losses[-1] < 0.01


def test_profiler_writes_its_table(train: Train) -> None:
    run = train(*DIGITS, "debug=profiler", "trainer.limit_train_batches=2")
    [table] = run.run_dir.glob("fit-profile*.txt")
    text = table.read_text()
    assert "run_training_batch" in text
    assert "on_train_batch_start" in text


def test_anomaly_names_the_operation(train: Train) -> None:
    run = train(*DIGITS, "debug=anomaly", "trainer.limit_train_batches=2")
    assert run.watch.anomaly is True
    assert run.moved()
    assert train(*DIGITS, "trainer.limit_train_batches=1").watch.anomaly is False


def test_small(train: Train) -> None:
    run = train(*DIGITS, "debug=small", "trainer.max_epochs=2")
    assert len(run.watch.losses) == 20
    assert run.config.spec.total_steps == 20
    assert len(run.column("train/loss_step")) == 20
    assert run.watch.falls()
