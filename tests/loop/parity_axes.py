"""What a trainer can be asked for, an axis each: the parts that a case of the parity suite is made of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch import callbacks as lightning_callbacks
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.profilers import SimpleProfiler
from tests.loop.parity import Case

from assay.callbacks.ema import EMA
from assay.callbacks.lr_monitor import LRMonitor
from assay.callbacks.non_finite import NonFinite
from assay.callbacks.progress_bar import ProgressBar, RunLog
from assay.callbacks.seed_each_step import SeedEachStep
from assay.callbacks.swa import SWA

if TYPE_CHECKING:
    from pathlib import Path

Change = Callable[[Case], None]


def trainer(**options: Any) -> Change:
    return lambda case: case.trainer.update(options)


def module(**options: Any) -> Change:
    return lambda case: case.module.update(options)


def set_to(name: str, value: Any) -> Change:
    return lambda case: setattr(case, name, value)


def all_of(*changes: Change) -> Change:
    def change(case: Case) -> None:
        for one in changes:
            one(case)

    return change


def prepared(deed: Callable[[L.Trainer, L.LightningModule], None]) -> Change:
    """With this done besides once trainer and module are built."""

    def change(case: Case) -> None:
        before = case.prepare

        def both(trainer: L.Trainer, module: L.LightningModule) -> None:
            if before is not None:
                before(trainer, module)
            deed(trainer, module)

        case.prepare = both

    return change


def callback(made: Callable[..., L.Callback], *args: Any, **kwargs: Any) -> Change:
    """With this callback, as many of which are made as there are runs."""
    return lambda case: case.callbacks.append(lambda _: made(*args, **kwargs))


def in_folder(made: Callable[[Path], L.Callback]) -> Change:
    """With this callback, which writes into the folder of the run."""
    return all_of(trainer(enable_checkpointing=True), lambda case: case.callbacks.append(made))


def shown(made: Callable[..., L.Callback], **kwargs: Any) -> Change:
    """With this progress bar."""
    return all_of(trainer(enable_progress_bar=True), callback(made, **kwargs))


def checkpoint(**kwargs: Any) -> Change:
    return in_folder(lambda folder: ModelCheckpoint(dirpath=folder / "saved", **kwargs))


def no_change(case: Case) -> None:
    """As it is."""


def steady_stats(case: Case) -> None:
    """The load of a machine is never the same twice."""
    case.callbacks.append(lambda _: lightning_callbacks.DeviceStatsMonitor())
    prepared(
        lambda trainer, _: setattr(
            trainer.accelerator, "get_device_stats", lambda _: {"load": float(trainer.global_step)}
        )
    )(case)


def half_precision() -> list[MixedPrecision]:
    """Float16 with a scaler that begins so high that it leaves out steps."""
    return [MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**22))]


def set_stop(trainer: L.Trainer) -> None:
    trainer.should_stop = True


def fail(kind: type[BaseException], trainer: L.Trainer) -> None:
    raise kind("on purpose")


def add_callback(trainer: L.Trainer) -> None:
    vars(trainer)["callbacks"].append(lightning_callbacks.LearningRateMonitor("step"))


def hook_on_instance(trainer: L.Trainer, module: L.LightningModule) -> None:
    """A hook that is an attribute of the object, not of its class."""
    module.on_train_batch_end = lambda *_: module.log("instance/batch", 1.0, batch_size=2)  # type: ignore[method-assign]
    module.on_validation_epoch_end = lambda: module.log("instance/val", 2.0)  # type: ignore[method-assign]


def no_hook(trainer: L.Trainer, module: L.LightningModule) -> None:
    """Lightning passes over what cannot be called."""
    module.on_train_batch_end = None  # type: ignore[method-assign,assignment]
    for one in vars(trainer)["callbacks"][:1]:
        one.on_validation_end = None


def wrapped_hooks() -> L.Callback:
    """With hooks that are wrapped as Lightning's own, for whose they may be taken."""

    def log(trainer: L.Trainer, module: L.LightningModule) -> None:
        module.log("wrapped", float(trainer.global_step), batch_size=2)

    hooks = ("on_train_batch_end", "on_validation_batch_end")
    own = {name: wraps(getattr(L.Callback, name))(lambda _, *args: log(*args[:2])) for name in hooks}
    callback: L.Callback = type("Wrapped", (L.Callback,), own)()
    return callback


def longer(trainer: L.Trainer) -> None:
    trainer.fit_loop.max_epochs += 1  # type: ignore[operator]


def lambda_callback() -> L.Callback:
    return lightning_callbacks.LambdaCallback(
        on_train_batch_end=lambda trainer, module, *_: module.log(
            "lambda", float(trainer.global_step), batch_size=2
        ),
        on_train_epoch_end=lambda trainer, module: module.log(
            "lambda/epoch", float(trainer.current_epoch), batch_size=2
        ),
    )


CALLBACKS: dict[str, Change] = {
    "none": no_change,
    "early stopping": callback(lightning_callbacks.EarlyStopping, "val/seen", patience=0),
    "early stopping on train": callback(
        lightning_callbacks.EarlyStopping, "train/seen", patience=0, check_on_train_epoch_end=True
    ),
    "early stopping in validation": callback(
        lightning_callbacks.EarlyStopping, "val/seen", stopping_threshold=9.0, check_on_train_epoch_end=False
    ),
    "checkpoint": checkpoint(),
    "checkpoint, best": checkpoint(monitor="val/seen", save_last=True, filename="{epoch}-{step}"),
    "checkpoint, all": checkpoint(save_top_k=-1, monitor="train/seen", save_on_train_epoch_end=True),
    "checkpoint, steps": checkpoint(every_n_train_steps=2, save_top_k=-1, save_weights_only=True),
    "checkpoint, steps and last": checkpoint(every_n_train_steps=3, save_last="link"),
    "checkpoint, time": checkpoint(train_time_interval=timedelta(seconds=4), save_top_k=-1),
    "checkpoint, validation": checkpoint(save_on_train_epoch_end=False, every_n_epochs=2, save_top_k=-1),
    "checkpoint, two": all_of(
        checkpoint(monitor="val/seen", filename="best"),
        checkpoint(every_n_train_steps=1, filename="last", enable_version_counter=False),
    ),
    "on exception": in_folder(lambda folder: lightning_callbacks.OnExceptionCheckpoint(folder / "failed")),
    "timer": callback(lightning_callbacks.Timer, {"seconds": 13}, interval="step"),
    "timer, epoch": callback(lightning_callbacks.Timer, {"seconds": 13}, interval="epoch"),
    "swa": callback(lightning_callbacks.StochasticWeightAveraging, swa_lrs=0.01, swa_epoch_start=1),
    "weight averaging": callback(lightning_callbacks.WeightAveraging),
    "ema": callback(lightning_callbacks.EMAWeightAveraging, decay=0.9),
    "accumulation scheduler": callback(lightning_callbacks.GradientAccumulationScheduler, {0: 1, 1: 3}),
    "rich bar": shown(lightning_callbacks.RichProgressBar),
    "tqdm bar": shown(lightning_callbacks.TQDMProgressBar, refresh_rate=2),
    "throughput": callback(lightning_callbacks.ThroughputMonitor, batch_size_fn=lambda _: 2, window_size=3),
    "lr monitor": callback(lightning_callbacks.LearningRateMonitor, log_momentum=True),
    "lr monitor, epoch": callback(lightning_callbacks.LearningRateMonitor, "epoch"),
    "device stats": steady_stats,
    "finetuning": callback(
        lightning_callbacks.BackboneFinetuning, unfreeze_backbone_at_epoch=1, verbose=False
    ),
    "lambda": callback(lambda_callback),
    "wrapped": callback(wrapped_hooks),
    "lr finder": callback(lightning_callbacks.LearningRateFinder, num_training_steps=3, min_lr=1e-3),
    "batch size finder": callback(lightning_callbacks.BatchSizeFinder, max_trials=1),
    "pruning": callback(lightning_callbacks.ModelPruning, "l1_unstructured", amount=0.3),
    "summary": all_of(
        callback(lightning_callbacks.ModelSummary), callback(lightning_callbacks.RichModelSummary)
    ),
    "assay ema": callback(EMA, decay=0.9),
    "assay swa": callback(SWA, start_fraction=0.5),
    "assay seeds": callback(SeedEachStep, 3),
    "assay non finite": callback(NonFinite, every_n_steps=3),
    "assay log": all_of(callback(RunLog), callback(LRMonitor)),
    "assay bar": shown(ProgressBar),
}

AXES: dict[str, dict[str, Change]] = {
    "observer": {level: set_to("observer", level) for level in ("hooks", "all", "none", "odd", "even")},
    "callbacks": CALLBACKS,
    "precision": {
        "32": no_change,
        "bf16-mixed": trainer(precision="bf16-mixed"),
        "16-mixed": trainer(plugins=half_precision),
        "64-true": trainer(precision="64-true"),
    },
    "accumulation": {"1": no_change, "3": trainer(accumulate_grad_batches=3)},
    "clipping": {
        "none": no_change,
        "norm": trainer(gradient_clip_val=0.1),
        "value": trainer(gradient_clip_val=0.05, gradient_clip_algorithm="value"),
    },
    "scheduler": {
        name: module(scheduler=name)
        for name in (
            "none",
            "step",
            "epoch",
            "step 2",
            "epoch 2",
            "plateau epoch",
            "plateau step",
            "plateau step 2",
        )
    },
    "validation": {
        "1.0": no_change,
        "0.5": trainer(val_check_interval=0.5),
        "2": trainer(val_check_interval=2),
        "3, across epochs": trainer(val_check_interval=3, check_val_every_n_epoch=None),
        "9, across epochs": trainer(val_check_interval=9, check_val_every_n_epoch=None),
        "every 2 epochs": trainer(check_val_every_n_epoch=2),
        "0.5, every 2 epochs": trainer(check_val_every_n_epoch=2, val_check_interval=0.5),
        "by time": trainer(val_check_interval="00:00:00:03"),
        "by time, across epochs": trainer(val_check_interval="00:00:00:07", check_val_every_n_epoch=None),
    },
    "length": {
        "3 epochs": no_change,
        "no epoch": trainer(max_epochs=0),
        "max_steps": trainer(max_steps=10),
        "max_steps alone": trainer(max_epochs=-1, max_steps=9),
        "max_time": trainer(max_epochs=-1, max_time="00:00:00:20"),
        "min_epochs": trainer(min_epochs=3, max_epochs=4),
        "min_steps": trainer(min_steps=16, max_epochs=4),
    },
    "limits": {
        "none": no_change,
        "half": trainer(limit_train_batches=0.5, limit_val_batches=0.5),
        "few": trainer(limit_train_batches=3, limit_val_batches=1),
        "no validation": trainer(limit_val_batches=0),
        "no training": trainer(limit_train_batches=0),
        "overfit": trainer(overfit_batches=2),
        "fast": trainer(fast_dev_run=True),
        "fast 2": trainer(fast_dev_run=2),
    },
    "sanity": {
        "2": no_change,
        "0": trainer(num_sanity_val_steps=0),
        "-1": trainer(num_sanity_val_steps=-1),
        "1": trainer(num_sanity_val_steps=1),
    },
    "optimization": {
        name: module(optimization=name) for name in ("automatic", "manual", "manual, two", "lbfgs")
    },
    "returns": {
        name: module(returns=name) for name in ("loss", "dict", "sometimes none", "none", "skip", "nan")
    },
    "logs": {
        "step": no_change,
        "epoch": module(logs="epoch"),
        "both": module(logs="both"),
        "synced": module(logs="synced"),
        "none": module(logs="none"),
        "everywhere": all_of(module(logs="both"), set_to("logs", True)),
    },
    "log steps": {
        "2": no_change,
        "1": trainer(log_every_n_steps=1),
        "5": trainer(log_every_n_steps=5),
        "0": trainer(log_every_n_steps=0),
    },
    "data": {name: set_to("data", name) for name in ("one", "two", "stream")},
    "signature": {
        "usual": no_change,
        "no index": module(kind="no index"),
    },
    "reload": {
        "never": no_change,
        "1": trainer(reload_dataloaders_every_n_epochs=1),
        "2": trainer(reload_dataloaders_every_n_epochs=2),
    },
    "profiler": {"none": no_change, "simple": trainer(profiler=partial(SimpleProfiler, extended=False))},
    "other": {
        "none": no_change,
        "deterministic": trainer(deterministic=True),
        "anomalies": trainer(detect_anomaly=True),
        "barebones": trainer(barebones=True, logger=False, log_every_n_steps=0, num_sanity_val_steps=0),
        "instance": prepared(hook_on_instance),
        "no hook": prepared(no_hook),
        "no inference mode": trainer(inference_mode=False),
    },
    "deed": {
        "none": no_change,
        "stop in step": set_to("act", ("module.training_step", 5, set_stop)),
        "stop at batch start": set_to("act", ("callback.on_train_batch_start", 10, set_stop)),
        "stop at batch end": set_to("act", ("module.on_train_batch_end", 3, set_stop)),
        "stop after validation": set_to("act", ("callback.on_validation_end", 3, set_stop)),
        "stop at epoch start": set_to("act", ("module.on_train_epoch_start", 2, set_stop)),
        "stop at train start": set_to("act", ("callback.on_train_start", 1, set_stop)),
        "failure": set_to("act", ("module.on_after_backward", 4, partial(fail, ValueError))),
        "failure in validation": set_to("act", ("module.validation_step", 4, partial(fail, OSError))),
        "interrupt": set_to("act", ("callback.on_train_batch_end", 9, partial(fail, KeyboardInterrupt))),
        "a callback more": set_to("act", ("callback.on_train_epoch_start", 2, add_callback)),
        "longer": set_to("act", ("module.on_train_epoch_end", 2, longer)),
    },
    "calls": {
        "fit": no_change,
        "fit, all": set_to("calls", ("fit", "validate", "test", "predict")),
        "no fit": set_to("calls", ("validate", "test", "predict", "validate")),
        "validate, fit": set_to("calls", ("validate", "fit")),
        "more": set_to("calls", ("fit", "validate", "more")),
    },
}


def make_case(row: dict[str, str]) -> Case:
    """The case with these values; where an axis is not named, with its first one."""
    case = Case()
    for axis, value in row.items():
        AXES[axis][value](case)
    return case
