"""Where training is, what else a checkpoint holds, and arguments that have changed since."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.callbacks import (
    Checkpoint,
    EarlyStopping,
    ModelCheckpoint,
    WeightAveraging,
)
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from assay.errors import AssayError
from assay.loop import lightning_internals as internals
from assay.torch_internals import is_traceable_wrapper_subclass, tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lightning as L


class Phase(StrEnum):
    """What of an epoch is done."""

    EPOCH_START = "epoch_start"
    BATCH_START = "batch_start"
    STEP = "step"
    BATCH_END = "batch_end"
    VALIDATION = "validation"
    VALIDATION_END = "validation_end"
    SCORES = "scores"
    EPOCH_END = "epoch_end"
    TRAIN_END = "train_end"


HALF_DONE = (Phase.STEP, Phase.VALIDATION, Phase.SCORES)


@final
@dataclass(frozen=True)
class Position:
    """Epoch, batches done in it, and phase."""

    epoch: int
    batch: int
    phase: Phase

    @classmethod
    def of_state(cls, state: Mapping[str, Any] | None) -> Position:
        """The position that a checkpoint holds."""
        if not state:
            raise AssayError(
                "the checkpoint holds no position to continue from: it is from a trainer with other loops, "
                "has only weights, or was saved in the middle of a step, a validation or the end of an epoch",
                hint="assay train with the same overrides, in another directory; assay eval reads it",
            )
        return cls(int(state["epoch"]), int(state["batch"]), Phase(state["phase"]))


def callback_states(trainer: L.Trainer) -> dict[str, Any]:
    """What callbacks save of themselves, but for those that save checkpoints."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    saved = (callback for callback in callbacks if not isinstance(callback, Checkpoint))
    return {callback.state_key: deepcopy(callback.state_dict()) for callback in saved}


def resume_extras(trainer: L.Trainer, phase: Phase) -> dict[str, Any]:
    """What is carried over from the process that saves to the one that goes on."""
    return {
        "should_stop": bool(trainer.should_stop),
        "metrics": {
            name: value.detach().clone()
            for name, value in trainer.callback_metrics.items()
            if isinstance(value, Tensor)
        },
        "validated": internals.batches_seen(trainer.fit_loop.epoch_loop.val_loop),
        "gradients": _gradients(trainer, phase, sharded=True),
        "processes": _gather(_process_state(trainer, phase), trainer.world_size),
    }


def bookkeeping(trainer: L.Trainer) -> dict[str, Any]:
    """What the callbacks that save know of their files now."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    savers = (callback for callback in callbacks if isinstance(callback, ModelCheckpoint))
    return {"callbacks": {saver.state_key: _bookkeeping(trainer, saver) for saver in savers}}


def copy_tensors(state: dict[str, Any]) -> dict[str, Any]:
    """The same with tensors and containers of its own."""
    copied: dict[str, Any] = tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, state
    )
    return copied


def _bookkeeping(trainer: L.Trainer, callback: ModelCheckpoint) -> dict[str, Any]:
    # So that the best and the last checkpoint of one step hold the same, and are one file.
    path = trainer.fit_loop.saves_to  # type: ignore[attr-defined]  # of assay's loop
    if path is not None and _has_saved(callback, Path(path)):
        return internals.bookkeeping_after(callback, path, trainer.global_step)
    return internals.bookkeeping(callback)


def restore_extras(trainer: L.Trainer, state: dict[str, Any], *, stop: bool) -> None:
    """Restore what `resume_extras` returned."""
    module = trainer.lightning_module
    strategy = trainer.strategy
    trainer.should_stop = stop and state["should_stop"]
    internals.callback_metrics(trainer).update(
        {n: value.to(module.device) for n, value in state["metrics"].items()}
    )
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # a plain attribute
        if saved := state.get("states", {}).get(callback.state_key):
            callback.load_state_dict(saved)
        if isinstance(callback, ModelCheckpoint):
            internals.restore_bookkeeping(
                callback, state["callbacks"].get(callback.state_key, {})
            )
            if _has_saved(callback, Path(str(trainer.ckpt_path))):
                internals.note_saved(callback, trainer.global_step)
    validation: Any = trainer.fit_loop.epoch_loop.val_loop
    validation.seen_before = dict(state.get("validated", {}))
    process_state = state["processes"][trainer.global_rank % len(state["processes"])]
    # what one of several has logged says little about others
    if len(state["processes"]) == trainer.world_size:
        internals.restore_logged(trainer.fit_loop.epoch_loop, process_state["logged"])
    if "module" in process_state:
        module.load_epoch_state(process_state["module"])  # type: ignore[operator]  # it gave that state
    gradients = {**process_state.get("gradients", {}), **state.get("gradients", {})}
    for name, parameter in module.named_parameters():
        if name in gradients:
            parameter.grad = gradients[name].to(parameter.device, parameter.dtype)
    with torch.no_grad():
        for submodule, saved in zip(
            _modules_with_buffers(trainer), process_state.get("buffers", ()), strict=False
        ):
            for name, buffer in submodule.named_buffers():
                buffer.copy_(saved[name])
    if isinstance(strategy.model, DistributedDataParallel) and "buffers_due" in process_state:
        strategy.model.require_forward_param_sync = process_state["buffers_due"]


def settle_buckets(trainer: L.Trainer) -> None:
    """Have DDP lay out its buckets anew now, not after the first step of each process.

    The layout decides in which order the gradients of three and more ranks are added: a run that goes on
    would add those of its first step in another order than a run that was never interrupted.
    """
    ddp = trainer.strategy.model
    if not isinstance(ddp, DistributedDataParallel) or trainer.world_size < 3:
        return
    if ddp.static_graph or ddp.find_unused_parameters:
        return  # the first would take this for its graph, the other one keeps the layout
    module = ddp.module
    parameters = [p for p in ddp.module.parameters() if p.requires_grad]

    def touch_parameters() -> Tensor:
        return torch.stack([0 * parameter.sum().float() for parameter in parameters]).sum()

    forward = module.forward
    module.forward = touch_parameters
    try:
        ddp().backward()
    finally:
        module.forward = forward
    for parameter in parameters:
        parameter.grad = None


def _process_state(trainer: L.Trainer, phase: Phase) -> dict[str, Any]:
    module = trainer.lightning_module
    loop = trainer.fit_loop.epoch_loop
    state: dict[str, Any] = {"logged": internals.logged_state(loop)}
    if hasattr(module, "epoch_state"):
        state["module"] = module.epoch_state()  # type: ignore[operator]  # the module's own
    if gradients := _gradients(trainer, phase, sharded=False):
        state["gradients"] = gradients
    if trainer.world_size > 1:
        state["buffers"] = [
            dict(submodule.named_buffers()) for submodule in _modules_with_buffers(trainer)
        ]
        # Whether the first process hands its buffers on before the next batch; a new wrapper would.
        wrapper = trainer.strategy.model
        if isinstance(wrapper, DistributedDataParallel):
            state["buffers_due"] = wrapper.require_forward_param_sync
    return state


def _gradients(trainer: L.Trainer, phase: Phase, *, sharded: bool) -> dict[str, Tensor]:
    """Of the batches that the next step adds to: those of shards, or those of this process alone."""
    module = trainer.lightning_module
    loop = trainer.fit_loop.epoch_loop
    progress: Any = loop.batch_progress.current
    done = progress.processed
    stepped = done % trainer.accumulate_grad_batches == 0 or (
        done == progress.ready and internals.at_last_batch(loop)
    )
    begun = done > 0 and phase not in (Phase.EPOCH_END, Phase.TRAIN_END)
    if not begun or (stepped and module.automatic_optimization):
        return {}
    every = ((name, parameter.grad) for name, parameter in module.named_parameters())
    return {
        name: grad
        for name, grad in every
        if grad is not None and is_traceable_wrapper_subclass(grad) == sharded
    }


def _modules_with_buffers(trainer: L.Trainer) -> list[torch.nn.Module]:
    """The module, and the averaged copies that callbacks keep of it."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    copies = (
        internals.average_of(callback)
        for callback in callbacks
        if isinstance(callback, WeightAveraging)
    )
    return [trainer.lightning_module, *(copy for copy in copies if copy is not None)]


def _gather(state: dict[str, Any], world_size: int) -> list[Any]:
    # the process that has spawned the others
    if world_size == 1 or not torch.distributed.is_initialized():
        return [state]
    gathered: list[Any] = [None] * world_size
    on_cpu = tree_map(
        lambda leaf: leaf.detach().cpu() if isinstance(leaf, Tensor) else leaf, state
    )
    torch.distributed.all_gather_object(gathered, on_cpu)
    return gathered


def _has_saved(callback: ModelCheckpoint, checkpoint: Path) -> bool:
    """Whether this callback has saved the checkpoint, and would keep a second copy of it now."""
    # as Lightning writes the callback's folder
    path = str(checkpoint.parent.resolve() / checkpoint.name)
    several = (
        callback.monitor is None
        and callback.save_top_k == -1
        and callback.best_model_path == path
    )
    return several or path in callback.best_k_models or path == callback.last_model_path


def resumes_at_epochs_only(trainer: L.Trainer) -> bool:
    """Whether a run can go on at the start of an epoch only, because its data can only be read from there."""
    return any(
        getattr(loader, "exact", True) is False
        for loader in tree_leaves(trainer.train_dataloader)
    )


_PROGRESS = frozenset(
    (
        *("last_epoch", "_step_count", "_last_lr", "base_lrs", "_schedulers"),
        *("best", "num_bad_epochs", "cooldown_counter"),
    )
)
"""What of a scheduler's state says how far it is; all else says what it was built with."""


@final
@dataclass(frozen=True)
class ChangedArguments:
    """What is other than when the run began."""

    optimizer: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    new_schedule: bool = False
    stop: bool = True
    patience: Sequence[tuple[int | None, int]] = ()

    def apply(self, trainer: L.Trainer, built: Sequence[Mapping[str, Any]]) -> None:
        """Change optimizers and schedulers whose state was loaded."""
        if self.new_schedule:
            _reschedule(trainer, built)
        _change_optimizer(trainer, self.optimizer)
        stopping = [one for one in trainer.callbacks if isinstance(one, EarlyStopping)]  # type: ignore[attr-defined]  # a plain attribute
        for callback in stopping:
            for old, new in self.patience:  # Lightning restores the one that was saved
                if old in (None, callback.patience):
                    callback.patience = new
            if not self.stop:
                callback.stopped_epoch = 0
                callback.stopping_reason = EarlyStoppingReason.NOT_STOPPED


def _reschedule(trainer: L.Trainer, fresh: Sequence[Mapping[str, Any]]) -> None:
    """Go on with schedulers as they are now built, at the step they had reached."""
    for config, built in zip(trainer.lr_scheduler_configs, fresh, strict=True):
        scheduler: Any = config.scheduler
        scheduler.load_state_dict(
            {name: value for name, value in built.items() if name not in _PROGRESS}
        )
        if config.reduce_on_plateau:
            continue
        closed = getattr(scheduler, "_get_closed_form_lr", None)
        # the next lr is computed from the last one, which may be zero for good
        if closed is not None:
            for group, lr in zip(scheduler.optimizer.param_groups, closed(), strict=True):
                group["lr"] = lr
            scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _change_optimizer(trainer: L.Trainer, changed: Mapping[str, tuple[Any, Any]]) -> None:
    """Give every parameter group the new value; a learning rate keeps its proportion to the old one."""
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            for name, (old, new) in changed.items():
                if name == "lr":
                    for one in ("lr", "initial_lr", "max_lr", "min_lr"):
                        if one in group:
                            group[one] *= new / old
                elif group.get(name) == old or name not in group:
                    group[name] = new
    if "lr" in changed:
        old, new = changed["lr"]
        for config in trainer.lr_scheduler_configs:
            state = vars(config.scheduler)
            for name in ("base_lrs", "_last_lr"):
                if name in state:
                    state[name] = [lr * new / old for lr in state[name]]
