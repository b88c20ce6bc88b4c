"""A control: with any item of what a checkpoint carries as it is in a run that begins, the end differs."""

from __future__ import annotations

import copy
import shutil
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.utilities.types import LRSchedulerConfig
from tests.conftest import unchanged_process
from tests.interrupting import Hook, Interrupt, outcome
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, ReduceLROnPlateau, StepLR

from assay.checkpoint.checkpoint_file import CheckpointFile, find_newest_checkpoint
from assay.errors import AssayError
from assay.loop.carried_state import ChangedArguments
from assay.run.resume import resume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Train


PROJECT = Path(__file__).parents[1] / "training" / "project"
COMMON = (
    *("data=iris", "model=mlp", "data.batch_size=16", "trainer.max_epochs=3", "optimizer.lr=0.01"),
    *("callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1"),
)
SEVERAL = (
    "+callbacks.several={_target_:lightning.pytorch.callbacks.ModelCheckpoint,filename:'{step}',"
    "dirpath:'${run_dir}/checkpoints',every_n_train_steps:1,save_top_k:-1}"
)
SECOND = (
    "+callbacks.second={_target_:lightning.pytorch.callbacks.ModelCheckpoint,filename:second,"
    "dirpath:'${run_dir}/checkpoints',monitor:val/accuracy,mode:force_min,"
    "enable_version_counter:false}"
)
RECORDED = ("scores",)
"""What the record of the run takes from a checkpoint; training does not go on from it."""
WHOLE = ("scores", "log", "losses", "metrics", "logged", "gradients", "matrices", "buffers", "validated")
"""Items that are taken as one."""


@dataclass(frozen=True)
class Case:
    """A run, where it is interrupted, and the items that matter there."""

    words: tuple[str, ...]
    hook: Hook
    count: int
    matter: tuple[str, ...]
    project: Path | None = None


CASES = {
    "step": Case(
        (*COMMON, "trainer.accumulate_grad_batches=4", "trainer.val_check_interval=0.5"),
        *("batch", 5),
        ("position.phase", "position.batch", "log", "processes.module.train.pending"),
    ),
    "early_stopping": Case(
        (
            *(*COMMON, "trainer.max_epochs=4", "callbacks=[checkpoint,last_checkpoint,early_stopping]"),
            *("callbacks.early_stopping.patience=1", "callbacks.early_stopping.min_delta=1.0"),
        ),
        *("epoch", 2),
        ("position.epoch", "should_stop", "metrics", "processes.logged", "processes.module.matrices"),
    ),
    "accumulating": Case(
        (
            *(*COMMON, "trainer.accumulate_grad_batches=4", "trainer.val_check_interval=5"),
            *("callbacks.last_checkpoint.every_n_train_steps=2", SEVERAL),
        ),
        *("validation", 1),
        ("processes.gradients", "processes.module.losses", "ModelCheckpoint._last_global_step_saved"),
    ),
    "many_steps": Case(
        (*COMMON, "data.batch_size=1", "trainer.max_epochs=1", "trainer.limit_train_batches=64"),
        *("batch", 64),
        tuple(f"processes.module.train.{name}" for name in ("loss_sum", "count", "metrics", "updates")),
    ),
    "before_the_first_score": Case(
        (
            *(*COMMON, "callbacks.checkpoint.every_n_train_steps=3", "trainer.val_check_interval=5"),
            *("callbacks.checkpoint.every_n_epochs=null", "trainer.max_epochs=1"),
        ),
        *("batch", 4),
        ("ModelCheckpoint._defer_save_until_validation",),
    ),
    "stream": Case(
        (
            *("data=shuffled", "experiment=counted", "data.kind=stream", "trainer.max_epochs=3"),
            *("callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1"),
        ),
        *("batch", 9),
        ("epoch_lost",),
        PROJECT / "conf",
    ),
    "own_module": Case(
        (
            *("data=shuffled", "experiment=counted", "data.kind=shuffle", "trainer.max_epochs=3"),
            *("callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1"),
        ),
        *("batch", 9),
        ("validated",),
        PROJECT / "conf",
    ),
    "link": Case(
        (
            *(*COMMON, "callbacks.checkpoint.monitor=val/loss", "callbacks.checkpoint.mode=force_max"),
            *("+callbacks.checkpoint.save_last=link", SECOND, "trainer.max_epochs=3"),
            "callbacks.last_checkpoint.filename=each",  # the links are called last
        ),
        *("batch", 9),  # the first epoch's loss is the highest: nothing better comes
        ("ModelCheckpoint._last_checkpoint_saved",),
    ),
    "validated_twice_in_a_step": Case(
        (
            *("data=digits", "model=small_cnn", "data.batch_size=8", "trainer.max_epochs=1"),
            *("callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1"),
            *("trainer.limit_train_batches=14", "trainer.limit_val_batches=1"),
            *("trainer.val_check_interval=3", "trainer.accumulate_grad_batches=8"),
        ),
        *("batch", 11),  # the best one was saved in a validation of this step, and is not in the next
        (),
    ),
}
RANKS = ("gradients", "processes.buffers", "processes.buffers_due")
"""Of several processes, in part of shards alone: the tests of killed ranks and of shards try them."""
LIGHTNING = ("combined_loader",)
"""Of Lightning's own state of a loop."""


class Fresh(Checkpoint):
    """Saves what a run begins with."""

    path: Path | None = None

    def on_train_epoch_start(self, trainer: Any, *_: Any) -> None:
        if self.path is None:
            self.path = Path(trainer.default_root_dir).parent / "fresh.ckpt"
            trainer.save_checkpoint(self.path)


def loop_state(checkpoint: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = checkpoint["loops"]["fit_loop"]["state_dict"]
    return state


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each item of the state of the loop is."""
    kept = path and (path[-1] in WHOLE or path[0] in LIGHTNING or "train" in path[:-1])
    if isinstance(value, dict | list) and value and not kept:
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*path, key))
    else:
        yield path


def named(path: tuple[Any, ...]) -> str:
    """An item's name: of all callbacks of a class, and of all processes, at once."""
    words = [str(one).partition("{")[0] for one in path if one not in ("carried", "callbacks", 0, 1)]
    return ".".join(words)


def reset(state: dict[str, Any], fresh: dict[str, Any], item: str) -> None:
    """Make an item what it is in a run that begins."""
    for path in [path for path in places(state) if named(path) == item]:
        inner, first = state, fresh
        for key in path[:-1]:
            inner, first = inner[key], first[key]
        if isinstance(first, dict) and path[-1] not in first:
            del inner[path[-1]]
        else:
            inner[path[-1]] = copy.deepcopy(first[path[-1]])


def end(run_dir: Path) -> dict[str, Any]:
    """What a run ends with, and where it was at each of its checkpoints."""
    paths = sorted((run_dir / "checkpoints").glob("*.ckpt"))
    at = {path.name: loop_state(CheckpointFile().load_checkpoint(path))["position"] for path in paths}
    links = {path.name: str(path.readlink()) for path in paths if path.is_symlink()}
    return {**outcome(run_dir), "at": at, "links": links}


def gone_on(run_dir: Path) -> dict[str, Any] | str:
    with chdir(run_dir.parent), unchanged_process():
        try:
            result = resume(Path(run_dir.name), trusted_packages=["own_project"])
        except (AssayError, UserWarning) as refused:
            return str(refused)
    return end(run_dir) if result.status == "finished" else result.reason


@pytest.mark.always("step")
@pytest.mark.parametrize("name", CASES)
def test_without_an_item_the_end_differs(
    train: Train, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.syspath_prepend(str(PROJECT))
    begun = Fresh()
    whole = end(train(*case.words, config_dir=case.project, callbacks=[begun]).run_dir)
    assert begun.path is not None
    fresh = loop_state(CheckpointFile().load_checkpoint(begun.path))
    cut = train(*case.words, config_dir=case.project, callbacks=[Interrupt(case.hook, case.count)]).run_dir
    found = find_newest_checkpoint(cut)
    path = max(found.midway, default=found.path) if name == "stream" else found.path
    assert path is not None
    for number, item in enumerate(("", *case.matter)):
        run_dir = Path(shutil.copytree(cut, tmp_path / str(number) / "run"))
        checkpoint = CheckpointFile().load_checkpoint(path)
        assert {named(one) for one in places(loop_state(checkpoint))} <= known()
        reset(loop_state(checkpoint), fresh, item)
        CheckpointFile().save_checkpoint(checkpoint, run_dir / "checkpoints" / path.name)
        assert (gone_on(run_dir) != whole) == bool(item), (item, "must make a difference, and nothing else")


def known() -> set[str]:
    """Every item that has a case, and the few that need several processes, another callback, or no case."""
    return {item for case in CASES.values() for item in case.matter} | {*LIGHTNING, *RANKS, *RECORDED}


def trainer_with(optimizer: torch.optim.Optimizer, scheduler: Any) -> L.Trainer:
    trainer = L.Trainer(accelerator="cpu", logger=False, barebones=True)
    trainer.strategy.optimizers = [optimizer]
    plateau = isinstance(scheduler, ReduceLROnPlateau)
    trainer.strategy.lr_scheduler_configs = [LRSchedulerConfig(scheduler, reduce_on_plateau=plateau)]
    return trainer


def sgd(lr: float = 0.1, **options: Any) -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=lr, **options)


def after(steps: int, kind: type[LRScheduler], lr: float = 0.1, **options: Any) -> tuple[Any, Any]:
    """An optimizer and its scheduler after some steps."""
    optimizer = sgd(lr)
    scheduler: Any = kind(optimizer, **options)
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
    return optimizer, scheduler


@pytest.mark.parametrize(
    ("kind", "before", "now"),
    [
        (StepLR, {"step_size": 2, "gamma": 0.5}, {"step_size": 3, "gamma": 0.1}),
        (CosineAnnealingLR, {"T_max": 5}, {"T_max": 20}),  # after 5 steps the old one is at zero
    ],
)
def test_another_schedule_is_where_it_would_be(kind: Any, before: Any, now: Any) -> None:
    reference, expected = after(5, kind, **now)
    carried = after(5, kind, **before)[1].state_dict()
    optimizer, scheduler = after(0, kind, **now)
    built = [scheduler.state_dict()]
    scheduler.load_state_dict(carried)
    trainer = trainer_with(optimizer, scheduler)
    ChangedArguments(new_schedule=True).apply(trainer, built)
    for _ in range(6):
        assert optimizer.param_groups[0]["lr"] == pytest.approx(reference.param_groups[0]["lr"])
        assert scheduler.get_last_lr() == pytest.approx(expected.get_last_lr())
        for stepped in (optimizer, scheduler, reference, expected):
            stepped.step()


def test_another_lr_keeps_the_place_in_the_schedule() -> None:
    reference, expected = after(3, StepLR, lr=0.4, step_size=2)
    optimizer, scheduler = after(3, StepLR, lr=0.1, step_size=2)
    ChangedArguments({"lr": (0.1, 0.4)}).apply(trainer_with(optimizer, scheduler), [])
    assert optimizer.param_groups[0]["lr"] == pytest.approx(reference.param_groups[0]["lr"])
    assert scheduler.base_lrs == pytest.approx(expected.base_lrs)


def test_a_group_with_a_value_of_its_own_keeps_it() -> None:
    """Parameter groups without decay stay without."""
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in range(2)]
    groups: list[dict[str, Any]] = [
        {"params": parameters[:1]},
        {"params": parameters[1:], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, weight_decay=0.01)
    trainer = trainer_with(optimizer, StepLR(optimizer, 2))
    ChangedArguments({"weight_decay": (0.01, 0.5)}).apply(trainer, [])
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]
