from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from omegaconf import DictConfig, OmegaConf

from assay import ranks

if TYPE_CHECKING:
    from pathlib import Path


def job(strategy: str, devices: object, num_nodes: int | None = None) -> DictConfig:
    return OmegaConf.create({"trainer": {"strategy": strategy, "devices": devices, "num_nodes": num_nodes}})


@pytest.fixture(autouse=True)
def no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
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
    assert ranks.count(job(strategy, devices)) == processes


def test_a_rank_starts_no_further_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert ranks.count(job("ddp", 4)) == 1


def test_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ranks.world_size(job("ddp", 2)) == 2
    assert ranks.world_size(job("ddp", 2, num_nodes=3)) == 6
    assert ranks.world_size(job("auto", 1)) == 1
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert ranks.world_size(job("ddp", 2)) == 16


def test_launch_starts_a_process_a_rank_and_tells_how_they_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher itself is real; the ranks are a script that writes down what it is told."""
    script = tmp_path / "rank.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "rank = os.environ['RANK']\n"
        "text = ' '.join(os.environ[n] for n in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'OMP_NUM_THREADS'))\n"
        "(pathlib.Path(sys.argv[4]) / f'rank{rank}').write_text(text)\n"
        "sys.exit(3 if rank == '1' and (pathlib.Path(sys.argv[4]) / 'fail').exists() else 0)\n",
        encoding="utf-8",
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr("torch.get_num_threads", lambda: 6)
    before = os.environ.get("OMP_NUM_THREADS")
    assert ranks.launch(tmp_path, 2) == "finished"
    assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["0 0 2 3", "1 1 2 3"]
    assert os.environ.get("OMP_NUM_THREADS") == before
    (tmp_path / "fail").touch()
    assert ranks.launch(tmp_path, 2) == "failed"
    assert os.environ.get("OMP_NUM_THREADS") == before
