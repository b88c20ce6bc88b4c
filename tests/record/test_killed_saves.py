"""Whatever call a save dies or fails at, the previous or the new checkpoint is valid, and the rest goes."""

import errno
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.record.killing import at_call, count_calls, dies_at

from assay.checkpoint.checkpoint_file import CheckpointFile, find_newest_checkpoint
from assay.record.run_directory import remove_unfinished_files

if TYPE_CHECKING:
    from tests.conftest import Train

NUMBER, CALLS = 49, 52
"""Calls of a save, and at most those of a run that write to its checkpoints,
whose number varies by a few with the digits of the scores."""
OTHER = Path("/dev/shm")  # noqa: S108 - a file system that is surely another one


def checkpoint(step: int) -> dict[str, Any]:
    tensors = {f"layer{index}": torch.full((17_000,), float(step)) for index in range(12)}
    return {
        "global_step": step,
        "loops": {"fit_loop": {"epoch_loop.batch_progress": {"total": {"completed": step}}}},
        "state_dict": tensors,
    }


def save(run_dir: Path, *steps: int, background: bool = True) -> None:
    file = CheckpointFile(background=background)
    for step in steps:
        file.save_checkpoint(checkpoint(step), run_dir / "checkpoints" / "last.ckpt")
    file.teardown()


def unfinished(run_dir: Path) -> list[str]:
    return [path.name for path in run_dir.rglob(".*") if path.name.endswith(".tmp")]


def step_in(run_dir: Path) -> int:
    """The step of the newest checkpoint, which must be whole; 0 without one."""
    found = find_newest_checkpoint(run_dir)
    if found.path is None:
        return 0
    loaded = CheckpointFile().load_checkpoint(found.path)
    assert loaded["global_step"] == found.step
    assert all(bool((tensor == found.step).all()) for tensor in loaded["state_dict"].values())
    return found.step


def points(number: int, every: int = 10) -> list[Any]:
    """A tenth of the calls always, all of them when the long proofs are run."""
    return [pytest.param(k, marks=() if k % every == 3 else pytest.mark.long) for k in range(number)]


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("k", points(NUMBER))
@pytest.mark.parametrize("old", [1, 0], ids=["again", "first"])
def test_killed_at_a_call(tmp_path: Path, k: int, old: int, background: bool) -> None:
    if old:
        save(tmp_path, old)
    tmpdir = OTHER if k % 2 and OTHER.is_dir() else None
    died = dies_at(k, partial(save, tmp_path, 2, background=background), below="checkpoints", tmpdir=tmpdir)
    assert step_in(tmp_path) in ((old, 2) if died else (2,))
    remove_unfinished_files(tmp_path)
    assert not unfinished(tmp_path)
    save(tmp_path, 3)
    assert step_in(tmp_path) == 3
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"last.ckpt", "last.ckpt.sha256"}


def test_the_points_are_all_the_calls_there_are(tmp_path: Path) -> None:
    save(tmp_path, 1)
    number = count_calls(partial(save, tmp_path, 2), "checkpoints")
    assert 4 * NUMBER >= 100, "first and again, in the background and not"
    assert number == NUMBER


def failing(number: int, code: int, *, lasting: bool, name: str, reached: int) -> None:
    del name
    if reached == number or (lasting and reached > number):
        raise OSError(code, os.strerror(code))


# Two checkpoints of two epochs.
JOB = ("data=iris", "model=linear", "optimizer=sgd", "callbacks=[default]", "trainer.max_epochs=2")
WRITING = ("write", "fsync", "replace")


@pytest.mark.always("28-True-13", "5-False-33")
@pytest.mark.parametrize("k", points(CALLS))
@pytest.mark.parametrize(("code", "lasting"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_disk_that_fails(train: "Train", tmp_path: Path, k: int, code: int, lasting: bool) -> None:
    act = partial(failing, k, code, lasting=lasting)

    def fail(name: str, reached: int) -> None:
        act(name=name, reached=reached)

    with at_call(fail, WRITING, below="/checkpoints") as calls:
        run = train(*JOB, cwd=tmp_path, raise_errors=False)
    if len(calls) <= k:
        assert run.result.exit_code == 0
        return
    assert run.result.exit_code == 1
    assert run.result.status == "failed"
    assert os.strerror(code) in run.result.reason
    assert "could not be written" in run.result.reason
    assert len(run.result.reason.splitlines()) <= 2, "the cause and the way out"
    assert not unfinished(run.run_dir)
    found = find_newest_checkpoint(run.run_dir)
    assert not [path for path, _ in found.refused if path.is_file()]
    if found.path is not None:
        assert CheckpointFile().load_checkpoint(found.path)["global_step"] == found.step


def test_the_failures_are_at_every_call_of_a_run(train: "Train", tmp_path: Path) -> None:
    with at_call(lambda *_: None, WRITING, below="/checkpoints") as calls:
        train(*JOB, cwd=tmp_path)
    assert CALLS - 8 < len(calls) <= CALLS
