"""`assay tune` chooses what is faster and says what changes results."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.command import documented

from assay.callbacks.non_finite import NonFinite

if TYPE_CHECKING:
    from pathlib import Path

JOB = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=50", "data.batch_size=4")


def sleep(*_: Any) -> None:
    time.sleep(0.02)  # whatever the number of samples: larger batches are faster


def test_the_job_as_typed_is_measured_within_any_budget(tmp_path: Path) -> None:
    code, found = documented("tune", *JOB, "--budget=1", folder=tmp_path)
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
    code, found = documented("tune", *JOB, folder=tmp_path)
    assert code == 0
    assert found["interrupted"] == "stopped by Ctrl-C"
    assert found["settings"][0]["samples_per_s"] > 0
    assert len(calls) == 70
    assert signal.getsignal(signal.SIGINT) is before


def test_a_batch_for_which_there_is_no_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: NonFinite, trainer: Any, *__: Any) -> None:
        if trainer.datamodule.batch_size == 8:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(NonFinite, "on_train_batch_end", refuse)
    monkeypatch.setattr("assay_lab.measure._STEPS", 20)
    monkeypatch.setattr("assay_lab.measure.candidates", lambda *_: [(False, ["data.batch_size=8"])])
    code, found = documented("tune", *JOB, folder=tmp_path)
    assert code == 0, found
    [_, larger] = found["settings"]
    assert (larger["note"], larger["samples_per_s"]) == ("out of memory", None)


@pytest.mark.long
def test_the_largest_batch_is_chosen_where_a_step_takes_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NonFinite, "on_train_batch_end", sleep)
    code, found = documented("tune", *JOB, "--budget=300", folder=tmp_path)
    assert code == 0
    settings = {one["override"]: one for one in found["settings"]}
    assert settings["data.batch_size=32"]["chosen"]
    assert not settings["data.batch_size=32"]["same_results"]
    assert 5 < settings["data.batch_size=32"]["gain"] < 9
    assert "data.batch_size=32" in found["next"][-1]
