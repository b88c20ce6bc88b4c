"""What is in metrics.csv is what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.loop.test_micro_batch import Room
from torch.nn.functional import cross_entropy
from typing_extensions import override

from assay.run.resume import resume

if TYPE_CHECKING:
    import lightning as L
    from tests.conftest import Train, Trained


@final
class Logged(Callback):
    """Takes down the metrics of each validation and of the test."""

    def __init__(self) -> None:
        self.val: list[dict[str, float]] = []
        self.test: dict[str, float] = {}

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.val.append(self._of("val/", trainer))

    @override
    def on_test_end(self, trainer: L.Trainer, pl_module: Any) -> None:
        self.test = self._of("test/", trainer)

    @staticmethod
    def _of(stage: str, trainer: L.Trainer) -> dict[str, float]:
        return {
            name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith(stage)
        }


def test_rows_are_what_was_logged(train: Train) -> None:
    run = train(
        *("data=digits", "model=linear", "trainer.max_epochs=3", "trainer.limit_train_batches=5"),
        callbacks=[logged := Logged()],
    )
    rows = run.rows
    assert list(rows[0])[:2] == ["epoch", "step"]
    val = [row for row in rows if row["val/loss"]]
    assert [{name: float(row[name]) for name in logged.val[0]} for row in val] == [
        {name: pytest.approx(value, rel=1e-6) for name, value in epoch.items()} for epoch in logged.val
    ]
    assert [(row["epoch"], row["step"]) for row in val] == [("1", "4"), ("2", "9"), ("3", "14")]
    test = [row for row in rows if row["test/loss"]]
    assert [{name: float(row[name]) for name in logged.test} for row in test] == [pytest.approx(logged.test)]
    assert logged.test == pytest.approx(
        {n: v for n, v in run.result.metrics.items() if n.startswith("test/")}
    )
    # Each step's loss, and once per epoch the mean of them: all batches are of one size.
    losses = run.watch.losses
    assert run.column("train/loss_step") == pytest.approx(losses)
    means = [sum(losses[start : start + 5]) / 5 for start in (0, 5, 10)]
    assert run.column("train/loss") == pytest.approx(means, rel=1e-5)
    assert run.record["metrics"]["train/loss"] == pytest.approx(means[-1], rel=1e-5)


@final
class Losses(Callback):
    """Sums the losses of all samples of each batch, with the weights of its step; raises where told to."""

    def __init__(self, stop_before: int = -1) -> None:
        self.stop_before = stop_before
        self.epochs: list[list[tuple[float, int]]] = []

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.epochs.append([])

    @override
    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == self.stop_before:
            raise KeyboardInterrupt
        inputs, targets = batch
        pl_module.eval()  # `Room` is for training alone
        with torch.no_grad():
            loss = cross_entropy(pl_module(inputs), targets, reduction="sum")
        pl_module.train()
        self.epochs[-1].append((float(loss), len(targets)))

    def means(self, accumulate: int) -> list[float]:
        steps = [
            epoch[start : start + accumulate]
            for epoch in self.epochs
            for start in range(0, len(epoch), accumulate)
        ]
        return [sum(loss for loss, _ in step) / sum(size for _, size in step) for step in steps]


ACCUMULATING = (
    *("data=digits", "model=linear", "data.batch_size=300", "data.drop_last=false", "trainer.max_epochs=2"),
    *("optimizer=sgd", "scheduler=warmup_cosine", "callbacks=[lr_monitor]"),
)
"""Five batches an epoch, the last of which is smaller."""


def logged(run: Trained, name: str) -> list[tuple[int, float]]:
    return [(int(row["step"]), float(row[name])) for row in run.rows if row.get(name)]


@pytest.mark.always("3-null-1", "2-auto-2")
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize(
    ("accumulate", "pieces"), [(1, "null"), (2, "null"), (3, "null"), (5, "null"), (2, "100"), (2, "auto")]
)
def test_the_loss_of_a_step_is_the_mean_over_its_samples(
    train: Train, accumulate: int, pieces: str, every: int
) -> None:
    run = train(
        *(*ACCUMULATING, f"trainer.accumulate_grad_batches={accumulate}", f"trainer.micro_batch={pieces}"),
        f"trainer.log_every_n_steps={every}",
        callbacks=[losses := Losses(), *([Room(100, at=3)] if pieces == "auto" else [])],
    )
    assert len({size for _, size in losses.epochs[0]}) == 2
    steps = list(enumerate(losses.means(accumulate), 1))
    expected = [pytest.approx(loss, rel=1e-5) for _, loss in steps[every - 1 :: every]]
    assert [step for step, _ in logged(run, "train/loss_step")] == [
        step for step, _ in steps[every - 1 :: every]
    ]
    assert [loss for _, loss in logged(run, "train/loss_step")] == expected
    rates = [lr for (lr,) in run.watch.lrs]
    steps_before = logged(run, "lr-SGD/default")
    assert [step for step, _ in steps_before] == [step - 1 for step, _ in steps[every - 1 :: every]]
    assert [lr for _, lr in steps_before] == pytest.approx(rates[every - 1 :: every])


@pytest.mark.always("4")
@pytest.mark.parametrize("stop_before", [3, 4])
def test_a_resumed_step_counts_the_batches_before_the_checkpoint(train: Train, stop_before: int) -> None:
    typed = (
        *(*ACCUMULATING, "callbacks=[lr_monitor,checkpoint]", "trainer.accumulate_grad_batches=3"),
        *("trainer.val_check_interval=2", "trainer.log_every_n_steps=1"),
    )
    whole = train(*typed)
    stopped = train(*typed, callbacks=[Losses(stop_before)], raise_errors=False)
    assert stopped.record["status"] == "interrupted"
    resume(stopped.run_dir)
    assert stopped.rows == whole.rows
