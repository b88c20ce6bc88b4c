"""Processes are killed while they save in shards: a whole checkpoint is always there, as new as promised."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import psutil
import pytest
import torch
from tests.device.saving_ranks import SHAPE
from tests.forks import Forks

from assay.checkpoint.checkpoint_file import find_newest_checkpoint
from assay.record.run_directory import remove_unfinished_files
from assay.run.predictor import read_weights

if TYPE_CHECKING:
    from pathlib import Path


def wait_for_ranks(forks: Forks, place: Path) -> list[psutil.Process]:
    end = time.monotonic() + 120
    while len(found := list(place.glob("pid*"))) < 2:
        assert time.monotonic() < end
        assert not forks.has_ended()
        time.sleep(0.005)
    return [psutil.Process(int(path.name.partition("-")[2])) for path in sorted(found)]


def kill_once(forks: Forks, place: Path, chance: random.Random, first: int) -> int:
    """Kill one rank or both while they save; the step that the run goes on from."""
    for path in place.glob("pid*"):
        path.unlink()
    remove_unfinished_files(place / "run")  # as a run does that goes on
    forks.start(str(first), cwd=place, module="tests.device.saving_ranks")
    ranks = wait_for_ranks(forks, place)
    before, end = (place / "durable").read_text() if first > 1 else "", time.monotonic() + 120
    while not (place / "durable").is_file() or (place / "durable").read_text() == before:
        assert time.monotonic() < end, (place / "output.txt").read_text()
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.1))
    for rank in chance.choice([ranks, ranks[:1], ranks[1:]]):
        rank.kill()
    forks.wait()
    psutil.wait_procs(ranks, timeout=60)
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
    found = find_newest_checkpoint(place / "run")
    assert found.path is not None
    assert not found.refused, found.refused
    assert found.step >= int((place / "durable").read_text())
    for path in (place / "run" / "checkpoints").glob("*.ckpt"):
        weight = read_weights(path)["weight"]
        assert torch.equal(weight, weight[0, 0].expand(SHAPE)), path
    assert float(read_weights(found.path)["weight"][0, 0]) == found.step
    return found.step


@pytest.mark.parametrize("kills", [2, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3000)])])
def test_a_checkpoint_is_always_whole(tmp_path: Path, kills: int) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    chance, step, unfinished = random.Random(kills), 0, 0
    with Forks(GLOO_SOCKET_IFNAME="lo") as forks:
        for _ in range(kills):
            step = kill_once(forks, tmp_path, chance, step + 1)
            unfinished += any((tmp_path / "run" / "checkpoints").glob(".*.tmp"))
    print(f"{kills} kills, {unfinished} of them within a save, up to step {step}")
    assert unfinished >= kills // 4  # so many were in the midst of one
