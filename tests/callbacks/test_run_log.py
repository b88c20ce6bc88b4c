"""What log.txt and the screen say of a run, against what its metrics.csv says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Train, Trained

SMALL = ("data=iris", "model=linear", "scheduler=none")
BAR = "callbacks=[checkpoint,last_checkpoint,progress_bar]"


def said(run: Trained) -> str:
    return (run.run_dir / "log.txt").read_text()


def epochs(run: Trained) -> list[tuple[int, float]]:
    """Number and validation loss of each epoch's line in the log."""
    found = re.findall(r"epoch +(\d+)(?:/\d+)? .*val loss ([\d.e+-]+)", said(run))
    return [(int(number), float(loss)) for number, loss in found]


@pytest.mark.parametrize("callbacks", [BAR, "callbacks=[last_checkpoint]"])
def test_every_epoch_has_its_line_in_the_log(train: Train, callbacks: str) -> None:
    run = train(*SMALL, callbacks, "trainer.max_epochs=12")
    lines = epochs(run)
    assert [number for number, _ in lines] == list(range(1, 13))
    rows = [row for row in run.rows if row["val/loss"]]
    assert [int(row["epoch"]) for row in rows] == list(range(1, 13)), "as on the screen"
    for (_, shown), row in zip(lines, rows, strict=True):
        assert shown == pytest.approx(float(row["val/loss"]), abs=1e-4)
    (test,) = [row for row in run.rows if row["test/loss"]]
    assert test["epoch"] == "12"
    assert re.search(r"test +[\d.]+s +test .*accuracy", said(run))


def test_an_early_stop_is_said(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    stop = ("callbacks=[early_stopping,progress_bar]", "callbacks.early_stopping.patience=2")
    run = train(*SMALL, *stop, "callbacks.early_stopping.min_delta=100", "trainer.max_epochs=9")
    best = run.column("val/loss")[0]
    text = f"stopped early: val/loss was no better than {best:.4g} for 2 validations"
    assert text in said(run)
    assert text in capsys.readouterr().out
    assert len(epochs(run)) == 3


def test_a_lowered_learning_rate_is_said(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    plateau = ("scheduler=plateau", "scheduler.patience=1", "scheduler.threshold=100", "optimizer.lr=0.1")
    never = ("+scheduler.threshold_mode=abs", "scheduler.factor=0.5")
    run = train(*SMALL[:2], *plateau, *never, "trainer.max_epochs=4")
    assert "learning rate 0.1 -> 0.05 after epoch 3: val/loss was no better than" in said(run)
    assert "learning rate 0.1 -> 0.05 after epoch 3" in capsys.readouterr().out
    steps = ("scheduler=step", "scheduler.step_size=2", "optimizer.lr=0.1")
    run = train(*SMALL[:2], *steps, "trainer.max_epochs=5")
    assert "learning rate 0.1 -> 0.01 after epoch 2: StepLR" in said(run)
    assert "learning rate 0.01 -> 0.001 after epoch 4: StepLR" in said(run)


def test_a_schedule_that_is_over_is_said(train: Train) -> None:
    run = train(*SMALL[:2], "scheduler=polynomial", "scheduler.total_iters=3", "trainer.max_epochs=4")
    assert said(run).count("the schedule (PolynomialLR) was over after 3 steps, and training goes on") == 1
    assert "the learning rate is 0; the weights do not change any more" in said(run)
