"""Reading a job's data, and what it tells the rest of the config; for declared data see tests/data."""

from __future__ import annotations

from typing import Any

import lightning as L
import pytest
from omegaconf import OmegaConf

from assay.build import datamodule as opening
from assay.build.datamodule import describe, open_data
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError, DataError


class Broken(L.LightningDataModule):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def setup(self, stage: str) -> None:
        del stage
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (KeyError("label"), DataError, "data: reading it fails: KeyError: 'label'"),
        (
            ValueError("row 3 is empty"),
            DataError,
            "data: reading it fails: ValueError: row 3 is empty",
        ),
        (DataError("no file"), DataError, "no file"),
        (MemoryError(), MemoryError, ""),
    ],
)
def test_an_error_of_reading_is_one_of_the_data(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], says: str
) -> None:
    monkeypatch.setattr(opening, "build", lambda *_: Broken(error))
    with pytest.raises(kind) as caught:
        open_data(OmegaConf.create({"seed": 0, "data": {"_target_": "my_project.Data"}}))
    assert str(caught.value).startswith(says)


def test_the_data_is_described_in_the_config() -> None:
    config = job_config(compose(["data=iris", "data.batch_size=16", "trainer.max_epochs=4", "device=cpu"]))
    opened: Any = open_data(config)
    describe(config, opened.spec)
    assert config.spec.num_classes == 3
    assert config.spec.steps_per_epoch == len(opened.train_dataloader())
    assert config.spec.total_steps == 4 * config.spec.steps_per_epoch


def test_data_that_tells_nothing_is_for_a_module_of_ones_own() -> None:
    config = job_config(compose(["data=iris", "device=cpu"]))
    with pytest.raises(ConfigError, match="data: a datamodule needs a `spec` attribute"):
        describe(config, None)
    config.module._target_ = "my.Gan"
    describe(config, None)
    assert "spec" not in config
