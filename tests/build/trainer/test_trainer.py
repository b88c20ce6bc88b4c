"""Lightning's trainer as a job's config describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import open_dict

from assay.build.trainer import build_loggers, build_trainer
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.logger.run_csv import RunCSV

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def job(*overrides: str) -> DictConfig:
    return job_config(compose(["data=wine", "device=cpu", "hydra.run.dir=run", *overrides]))


def test_callbacks_and_loggers_are_those_of_the_config(tmp_path: Path) -> None:
    config = job("callbacks=[early_stopping]", "logger=[tensorboard]", "trainer.max_epochs=7")
    trainer = build_trainer(config)
    assert trainer.early_stopping_callback is not None
    assert trainer.early_stopping_callback.mode == "min"
    assert trainer.loggers == []
    assert [type(one).__name__ for one in build_loggers(config)] == ["RunCSV", "TensorBoardLogger"]
    assert trainer.max_epochs == 7
    assert trainer.default_root_dir == "run"
    assert list(tmp_path.iterdir()) == []


def test_a_logger_of_csv_is_not_added_to_one_that_is_there() -> None:
    assert [type(one) for one in build_loggers(job("logger=[csv]"))] == [RunCSV]


@pytest.mark.parametrize(
    ("change", "fine"),
    [
        ({}, False),
        ({"monitor": "val/error"}, True),
        ({"every_n_epochs": 2}, True),
        ({"save_top_k": 3}, False),
    ],
)
def test_callbacks_that_a_checkpoint_could_not_tell_apart(change: dict[str, object], fine: bool) -> None:
    config = job("callbacks=[checkpoint]", "callbacks.checkpoint.mode=force_min")
    with open_dict(config):
        config.callbacks.second = {**config.callbacks.checkpoint, **change}
        config.spec = {"num_classes": 3}
    if fine:
        build_trainer(config)
        return
    with pytest.raises(ConfigError, match=r"callbacks\.second: has the settings of callbacks\.checkpoint"):
        build_trainer(config)
