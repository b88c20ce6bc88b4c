"""Checkpoints and their sums never disagree, whatever call a process dies at; the background keeps order."""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.record.killing import count_calls, dies_at

from assay.checkpoint import checkpoint_file
from assay.checkpoint.checkpoint_file import _SMALL, BackgroundWriter, CheckpointFile
from assay.errors import AssayError
from assay.files.checksum import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OLD: dict[str, Any] = {"epoch": 1, "state_dict": {"w": torch.zeros(50)}}
NEW: dict[str, Any] = {"epoch": 2, "state_dict": {"w": torch.ones(50)}}


def save(checkpoint: dict[str, Any], path: Path) -> None:
    CheckpointFile().save_checkpoint(checkpoint, path)


def load(path: Path) -> dict[str, Any]:
    return CheckpointFile().load_checkpoint(path)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(
        one["epoch"] == other["epoch"] and torch.equal(one["state_dict"]["w"], other["state_dict"]["w"])
    )


def test_saves_loads_and_removes(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "epoch=1 [a].ckpt"
    save(OLD, path)
    assert same(load(path), OLD)
    assert names(path.parent) == {path.name, f"{path.name}.sha256"}
    assert sha256(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    CheckpointFile().remove_checkpoint(path)
    CheckpointFile().remove_checkpoint(path)
    assert names(path.parent) == set()
    assert sha256(path) == ""


def test_damage_is_not_made_right_by_a_save_that_dies(tmp_path: Path) -> None:
    for k in range(count_calls(partial(save, NEW, tmp_path / "count" / "last.ckpt"), "last.ckpt")):
        path = tmp_path / str(k) / "last.ckpt"
        save(OLD, path)
        path.with_name("last.ckpt.sha256").write_text("rubbish")
        dies_at(k, partial(save, NEW, path), below="last.ckpt")
        try:
            assert load(path)["epoch"] == 2
        except AssayError as error:
            assert "damaged" in error.message  # noqa: PT017 - either is right


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b[: len(b) // 2], lambda _: b"", lambda b: b[:100] + b"\xff" + b[101:]],
)
def test_damage_is_noticed_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "last.ckpt"
    save(OLD, path)
    path.write_bytes(damage(path.read_bytes()))

    def read(*args: Any, **kwargs: Any) -> None:
        pytest.fail("a damaged checkpoint was read")

    monkeypatch.setattr(torch, "load", read)
    with pytest.raises(AssayError, match=r"last\.ckpt is damaged"):
        load(path)


def test_without_a_sum_it_loads_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save(OLD, tmp_path / "foreign.ckpt")
    with caplog.at_level(logging.WARNING):
        assert same(load(tmp_path / "foreign.ckpt"), OLD)
    assert "foreign.ckpt has no SHA-256 beside it" in caplog.text


class Slow:
    """Holds a save up until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.written = threading.Event(), 0
        genuine = torch.save

        def save(content: Any, file: Any) -> None:
            assert self.go.wait(20)
            self.written += 1
            genuine(content, file)

        monkeypatch.setattr(torch, "save", save)


def test_in_the_background_the_state_is_that_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, file = Slow(monkeypatch), CheckpointFile(background=True)
    weight = torch.zeros(50)
    state = {"epoch": 1, "state_dict": {"w": weight, "tied": weight}, "callbacks": {"a": [1]}}
    file.save_checkpoint(state, tmp_path / "last.ckpt")
    weight += 1
    state["callbacks"]["a"].append(2)  # type: ignore[index]  # of an object
    assert not (tmp_path / "last.ckpt").exists(), "it is still being written"
    slow.go.set()
    file.teardown()
    loaded = load(tmp_path / "last.ckpt")
    assert same(loaded, OLD)
    assert loaded["callbacks"] == {"a": [1]}
    assert loaded["state_dict"]["tied"].data_ptr() == loaded["state_dict"]["w"].data_ptr()


def test_another_step_of_a_large_one_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, file = Slow(monkeypatch), CheckpointFile(background=True)
    large = torch.zeros(_SMALL // 4 + 1)
    state: dict[str, Any] = {"epoch": 1, "state_dict": {"w": large}}
    file.save_checkpoint({**state, "which": "best"}, tmp_path / "best.ckpt")
    file.save_checkpoint({**state, "which": "last"}, tmp_path / "last.ckpt")  # does not wait
    assert slow.written == 0
    large += 1
    threading.Timer(0.3, slow.go.set).start()
    file.save_checkpoint({**state, "epoch": 2}, tmp_path / "last.ckpt")
    assert slow.written >= 2, "two steps are never held at once"
    file.teardown()
    assert load(tmp_path / "best.ckpt")["which"] == "best"
    assert load(tmp_path / "best.ckpt")["state_dict"]["w"].sum() == 0
    assert torch.equal(load(tmp_path / "last.ckpt")["state_dict"]["w"], torch.ones_like(large))


def test_an_old_one_goes_only_when_the_new_one_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(OLD, tmp_path / "old.ckpt")
    slow, file = Slow(monkeypatch), CheckpointFile(background=True)
    file.save_checkpoint(NEW, tmp_path / "new.ckpt")
    file.remove_checkpoint(tmp_path / "old.ckpt")
    assert same(load(tmp_path / "old.ckpt"), OLD)
    slow.go.set()
    assert same(file.load_checkpoint(tmp_path / "new.ckpt"), NEW), "reading waits for what is being written"
    file.teardown()
    assert names(tmp_path) == {"new.ckpt", "new.ckpt.sha256"}


@pytest.mark.parametrize("told", ["save", "teardown", "load"])
def test_what_goes_wrong_in_the_background_is_told_once_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    save(OLD, tmp_path / "old.ckpt")
    file = CheckpointFile(background=True)
    (tmp_path / "taken").touch()
    file.save_checkpoint(NEW, tmp_path / "taken" / "new.ckpt")  # its folder is a file
    file.remove_checkpoint(tmp_path / "old.ckpt")
    while file._error is None:
        time.sleep(0.01)
    tell: dict[str, Callable[[], object]] = {
        "save": partial(file.save_checkpoint, NEW, tmp_path / "b.ckpt"),
        "load": partial(file.load_checkpoint, tmp_path / "old.ckpt"),
        "teardown": file.teardown,
    }
    with pytest.raises(AssayError, match=r"new\.ckpt could not be written: (Not a directory|File exists)"):
        tell[told]()
    assert same(load(tmp_path / "old.ckpt"), OLD)
    file.save_checkpoint(NEW, tmp_path / "b.ckpt")
    file.teardown()
    assert same(load(tmp_path / "b.ckpt"), NEW)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("evil",)


def test_nothing_in_a_checkpoint_is_run_whatever_the_caller_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, tmp_path / "evil.ckpt")
    for weights_only in (None, True, False):
        with pytest.raises(AssayError, match=r"as tensors and plain containers: Weights only load failed$"):
            CheckpointFile().load_checkpoint(tmp_path / "evil.ckpt", weights_only=weights_only)
    assert names(tmp_path) == {"evil.ckpt"}


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04", b"\x80\x02."])
def test_what_is_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.ckpt").write_bytes(content)
    with pytest.raises(AssayError, match=r"is truncated, or torch\.save did not write it"):
        load(tmp_path / "a.ckpt")
    torch.save([1], tmp_path / "list.ckpt")
    with pytest.raises(AssayError, match="holds a list"):
        load(tmp_path / "list.ckpt")
    with pytest.raises(AssayError, match="there is no checkpoint"):
        load(tmp_path / "none.ckpt")


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    save(OLD, tmp_path / "last.ckpt")
    with pytest.raises(TypeError, match=r"callbacks\.mine is a"):
        save({"callbacks": {"mine": Evil()}}, tmp_path / "last.ckpt")
    assert same(load(tmp_path / "last.ckpt"), OLD)


def test_a_link_to_the_best_one_is_as_good_as_the_best_one(tmp_path: Path) -> None:
    best, last = tmp_path / "best.ckpt", tmp_path / "last.ckpt"
    save(OLD, last)
    save(NEW, best)
    last.unlink()
    last.symlink_to("best.ckpt")
    assert same(load(last), NEW), "the sum beside the link is of what was there before"
    assert sha256(last) == sha256(best)
    save(OLD, last)
    assert same(load(last), OLD)
    assert same(load(best), NEW)


BEST, LAST = Path("best"), Path("last")


class Writes:
    """A writer whose first step is held up until it is let go, and a note of what was done."""

    def __init__(self) -> None:
        self.writer, self.go, self.began = BackgroundWriter(), threading.Event(), threading.Event()
        self.done: list[str] = []
        self.put("first", Path("first"), -1, wait=True)
        assert self.began.wait(20)

    def put(self, label: str, path: Path, moment: int, *, wait: bool = False) -> None:
        self.writer.put(partial(self._do, label, wait), path, moment)

    def _do(self, label: str, wait: bool) -> None:
        self.began.set()
        assert not wait or self.go.wait(20)
        self.done.append(label)

    def end(self) -> list[str]:
        self.go.set()
        self.writer.wait()
        return self.done[1:]


@pytest.fixture
def writes() -> Iterator[Writes]:
    writes = Writes()
    yield writes
    writes.end()


def test_of_many_moments_the_newest_are_written(writes: Writes) -> None:
    for moment in range(9):
        writes.put(f"best {moment}", BEST, moment)
        writes.put(f"last {moment}", LAST, moment)
    assert writes.end() == ["best 7", "last 7", "best 8", "last 8"]


@pytest.mark.parametrize("improved", list(itertools.product([False, True], repeat=4)))
def test_whenever_the_process_dies_the_last_never_speaks_of_a_best_to_come(
    improved: tuple[bool, ...],
) -> None:
    writes, best = Writes(), 0
    speaks_of = {}
    for moment, better in enumerate((True, *improved)):
        if better:
            best = moment
            writes.put(f"best {moment}", BEST, moment)
        speaks_of[f"last {moment}"] = best
        writes.put(f"last {moment}", LAST, moment)
    there = -1
    for label in writes.end():
        if label.startswith("best"):
            there = int(label.split()[1])
        else:
            assert there >= speaks_of[label], f"{label} would lie there without the best one"


def test_a_replacement_waits_and_is_done_after_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_file, "_PAUSE", 0.2)
    writes = Writes()
    writes.go.set()
    writes.put("best", BEST, 0)
    writes.writer.wait()
    began = time.monotonic()
    writes.put("best again", BEST, 1)
    while writes.done[-1] != "best again":
        time.sleep(0.001)
    assert time.monotonic() - began > 0.1
    writes.put("once more", BEST, 2)
    writes.writer.wait()
    assert writes.done[-1] == "once more", "nothing waits longer than it is waited for"
