from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
import torch

from assay.data import placement
from assay.data.placement import device_memory, free_device_memory, free_memory

if TYPE_CHECKING:
    from pathlib import Path

CPU = torch.device("cpu")
TOTAL = psutil.virtual_memory().total


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(placement, "_CGROUP", tmp_path)
    return tmp_path


def limit(cgroup: Path, most: str, used: str = "0") -> None:
    (cgroup / "memory.max").write_text(f"{most}\n")
    (cgroup / "memory.current").write_text(f"{used}\n")


def test_a_container_leaves_what_it_has_not_used(cgroup: Path) -> None:
    limit(cgroup, "5000000", "2000000")
    assert free_memory() == 3_000_000
    assert device_memory(CPU) == 5_000_000


def test_a_container_of_version_1_leaves_what_it_has_not_used(cgroup: Path) -> None:
    (cgroup / "memory").mkdir()
    (cgroup / "memory" / "memory.limit_in_bytes").write_text("5000000\n")
    (cgroup / "memory" / "memory.usage_in_bytes").write_text("2000000\n")
    assert free_memory() == 3_000_000
    assert device_memory(CPU) == 5_000_000
    (cgroup / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # for none
    assert 0 < free_memory() <= device_memory(CPU) == TOTAL


def test_a_container_that_is_over_its_limit_leaves_nothing(cgroup: Path) -> None:
    limit(cgroup, "5000000", "6000000")
    assert free_memory() == 0


@pytest.mark.parametrize("most", ["max", str(TOTAL * 10), "?", None])
def test_without_a_limit_it_is_the_machine(cgroup: Path, most: str | None) -> None:
    if most is not None:
        limit(cgroup, most)
    assert 0 < free_memory() <= TOTAL
    assert device_memory(CPU) == TOTAL


def test_a_device_that_does_not_say() -> None:
    assert device_memory(torch.device("meta")) == 0
    assert free_device_memory(torch.device("meta")) == 0
