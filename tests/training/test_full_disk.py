"""A disk without room, real to the process: what is said, what the record says, and how the run goes on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, final

import pytest
from lightning.pytorch.callbacks import Callback
from tests.command import typed
from tests.interrupting import outcome
from tests.mounting import room_for

from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train

pytest.importorskip("resource")
JOB = (
    *("data=iris", "model=mlp", "callbacks=[checkpoint,last_checkpoint]", "trainer.max_epochs=3"),
    *("callbacks.last_checkpoint.every_n_train_steps=1",),
)


@final
class Fill(Callback):
    """Takes the room away in the middle of training."""

    def __init__(self, room: int, batch: int) -> None:
        self._room, self._batch, self._left = room, batch, room_for(room)

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == self._batch:
            self._left.__enter__()

    def give_back(self) -> None:
        self._left.__exit__(None, None, None)


def record(run_dir: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run_dir / "record.json").read_bytes())
    return loaded


@pytest.mark.always("20000-.ckpt could not be written")
@pytest.mark.parametrize(
    ("room", "named"),
    [
        (0, "record.json cannot be written: File too large. The run has failed"),
        (20_000, ".ckpt could not be written"),
    ],
)
def test_no_room_in_the_middle_of_training(
    train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str], room: int, named: str
) -> None:
    fill = Fill(room, 3)
    try:
        with pytest.raises(AssayError) as refused:
            train(*JOB, callbacks=[fill], cwd=tmp_path)
    finally:
        fill.give_back()
    assert named in str(refused.value)
    assert "assay resume" in refused.value.hint
    said = capfd.readouterr().err
    assert "Logging error" not in said
    assert said.count("log.txt cannot be written") <= 1
    run_dir = tmp_path / "run"
    assert record(run_dir)["status"] == ("running" if room == 0 else "failed"), "what is on disk stays true"
    assert not list(run_dir.rglob("*.tmp"))
    assert "resuming from step" in typed("resume", run_dir.name, folder=run_dir.parent).output
    assert outcome(run_dir) == outcome(train(*JOB).run_dir)


def test_a_read_only_run_is_refused_in_one_line(train: Train, tmp_path: Path) -> None:
    run_dir = train(*JOB, "trainer.max_epochs=1", cwd=tmp_path).run_dir
    (run_dir / ".lock").unlink()
    (run_dir / ".lock").mkdir()  # not even the superuser can write there
    done = typed("resume", "run", "trainer.max_epochs=2", code=1, folder=tmp_path)
    assert "run cannot be written: Is a directory" in done.stderr
    assert record(run_dir)["status"] == "finished"
