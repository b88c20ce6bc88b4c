"""What an override changes in a run that has begun, and what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict
from tests.run.test_interpolations import SPEC

from assay.compose.compose import compose, job_config
from assay.config.serialize import known, to_yaml
from assay.run.resume import Change, change
from assay.run.saved_config import interpolations


@pytest.fixture(scope="module")
def run() -> tuple[DictConfig, dict[str, str]]:
    """The config of a run directory, and what is on record of it."""
    config = job_config(
        compose(
            [
                "data=iris",
                "model=linear",
                "scheduler=onecycle",
                "hydra.run.dir=run",
                "+mine.lr=1",
                "tags=[${mine.lr}]",
            ]
        )
    )
    written = interpolations(config)
    with open_dict(config):
        config.spec = SPEC
    read: Any = OmegaConf.create(to_yaml(known(config)))
    return read, written


def changed(run: tuple[DictConfig, dict[str, str]], *overrides: str) -> Change:
    return change(Path("moved"), run[0].copy(), run[1], overrides)


def test_what_refers_to_a_changed_value_follows_it(run: tuple[DictConfig, dict[str, str]]) -> None:
    rate = run[0].optimizer.lr
    job = changed(run, "optimizer.lr=0.5")
    assert job.config.scheduler.max_lr == 0.5
    assert job.changed == {"optimizer.lr": (rate, 0.5), "scheduler.max_lr": (rate, 0.5)}


def test_what_was_asked_of_the_data_and_is_now_given_is_told(run: tuple[DictConfig, dict[str, str]]) -> None:
    job = changed(run, "scheduler.total_steps=99")
    assert job.changed == {"scheduler.total_steps": (3, 99)}
    assert job.notes == ["scheduler.total_steps: 3 until here, 99 from here on"]


def test_what_the_length_of_the_run_decides_is_told(run: tuple[DictConfig, dict[str, str]]) -> None:
    epochs = run[0].trainer.max_epochs
    job = changed(run, f"trainer.max_epochs={epochs + 1}")
    assert job.changed == {"trainer.max_epochs": (epochs, epochs + 1), "scheduler.total_steps": (3, None)}
    assert "decides scheduler.total_steps (${spec.total_steps})" in job.notes[1]
