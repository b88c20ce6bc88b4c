"""`assay profile` finds what was made slow, against the time that it was made slow by."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.command import documented
from torch import nn

from assay.callbacks.non_finite import NonFinite
from assay.data.core.loaders import MemoryLoader
from assay.loss.cross_entropy import CrossEntropy
from assay.module import Module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=20", "data.batch_size=16")
SLEEP, HOOK = 30.0, "on_train_batch_end"


def sleep() -> None:
    time.sleep(SLEEP / 1000)


def slow(kind: type, name: str) -> Any:
    method = getattr(kind, name)

    def sleep_and_call(*arguments: Any, **options: Any) -> Any:
        sleep()
        return method(*arguments, **options)

    return sleep_and_call


def slow_batches(loader: MemoryLoader) -> Iterator[Any]:
    for batch in BATCHES(loader):
        sleep()
        yield batch


BATCHES = MemoryLoader.__iter__
SLOW = {
    "forward": (nn.Linear, "forward", slow(nn.Linear, "forward"), "the model's own computing"),
    "loss": (CrossEntropy, "forward", slow(CrossEntropy, "forward"), "the model's own computing"),
    "callbacks": (NonFinite, HOOK, slow(NonFinite, HOOK), "most of it to NonFinite"),
    "metrics": (Module, HOOK, slow(Module, HOOK), "tracking the metrics"),
    "data": (MemoryLoader, "__iter__", slow_batches, "waiting for data"),
}


@pytest.mark.always("forward", "data")
@pytest.mark.parametrize("part", SLOW)
def test_what_is_slow_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    kind, name, replacement, says = SLOW[part]
    monkeypatch.setattr(kind, name, replacement)
    code, found = documented("profile", *JOB, "--steps=8", folder=tmp_path)
    assert code == 0, found
    first = found["parts"][0]
    assert first["name"] == part, found["parts"]
    assert first["ms"] >= SLEEP
    assert found["step_ms"] >= SLEEP
    assert says in found["bottleneck"]
    assert sum(one["share"] for one in found["parts"]) == pytest.approx(1, abs=0.02)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("trainer.max_steps=5", "trainer.val_check_interval=5"), 1, "the first 5 are not measured"),
        (("device=ddp_cpu", "trainer.devices=2"), 2, "several processes"),
        (("model=linea",), 2, "did you mean"),
    ],
)
def test_what_cannot_be_profiled(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    exit_code, found = documented("profile", *JOB, *words, folder=tmp_path)
    assert exit_code == code
    assert says in f"{found['error']['message']} {found['error']['hint']}"
    assert not [*tmp_path.iterdir()]
