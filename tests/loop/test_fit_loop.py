"""Interrupted after any step, a run that goes on ends as the one that was never interrupted, bit for bit."""

from __future__ import annotations

from contextlib import chdir
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import torch
from tests.conftest import unchanged_process
from tests.interrupting import Hook, Snapshots, outcome

from assay.run.resume import resume

if TYPE_CHECKING:
    from tests.conftest import Train

PROJECT = Path(__file__).parents[1] / "training" / "project"
COMMON = (
    *("data=digits", "data.batch_size=8", "data/transform=crop_flip", "data.transform.crop_size=8"),
    *("trainer.max_epochs=2", "trainer.limit_train_batches=4"),
    *("trainer.limit_val_batches=1", "trainer.limit_test_batches=1"),
    *("data.eval_batch_size=32", "trainer.val_check_interval=0.5", "optimizer.lr=0.01"),
    "callbacks.last_checkpoint.every_n_train_steps=1",
)
KINDS = {
    "dropout": ("model=mlp", "model.dropout=0.5"),
    "batch_norm": ("model=small_cnn", "optimizer=sgd", "optimizer.momentum=0.9", "scheduler=onecycle"),
    "mixup": ("model=mlp", "augment=mixup", "callbacks.checkpoint.save_top_k=1"),
    "ema": ("model=mlp", "callbacks.ema.decay=0.9"),
    "plateau": ("model=mlp", "scheduler=plateau", "scheduler.patience=0", "scheduler.threshold=0.5"),
    "ldam_drw": ("model=mlp", "loss=ldam", "callbacks.drw.start_fraction=0.5", "data.thin_classes=0.1"),
}
CALLBACKS = {"ema": ",ema", "ldam_drw": ",drw"}
HOOKS: dict[Hook, int] = {"batch": 8, "validation": 4, "epoch": 2}


class Point(NamedTuple):
    """Where a run is interrupted."""

    kind: str
    workers: int
    accumulate: int
    hook: Hook
    number: int

    @property
    def job(self) -> tuple[str, ...]:
        return (
            f"callbacks=[checkpoint,last_checkpoint,lr_monitor{CALLBACKS.get(self.kind, '')}]",
            *COMMON,
            *KINDS[self.kind],
            f"data.num_workers={self.workers}",
            f"trainer.accumulate_grad_batches={self.accumulate}",
        )


EVERY = [
    Point(kind, workers, accumulate, hook, count)
    for kind, workers, accumulate, hook in product(KINDS, (0, 2), (1, 3), HOOKS)
    for count in range(1, HOOKS[hook] + 1)
]
USUAL = (Point("mixup", 2, 1, "validation", 3), Point("ema", 0, 3, "epoch", 2))
_whole: dict[tuple[str, ...], tuple[dict[str, str], Snapshots]] = {}
"""By the job: what it ends with, and its directory at each point."""


def go_on(run_dir: Path) -> None:
    with chdir(run_dir.parent), unchanged_process():
        assert resume(Path(run_dir.name)).status == "finished"


def check(train: Train, folder: Path, point: Point) -> None:
    if point.job not in _whole:
        snapshots = Snapshots(folder)
        _whole[point.job] = outcome(train(*point.job, callbacks=[snapshots]).run_dir), snapshots
    expected, snapshots = _whole[point.job]
    run_dir = snapshots.at(point.hook, point.number)
    assert '"status": "running"' in (run_dir / "record.json").read_text(), "as after a sudden end"
    go_on(run_dir)
    assert outcome(run_dir) == expected


@pytest.mark.parametrize("point", USUAL, ids=lambda point: "-".join(map(str, point)))
def test_a_run_interrupted_here_ends_the_same(train: Train, tmp_path: Path, point: Point) -> None:
    check(train, tmp_path, point)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.timeout(1200)
def test_a_run_interrupted_anywhere_ends_the_same(
    train: Train, tmp_path: Path, kind: str, workers: int, accumulate: int
) -> None:
    points = [point for point in EVERY if point[:3] == (kind, workers, accumulate)]
    for point in points:
        check(train, tmp_path, point)


OTHERS = {
    "swa": ("model=mlp", "callbacks=[checkpoint,last_checkpoint,swa]", "callbacks.swa.start_fraction=0.25"),
    "lbfgs": ("model=mlp", "optimizer=lbfgs", "scheduler=none"),
    "early_stopping": (
        *("model=mlp", "callbacks=[checkpoint,last_checkpoint,early_stopping]", "trainer.max_epochs=4"),
        *("callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=1.0"),
    ),
    "max_steps": ("model=mlp", "trainer.max_epochs=null", "trainer.max_steps=6"),
    "no_validation": (
        *("model=mlp", "trainer.limit_val_batches=0", "trainer.val_check_interval=1.0"),
        *("callbacks=[last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=null"),
    ),
    "top_three": (
        *("model=mlp", "callbacks.checkpoint.save_top_k=3", "callbacks.checkpoint.filename='{epoch}-{step}'"),
        "callbacks=[last_checkpoint,checkpoint]",
    ),
    "plateau_each_step": (
        *("model=mlp", "scheduler=plateau", "scheduler.patience=0", "scheduler.interval=step"),
        *("scheduler.threshold=0.5", "trainer.val_check_interval=1"),
    ),
    "saved_with_the_validation": ("model=mlp", "callbacks.last_checkpoint.every_n_train_steps=null"),
}
AT: list[tuple[Hook, int]] = [("batch", 3), ("batch", 4), ("batch", 6), ("validation", 2), ("epoch", 1)]


def other_points(name: str) -> list[tuple[Hook, int]]:
    never = {"no_validation": [("validation", 2)], "early_stopping": [("batch", 6)]}.get(name, [])
    return [at for at in AT if at not in never]


@pytest.mark.always("top_three")
@pytest.mark.parametrize("name", OTHERS)
def test_other_parts_of_a_run_are_taken_up(train: Train, tmp_path: Path, name: str) -> None:
    points = other_points(name)
    check_others(train, tmp_path, name, [points[list(OTHERS).index(name) % len(points)]])


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_other_parts_of_a_run_are_taken_up_anywhere(train: Train, tmp_path: Path, name: str) -> None:
    check_others(train, tmp_path, name, other_points(name))


def check_others(train: Train, folder: Path, name: str, points: list[tuple[Hook, int]]) -> None:
    job = ("callbacks=[checkpoint,last_checkpoint,lr_monitor]", *COMMON, *OTHERS[name])
    job = tuple({one.partition("=")[0]: one for one in job}.values())
    snapshots = Snapshots(folder)
    whole = outcome(train(*job, callbacks=[snapshots]).run_dir)
    for hook, count in points:
        go_on(snapshots.at(hook, count))
        assert outcome(snapshots.at(hook, count)) == whole, (hook, count)


@pytest.mark.long
def test_interrupted_again_and_again(train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))
    point = Point("ema", 0, 3, "batch", 2)
    check(train, tmp_path, point)
    whole, _ = _whole[point.job]
    asked, *job = point.job
    stops = (f"{asked[:-1]},stopping]", "callbacks.stopping.count=2", "callbacks.stopping.exit_code=9")
    run_dir = train(*stops, *job, config_dir=PROJECT / "conf").run_dir
    trusted = "trusted_packages=[own_project]"
    with chdir(run_dir.parent), unchanged_process():
        ends = [resume(run_dir, [trusted, f"callbacks.stopping.count={n}"]).status for n in (3, 2)]
        assert ends == ["failed", "failed"]
        assert resume(run_dir, [trusted, "callbacks.stopping.count=null"]).status == "finished"
    assert outcome(run_dir) == whole


ANYWHERE = (
    *("data=digits", "data/transform=crop_flip", "data.transform.crop_size=8", "data.batch_size=8"),
    *("trainer.limit_train_batches=4", "trainer.limit_val_batches=1", "trainer.max_epochs=2"),
    *("model=small_cnn", "augment=mixup", "callbacks=[default]", "trainer.log_every_n_steps=10"),
)


def test_neither_place_nor_workers_change_a_bit(train: Train, tmp_path: Path) -> None:
    """For another hash seed and locale see `tests/run/test_reproduce.py`, too."""
    place = tmp_path / "another place ü"
    place.mkdir()
    train(*ANYWHERE, "data.num_workers=2", "hydra.run.dir=run", cwd=place)
    torch.manual_seed(12345)  # what happened in the process before does not matter
    assert outcome(place / "run") == outcome(train(*ANYWHERE).run_dir)
