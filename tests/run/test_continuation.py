"""What a run that goes on takes over from before."""

from __future__ import annotations

from typing import Any

import lightning as L
import pytest
import torch
from omegaconf import OmegaConf

from assay.build.assembly import Assembly
from assay.record.run_record import RunRecord
from assay.run.continuation import same_logs, threads_of


def record(**fields: Any) -> RunRecord:
    return RunRecord("run", "x", "interrupted", "2026-01-01T00:00:00+00:00", 1, "fingerprint", "", **fields)


def assembly(datamodule: L.LightningDataModule) -> Assembly:
    trainer = L.Trainer(accelerator="cpu", logger=False, barebones=True)
    return Assembly(L.LightningModule(), datamodule, trainer, OmegaConf.create())


def test_a_logger_goes_on_with_the_run_it_knows() -> None:
    config = OmegaConf.create(
        {
            "logger": {
                "mlflow": {"_target_": "lightning.pytorch.loggers.MLFlowLogger"},
                "wandb": {"_target_": "lightning.pytorch.loggers.WandbLogger"},
                "tensorboard": {"_target_": "lightning.pytorch.loggers.TensorBoardLogger"},
            }
        }
    )
    OmegaConf.set_struct(config, True)
    known = {"MLFlowLogger": "0a1b2c", "WandbLogger": "../../else where"}
    same_logs(config, record(loggers=known, resumed=[{"from_step": 7}]))
    assert config.logger.mlflow.run_id == "0a1b2c"
    assert "id" not in config.logger.wandb  # a record could say anything; an id is a short word
    assert config.logger.tensorboard.purge_step == 8


@pytest.mark.parametrize("threads", [2, 0, -1, 5000, "many", None])
def test_threads(threads: Any) -> None:
    before = torch.get_num_threads()
    with threads_of(record(machine={"threads": threads})):
        assert torch.get_num_threads() == (2 if threads == 2 else before)
    assert torch.get_num_threads() == before
