from __future__ import annotations

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.build.trainer_options import RUN_ID, num_local_processes, world_size


def job(strategy: str, devices: object, num_nodes: int | None = None) -> DictConfig:
    return OmegaConf.create({"trainer": {"strategy": strategy, "devices": devices, "num_nodes": num_nodes}})


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)


@pytest.mark.parametrize(
    ("strategy", "devices", "processes"),
    [
        ("auto", 4, 1),
        ("auto", "auto", 1),
        ("ddp", 1, 1),
        ("ddp", 3, 3),
        ("ddp", -1, 4),
        ("ddp", "auto", 4),
        ("ddp", [0, 2], 2),
        ("ddp", "0,2,3", 3),
        ("ddp", "2", 2),
        ("ddp_find_unused_parameters_true", 2, 2),
        ("fsdp", 2, 2),
    ],
)
def test_count(strategy: str, devices: object, processes: int) -> None:
    assert num_local_processes(job(strategy, devices)) == processes


def test_a_rank_starts_no_further_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")  # as of torchrun with one process
    assert num_local_processes(job("ddp", 4)) == 4
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", RUN_ID)
    assert num_local_processes(job("ddp", 4)) == 1


def test_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world_size(job("ddp", 2)) == 2
    assert world_size(job("ddp", 2, num_nodes=3)) == 6
    assert world_size(job("auto", 1)) == 1
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert world_size(job("ddp", 2)) == 2
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", RUN_ID)
    assert world_size(job("ddp", 2)) == 16
