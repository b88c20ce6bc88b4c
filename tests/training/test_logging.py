"""What is in metrics.csv is what happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import pytest
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

if TYPE_CHECKING:
    import lightning as L
    from tests.conftest import Train


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


def test_every_second_step(train: Train) -> None:
    run = train("data=digits", "model=linear", "trainer.limit_train_batches=6", "trainer.log_every_n_steps=2")
    assert run.column("train/loss_step") == pytest.approx(run.watch.losses[1::2])
    steps = [int(row["step"]) for row in run.rows if row["train/loss_step"]]
    assert steps == [2, 4, 6]


@pytest.mark.always("logger=[tensorboard]")
@pytest.mark.parametrize("logger", ["logger=[]", "logger=[tensorboard]"])
def test_csv_is_always_written(train: Train, logger: str) -> None:
    run = train("data=digits", "model=linear", "trainer.limit_train_batches=2", logger)
    assert run.column("test/accuracy") == pytest.approx([run.result.metrics["test/accuracy"]])
