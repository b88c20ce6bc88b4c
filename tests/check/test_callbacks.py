"""Callbacks, loggers and what they follow: judged before the first step, and right about the run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf
from tests.check.jobs import prove

from assay.check.callbacks import check_callbacks, check_checkpoint_names, check_monitors, notes_on
from assay.check.signature import check_signatures
from assay.check.trainer import check_loggers
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train

EMA = {"_target_": "assay.callbacks.ema.EMA", "decay": 0.99}
SLOW = EMA | {"update_every_n_steps": 6}
CHECKPOINT = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}
CSV = {"_target_": "lightning.pytorch.loggers.CSVLogger", "name": "x", "version": "y"}
GROWING = {
    "_target_": "lightning.pytorch.callbacks.GradientAccumulationScheduler",
    "scheduling": {4: 2},
}
COSINE = {"_target_": "torch.optim.lr_scheduler.CosineAnnealingLR", "T_max": "${spec.total_steps}"}


def job(total_steps: int = 10_000, **groups: Any) -> DictConfig:
    base = {"run_dir": "/run", "spec": {"total_steps": total_steps, "num_val": 10}}
    return OmegaConf.create({**base, "trainer": {}, "callbacks": {}, "logger": {}} | groups)


@pytest.mark.parametrize(
    ("config", "key", "says"),
    [
        (job(callbacks={"ema": EMA, "best": CHECKPOINT}), "", ""),
        (job(logger={"a": CSV | {"save_dir": "/a"}, "b": CSV | {"save_dir": "/b"}}), "", ""),
        (job(logger={"a": CSV | {"save_dir": "/a"}, "b": CSV | {"save_dir": "/a"}}), "logger.b", "already"),
        (job(logger={"a": CSV | {"save_dir": "/", "name": "run", "version": ""}}), "logger.a", "assay"),
        (job(callbacks={"more": GROWING}), "", ""),
        (job(callbacks={"more": GROWING}, scheduler=COSINE), "callbacks.more", "T_max is computed from"),
        (job(callbacks={"more": GROWING}, optimizer={"_target_": "torch.optim.LBFGS"}), "callbacks.more",
         "LBFGS cannot accumulate"),
        (job(60, callbacks={"ema": SLOW}), "", ""),
        (job(50, callbacks={"ema": SLOW}), "callbacks.ema.update_every_n_steps", "6"),
    ],
)  # fmt: skip
def test_what_goes_together(config: DictConfig, key: str, says: str) -> None:
    if not key:
        check_callbacks(config)
        return
    with pytest.raises(ConfigError, match=says) as caught:
        check_callbacks(config)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("steps", "node", "says"),
    [
        (10_000, EMA, ""),
        (100, EMA | {"warmup_fraction": None}, "37 % of the average are the initial weights"),  # e^-1
        (50, EMA | {"warmup_fraction": 0.1}, "looks back 100 steps, and the run has 50"),
        (10_000, EMA | {"warmup_fraction": 0.1}, ""),
    ],
)
def test_an_average_that_looks_back_too_far_is_noted(steps: int, node: Any, says: str) -> None:
    notes = notes_on(job(steps, callbacks={"ema": node}))
    assert len(notes) == bool(says)
    assert says in "".join(notes)


# -- names of checkpoints

NAMES = ["val/loss", "val/accuracy"]
PLAIN = {"auto_insert_metric_name": False}
BEST = CHECKPOINT | {"filename": "best", "monitor": "val/loss"}
LAST = CHECKPOINT | {"filename": "last", "enable_version_counter": False}


def named(filename: str) -> dict[str, Any]:
    return CHECKPOINT | {"filename": filename}


@pytest.mark.parametrize("filename", ["best", "{epoch:03d}-{step}", "{val/accuracy:.3f}", "a b {lr-AdamW}"])
def test_names_that_lightning_writes(filename: str, tmp_path: Path) -> None:
    check_checkpoint_names(job(callbacks={"mine": named(filename) | PLAIN}), NAMES)
    callback = ModelCheckpoint(tmp_path, filename=filename, auto_insert_metric_name=False)
    values = dict.fromkeys(["epoch", "step"], torch.tensor(1)) | dict.fromkeys(NAMES, torch.tensor(0.5))
    assert callback.format_checkpoint_name(values).endswith(".ckpt")


@pytest.mark.parametrize(
    ("filename", "message"),
    [
        ("{val/acuracy}", "val/acuracy"),
        ("{epoch:q}", "was given"),
        ("{epoch", "was given"),
        ("{}", "cannot be filled in"),
        ("{epoch!r}", "cannot be filled in"),
        ("{epoch:0100000000d}", "cannot be filled in"),
        ("../{epoch}", "is not a name of a file in the run's folder"),
        ("/home/{epoch}", "is not a name of a file in the run's folder"),
        ("x" * 300, "was given"),
    ],
)
def test_names_that_no_checkpoint_can_have(filename: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check_checkpoint_names(job(callbacks={"mine": named(filename)}), NAMES)
    assert error.value.key == "callbacks.mine.filename"
    assert len(error.value.message) < 400


@pytest.mark.parametrize(
    ("one", "other", "key", "hint"),
    [
        (CHECKPOINT, CHECKPOINT | {"monitor": "val/loss"}, "", ""),  # Lightning counts: …-v1.ckpt
        (named("best"), named("{epoch}"), "", ""),
        (named("{epoch}"), named("{step}"), "", ""),
        (named("{val/loss:.3f}") | PLAIN, named("{val/accuracy:.3f}") | PLAIN, "", ""),
        (BEST | {"save_last": True}, named("each"), "", ""),
        (BEST | {"save_last": False}, LAST, "", ""),
        (BEST | {"filename": "last"}, named("each"), "one.filename", "callbacks.one.filename=best"),
        (named("best"), named("./best"), "other.filename", "callbacks.other.filename='best-{epoch:02d}'"),
        (named("{epoch}"), named("{epoch:d}"), "other.filename", "callbacks.other.filename='best-{epoch:02d"),
        (CHECKPOINT | {"enable_version_counter": False}, CHECKPOINT | {"monitor": "val/loss"},
         "other.filename", "+callbacks.other.filename='best-{epoch:02d}'"),
        (BEST | {"save_last": True}, LAST, "one.save_last", "callbacks.one.save_last=null"),
        (LAST, BEST | {"save_last": "link"}, "other.save_last", "callbacks.other.save_last=null"),
        (LAST | {"save_last": True}, named("each"), "one.save_last", "callbacks.one.save_last=null"),
        (CHECKPOINT | {"save_last": True}, BEST | {"save_last": True}, "other.save_last", "save_last=null"),
    ],
)  # fmt: skip
def test_checkpoints_that_take_each_others_place(one: Any, other: Any, key: str, hint: str) -> None:
    config = job(callbacks={"one": one, "other": other})
    if not key:
        check_checkpoint_names(config, NAMES)
        return
    with pytest.raises(ConfigError) as error:
        check_checkpoint_names(config, NAMES)
    assert error.value.key == f"callbacks.{key}"
    assert hint in error.value.hint


# -- what is followed


@pytest.mark.parametrize(
    ("monitor", "change", "message", "hint"),
    [
        ("val/accuracy", {}, "", ""),
        ("train/loss", {"spec": {"num_val": 0}}, "", ""),
        ("lr-AdamW", {}, "", ""),
        ("epoch", {}, "", ""),
        ("val/acc", {}, "did you mean 'val/accuracy'?", "train/accuracy"),
        ("test/loss", {}, "no metric 'test/loss'", "val/loss"),
        ("val/loss", {"spec": {"num_val": 0}}, "no validation subset", "data.split.val=0.1"),
        ("val/loss", {"trainer": {"limit_val_batches": 0}}, "limit_val_batches=0", "train/loss"),
    ],
)
def test_monitors(monitor: str, change: dict[str, Any], message: str, hint: str) -> None:
    config = job(callbacks={"a": {"_target_": "x.Y", "monitor": monitor}}, **change)
    names = {"train": ["train/loss", "train/accuracy"], "val": NAMES}
    if not message:
        check_monitors(config, names)
        return
    with pytest.raises(ConfigError) as caught:
        check_monitors(config, names)
    assert caught.value.key == "callbacks.a.monitor"
    assert message in caught.value.message
    assert hint in caught.value.hint


IRIS = ("data=iris", "model=linear", "data.batch_size=12", "data.drop_last=true", "device=cpu")
"""Eight batches an epoch."""
STOP = (
    *("callbacks=[early_stopping]", "callbacks.early_stopping.min_delta=100"),
    "callbacks.early_stopping.patience=2",
)
PLATEAU = (
    *("scheduler=plateau", "scheduler.threshold=100", "+scheduler.threshold_mode=abs"),
    *("scheduler.patience=2", "optimizer.lr=0.01"),
)


@pytest.mark.always(
    "base0-trainer.max_epochs=2-False",
    "base3-trainer.max_epochs=1 trainer.val_check_interval=0.25-True",
    "base10-trainer.max_epochs=2 scheduler.interval=step scheduler.frequency=4 "
    "trainer.val_check_interval=4-True",
)
@pytest.mark.parametrize(
    ("base", "typed", "reached"),
    [
        (STOP, "trainer.max_epochs=2", False),
        (STOP, "trainer.max_epochs=3", True),
        (STOP, "trainer.max_epochs=5 trainer.check_val_every_n_epoch=2", False),
        (STOP, "trainer.max_epochs=1 trainer.val_check_interval=0.25", True),
        (STOP, "trainer.max_epochs=1 trainer.val_check_interval=3", False),
        (STOP, "trainer.max_epochs=1 callbacks.early_stopping.patience=0", False),
        (PLATEAU, "trainer.max_epochs=4", True),
        (PLATEAU, "trainer.max_epochs=3", False),
        (PLATEAU, "trainer.max_epochs=7 scheduler.frequency=2", False),
        (PLATEAU, "trainer.max_epochs=8 scheduler.frequency=2", True),
        (
            PLATEAU,
            "trainer.max_epochs=2 scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4",
            True,
        ),
    ],
)
def test_patience_out_of_reach_is_said_before_and_after(
    train: Train, base: tuple[str, ...], typed: str, reached: bool
) -> None:
    words = (*IRIS, *base, *typed.split())
    warned = [warning for warning in prove(*words).warnings if "patience" in warning]
    assert bool(warned) is not reached, warned
    run = train(*words)
    log = (run.run_dir / "log.txt").read_text()
    if base is STOP:
        assert ("stopped early" in log) is reached
        assert ("early stopping changed nothing: it looked at val/loss" in log) is not reached
    else:
        assert (run.trainer.optimizers[0].param_groups[0]["lr"] < 0.01) is reached
        assert ("the schedule changed nothing" in log) is not reached


# -- what a service would refuse


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")
@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("logger.wandb.settings.console=0", "logger.wandb.settings.console"),
        ("+logger.wandb.settings.no_such=1", "logger.wandb.settings.no_such"),
        ("+logger.wandb.no_such=1", "logger.wandb.no_such"),
        ("+logger.wandb.experiment=abc", "logger.wandb.experiment"),
        ("+logger.wandb.notes=first", ""),
    ],
)
def test_weights_and_biases(typed: str, key: str) -> None:
    config = job_config(compose(["data=iris", "logger=wandb", typed]))
    refused = ""
    try:
        check_signatures(config, ["logger"])
        check_loggers(config)
    except ConfigError as error:
        refused = error.key
    assert refused == key
