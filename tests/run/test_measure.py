"""`assay profile` finds what was made slow, against the time that it was made slow by."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

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


def test_a_gpu_that_waits_is_told() -> None:
    parts = [Part(name, 1.0, share) for name, share in zip(PARTS, SHARES, strict=True)]
    assembly: Any = SimpleNamespace(
        config=Checker().job(JOB).to_config(),
        trainer=SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device("cuda"))),
    )
    text, hints = measure._diagnose(parts, assembly, 0.5)
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


def test_two_steps_are_enough(tmp_path: Path) -> None:
    code, found = documented("profile", *JOB, "--steps=2", folder=tmp_path)
    assert (code, found.get("steps")) == (0, 2), found


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


TUNED = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=50", "data.batch_size=4")


def take_a_while(*_: Any) -> None:
    time.sleep(0.02)  # whatever the number of samples: larger batches are faster


def test_the_job_as_typed_is_measured_within_any_budget(tmp_path: Path) -> None:
    code, found = documented("tune", *TUNED, "--budget=1", folder=tmp_path)
    assert code == 0
    first, *others = found["settings"]
    assert first["override"] == ""
    assert first["samples_per_s"] > 0
    assert {one["override"] for one in others} >= {"trainer.compile=true", "data.batch_size=8"}
    assert all(one["samples_per_s"] is None and one["note"] for one in others)
    assert (found["fastest"], found["gain"]) == ([], 1.0)
    assert "--budget" in found["interrupted"]


def test_ctrl_c_shows_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def interrupt(*_: Any) -> None:
        calls.append(None)
        if len(calls) == 70:  # in the midst of the third measurement
            raise KeyboardInterrupt

    monkeypatch.setattr(NonFinite, "on_train_batch_end", interrupt)
    monkeypatch.setattr("assay_lab.measure._STEPS", 20)
    monkeypatch.setattr("assay_lab.measure.candidates", lambda *_: [(False, ["data.batch_size=8"])])
    before = signal.getsignal(signal.SIGINT)
    code, found = documented("tune", *TUNED, folder=tmp_path)
    assert code == 0
    assert found["interrupted"] == "stopped by Ctrl-C"
    assert found["settings"][0]["samples_per_s"] > 0
    assert len(calls) == 70
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("room_for", [0, 40])
def test_a_batch_for_which_there_is_no_room_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_for: int
) -> None:
    """At once, or while it is measured again."""
    steps: list[int] = []

    def refuse(_: NonFinite, trainer: Any, *__: Any) -> None:
        steps.extend([1] * (trainer.datamodule.batch_size == 8))
        if len(steps) > room_for:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(NonFinite, "on_train_batch_end", refuse)
    monkeypatch.setattr("assay_lab.measure._STEPS", 20)
    monkeypatch.setattr("assay_lab.measure.candidates", lambda *_: [(False, ["data.batch_size=8"])])
    code, found = documented("tune", *TUNED, folder=tmp_path)
    assert code == 0, found
    [_, larger] = found["settings"]
    assert (larger["note"], larger["samples_per_s"] is None) == ("out of memory", not room_for)


@pytest.mark.long
def test_the_largest_batch_is_chosen_where_a_step_takes_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NonFinite, "on_train_batch_end", take_a_while)
    code, found = documented("tune", *TUNED, "--budget=300", folder=tmp_path)
    assert code == 0
    settings = {one["override"]: one for one in found["settings"]}
    assert settings["data.batch_size=32"]["chosen"]
    assert not settings["data.batch_size=32"]["same_results"]
    assert 5 < settings["data.batch_size=32"]["gain"] < 9
    assert "data.batch_size=32" in found["next"][-1]
