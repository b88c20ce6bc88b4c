"""`assay profile` finds what was made slow, against the time that it was made slow by."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, final

import pytest
import torch
from tests.command import documented
from torch import nn

from assay.callbacks.non_finite import NonFinite
from assay.check.checker import Checker
from assay.data.core.loaders import MemoryLoader
from assay.loss.cross_entropy import CrossEntropy
from assay.module import Module
from assay_lab import measure
from assay_lab.measure import Part

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


@final
class HalfBusy:
    """A profiler of a GPU that computes half of the time."""

    def __init__(self, activities: Any) -> None:
        assert activities == [torch.profiler.ProfilerActivity.CUDA]

    def start(self) -> None:
        self.began = time.perf_counter()

    def stop(self) -> None:
        self.seconds = time.perf_counter() - self.began

    def key_averages(self) -> list[Any]:
        return [SimpleNamespace(self_device_time_total=250_000 * self.seconds) for _ in range(2)]


def test_a_gpu_that_waits_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.profiler.profile", HalfBusy)
    monkeypatch.setattr(*SLOW["forward"][:3])
    checker = Checker()
    job = checker.job(JOB)
    waits = measure._waiting_share(job, checker.check(job).datamodule, steps=8)
    assert waits == pytest.approx(0.5, abs=0.15)
    parts = [Part(name, 1.0, share) for name, share in zip(PARTS, SHARES, strict=True)]
    assembly: Any = SimpleNamespace(
        config=job.to_config(),
        trainer=SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda"))),
    )
    text, hints = measure._diagnose(parts, assembly, waits)
    assert text.startswith("the GPU waits for")
    assert hints == ["data.batch_size=64", "trainer.compile=reduce-overhead"]
    assert "own computing" in measure._diagnose(parts, assembly, 0.0)[0]


PARTS = ("data", "copy", "forward", "loss", "backward", "optimizer", "metrics", "callbacks", "loop")
SHARES = (0.0, 0.0, 0.3, 0.1, 0.4, 0.1, 0.0, 0.0, 0.1)


@pytest.mark.gpu
def test_a_gpu_is_profiled(tmp_path: Path) -> None:
    code, found = documented("profile", *JOB, "device=gpu", "--steps=8", folder=tmp_path)
    assert code == 0, found
    assert found["gpu_waits"] > 0.3  # a linear model of four numbers
    assert "the GPU waits" in found["bottleneck"]
    assert found["peak_memory"] > 0


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
