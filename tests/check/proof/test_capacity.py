from __future__ import annotations

import lightning as L
import pytest

from assay.check import fake_step
from assay.check.fake_step import Memory, check_capacity
from assay.errors import ConfigError

GIB = 1 << 30


@pytest.fixture
def trainer() -> L.Trainer:
    return L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=False)


@pytest.fixture(autouse=True)
def _ten_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_step, "device_memory", lambda _: 10 * GIB)


def test_what_fits_is_not_mentioned(trainer: L.Trainer) -> None:
    assert check_capacity(Memory(2 * GIB, 2 * GIB, 0, 4 * GIB), trainer) == []


def test_what_may_not_fit_is_a_warning(trainer: L.Trainer) -> None:
    [said] = check_capacity(Memory(2 * GIB, 2 * GIB, 4 * GIB, 6 * GIB), trainer)
    assert said == "a step takes about 14 GiB, and this machine has 10 GiB: it may not fit"


@pytest.mark.parametrize(
    ("memory", "key"),
    [(Memory(GIB, GIB, 0, 18 * GIB), "data.batch_size"), (Memory(5 * GIB, 5 * GIB, 10 * GIB, GIB), "model")],
)
def test_what_cannot_fit_names_what_to_make_smaller(trainer: L.Trainer, memory: Memory, key: str) -> None:
    with pytest.raises(ConfigError, match="this machine has 10 GiB") as refused:
        check_capacity(memory, trainer)
    assert refused.value.key == key


def test_a_device_that_does_not_say_refuses_nothing(
    trainer: L.Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_step, "device_memory", lambda _: 0)
    assert check_capacity(Memory(GIB << 10, 0, 0, 0), trainer) == []
