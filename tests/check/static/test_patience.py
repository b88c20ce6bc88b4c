"""Patience that cannot run out is said before training and after it: of just these runs, none else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.check.job import check_job
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config

if TYPE_CHECKING:
    from tests.conftest import Train

IRIS = ("data=iris", "model=linear", "data.batch_size=12", "data.drop_last=true", "device=cpu")
"""Eight batches an epoch."""
NO_BETTER = "callbacks.early_stopping.min_delta=100"
STOP = ("callbacks=[early_stopping]", NO_BETTER, "callbacks.early_stopping.patience=2")
PLATEAU = (
    *("scheduler=plateau", "scheduler.threshold=100", "+scheduler.threshold_mode=abs"),
    *("scheduler.patience=2", "optimizer.lr=0.01"),
)


@pytest.fixture(scope="module")
def prover() -> Prover:
    return Prover()


@pytest.mark.always("trainer.max_epochs=3-True", "trainer.max_epochs=2-False")
@pytest.mark.parametrize(
    ("typed", "reached"),
    [
        ("trainer.max_epochs=3", True),
        ("trainer.max_epochs=2", False),
        ("trainer.max_epochs=5 trainer.check_val_every_n_epoch=2", False),
        pytest.param("trainer.max_epochs=6 trainer.check_val_every_n_epoch=2", True, marks=pytest.mark.long),
        pytest.param("trainer.max_epochs=1 trainer.val_check_interval=3", False, marks=pytest.mark.long),
        ("trainer.max_epochs=1 trainer.val_check_interval=0.25", True),
        pytest.param(
            "trainer.max_epochs=2 callbacks.early_stopping.patience=0", True, marks=pytest.mark.long
        ),
        ("trainer.max_epochs=1 callbacks.early_stopping.patience=0", False),
    ],
)
def test_early_stopping(train: Train, prover: Prover, typed: str, reached: bool) -> None:
    words = (*IRIS, *STOP, *typed.split())
    job = job_config(compose(words))
    check_job(job)
    warned = [one for one in prover.prove(job).report.warnings if "patience" in one]
    assert bool(warned) is not reached, warned
    said = (train(*words).run_dir / "log.txt").read_text()
    assert ("stopped early" in said) is reached
    assert ("early stopping changed nothing: it looked at val/loss" in said) is not reached


@pytest.mark.always(
    "trainer.max_epochs=2 scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4-True"
)
@pytest.mark.parametrize(
    ("typed", "reached"),
    [
        pytest.param("trainer.max_epochs=4", True, marks=pytest.mark.long),
        ("trainer.max_epochs=3", False),
        ("trainer.max_epochs=7 scheduler.frequency=2", False),
        pytest.param("trainer.max_epochs=8 scheduler.frequency=2", True, marks=pytest.mark.long),
        (
            "trainer.max_epochs=2 scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4",
            True,
        ),
        pytest.param(
            "trainer.max_epochs=1 scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4",
            False,
            marks=pytest.mark.long,
        ),
    ],
)
def test_plateau(train: Train, prover: Prover, typed: str, reached: bool) -> None:
    words = (*IRIS, *PLATEAU, *typed.split())
    job = job_config(compose(words))
    check_job(job)
    warned = [one for one in prover.prove(job).report.warnings if "patience" in one]
    assert bool(warned) is not reached, warned
    run = train(*words)
    rate = run.trainer.optimizers[0].param_groups[0]["lr"]
    assert (rate < 0.01) is reached
    assert ("the schedule changed nothing" in (run.run_dir / "log.txt").read_text()) is not reached
