"""Epoch 26 costs what epoch 6 cost, in calls, in objects that stay, and on disk."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any, Final, final

import pytest
from lightning.pytorch.callbacks import Callback
from tests.conftest import unchanged_process

import assay

EARLY, MIDDLE, LATE = 6, 16, 26
STEADY: Final = (
    *("data=wine", "model=linear", "optimizer=sgd", "optimizer.lr=0.0001"),  # each epoch is the best yet
    *("callbacks=[default]", "callbacks.progress_bar.min_line_interval=0"),
    *("device=cpu", f"trainer.max_epochs={LATE + 12}", "trainer.log_every_n_steps=100000"),
)


@final
class Counts(Callback):
    """Python's calls in an epoch; objects and lines of files when it begins."""

    def __init__(self) -> None:
        self.calls: dict[int, int] = {}
        self.objects: dict[int, int] = {}
        self.lines: dict[int, dict[str, int]] = {}
        self.moved: dict[int, int] = {}

    def on_train_epoch_start(self, trainer: Any, _: Any) -> None:
        sys.setprofile(None)
        epoch = trainer.current_epoch
        trainer.strategy.checkpoint_io.teardown()  # each epoch's checkpoints are written in that epoch
        self.moved[epoch] = bytes_moved()
        if epoch not in (EARLY, MIDDLE, LATE):
            return
        run_dir = Path(trainer.default_root_dir)
        self.lines[epoch] = {
            str(path.relative_to(run_dir)): path.read_bytes().count(b"\n")
            for path in run_dir.rglob("*")
            if path.is_file()
            and not path.name.endswith((".ckpt", ".sha256", ".tmp"))  # written while training goes on
        }
        gc.collect()
        self.objects[epoch] = len(gc.get_objects())
        self.calls[epoch] = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            self.calls[epoch] += event in ("call", "c_call")

        sys.setprofile(count)

    def teardown(self, *_: object, **__: object) -> None:
        sys.setprofile(None)


def bytes_moved() -> int:
    """What this process has read and written, files in the cache included; 0 where nobody says."""
    path = Path("/proc/self/io")
    lines = path.read_text(encoding="ascii").splitlines() if path.is_file() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith(("rchar", "wchar")))


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Counts:
    counts, run_dir = Counts(), tmp_path_factory.mktemp("job") / "run"
    with unchanged_process():  # not the fixture `train`, which keeps something of each step
        result = assay.train([*STEADY, f"hydra.run.dir={run_dir}"], callbacks=[counts])
    assert result.best["epoch"] == LATE + 12, "both checkpoints were written in each epoch"
    return counts


def test_a_late_epoch_takes_as_many_calls(counts: Counts) -> None:
    early, late = counts.calls[EARLY], counts.calls[LATE]
    assert early > 1000
    assert late == pytest.approx(early, rel=0.05)


def test_nothing_is_kept_of_an_epoch(counts: Counts) -> None:
    grown = counts.objects[LATE] - counts.objects[EARLY]
    assert grown < LATE - EARLY, "fewer than one object that stays for each epoch"


def test_files_grow_by_what_an_epoch_says(counts: Counts) -> None:
    early, middle, late = (counts.lines[epoch] for epoch in (EARLY, MIDDLE, LATE))
    assert early.keys() == late.keys(), "no file for each epoch"
    added = {name: late[name] - early[name] for name in late}
    assert {name for name, lines in added.items() if lines} == {"metrics.csv", "log.txt"}
    for name in ("metrics.csv", "log.txt"):
        assert late[name] - middle[name] == middle[name] - early[name]
    epochs = LATE - EARLY
    assert added["log.txt"] == epochs
    assert added["metrics.csv"] == 3 * epochs, "the rate when it begins, its validation, its training"


def test_no_file_is_read_or_written_anew(counts: Counts) -> None:
    early, late = (counts.moved[epoch + 11] - counts.moved[epoch + 1] for epoch in (EARLY, LATE))
    assert late == pytest.approx(early, rel=0.1)
