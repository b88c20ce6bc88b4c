"""What a checkpoint holds besides the position and what Lightning puts into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from assay.loop.lightning_checkpoint_internals import (
    average_of,
    bookkeeping,
    logged_state,
    note_saved,
    take_up_bookkeeping,
    take_up_logged,
)
from assay.loop.lightning_internals import at_last_batch, batches_seen, callback_metrics
from assay.loop.position import Phase
from assay.torch_internals import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable

    import lightning as L


def carried_state(trainer: L.Trainer, phase: Phase) -> dict[str, Any]:
    """What is carried over from the process that saves to the one that goes on.

    Args:
        trainer: In fit.
        phase: In which the checkpoint is saved.

    Returns:
        Whether training was to stop; metrics so far; what callbacks keep for themselves; and of each process
        gradients that are being accumulated, buffers, and what the epoch has logged so far.
    """
    return {
        "should_stop": bool(trainer.should_stop),
        "metrics": {
            name: value.detach().clone()
            for name, value in trainer.callback_metrics.items()
            if isinstance(value, Tensor)
        },
        "callbacks": {
            kept.state_key: bookkeeping(kept)
            for kept in trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
            if isinstance(kept, ModelCheckpoint)
        },
        "validated": batches_seen(trainer.fit_loop.epoch_loop.val_loop),
        "processes": _gathered(_own_state(trainer, phase), trainer.world_size),
    }


def take_up(trainer: L.Trainer, state: dict[str, Any], *, stop: bool) -> None:
    """Put back what `carried_state` gave.

    Args:
        trainer: About to go on.
        state: From a checkpoint.
        stop: Whether a stop that was decided before the checkpoint still holds.

    Raises:
        AssayError: It says what is never written there.
    """
    module, strategy = trainer.lightning_module, trainer.strategy
    trainer.should_stop = stop and state["should_stop"]
    callback_metrics(trainer).update({n: value.to(module.device) for n, value in state["metrics"].items()})
    for callback in trainer.callbacks:  # type: ignore[attr-defined]  # a plain attribute
        take_up_bookkeeping(callback, state["callbacks"].get(callback.state_key, {}))
        if isinstance(callback, ModelCheckpoint) and _has_saved(callback, Path(str(trainer.ckpt_path))):
            note_saved(callback, trainer.global_step)
    validation: Any = trainer.fit_loop.epoch_loop.val_loop
    validation.seen_before = dict(state.get("validated", {}))
    own = state["processes"][trainer.global_rank]
    take_up_logged(trainer.fit_loop.epoch_loop, own["logged"])
    if "module" in own:
        module.load_epoch_state(own["module"])  # type: ignore[operator]  # it gave that state
    gradients = own.get("gradients", {})
    for name, parameter in module.named_parameters():
        if name in gradients:
            parameter.grad = gradients[name].to(parameter.device, parameter.dtype)
    with torch.no_grad():
        for one, saved in zip(_averaged_too(trainer), own.get("buffers", ()), strict=False):
            for name, buffer in one.named_buffers():
                buffer.copy_(saved[name])
    if isinstance(strategy.model, DistributedDataParallel) and "buffers_due" in own:
        strategy.model.require_forward_param_sync = own["buffers_due"]


def _own_state(trainer: L.Trainer, phase: Phase) -> dict[str, Any]:
    """Of this process alone."""
    module, loop = trainer.lightning_module, trainer.fit_loop.epoch_loop
    state: dict[str, Any] = {"logged": logged_state(loop)}
    if hasattr(module, "epoch_state"):
        state["module"] = module.epoch_state()  # type: ignore[operator]  # the module's own
    progress: Any = loop.batch_progress.current
    done = progress.processed
    stepped = done % trainer.accumulate_grad_batches == 0 or (done == progress.ready and at_last_batch(loop))
    begun = done > 0 and phase not in (Phase.EPOCH_END, Phase.TRAIN_END)
    if begun and not (stepped and module.automatic_optimization):
        named = module.named_parameters()
        state["gradients"] = {name: p.grad for name, p in named if p.grad is not None}
    if trainer.world_size > 1:
        state["buffers"] = [dict(one.named_buffers()) for one in _averaged_too(trainer)]
        # Whether the first process hands its buffers on before the next batch; a new wrapper would.
        wrapper = trainer.strategy.model
        if isinstance(wrapper, DistributedDataParallel):
            state["buffers_due"] = wrapper.require_forward_param_sync
    return state


def _averaged_too(trainer: L.Trainer) -> list[torch.nn.Module]:
    """The module, and the averaged copies that callbacks keep of it."""
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    copies = (average_of(kept) for kept in callbacks if isinstance(kept, WeightAveraging))
    return [trainer.lightning_module, *(copy for copy in copies if copy is not None)]


def _gathered(own: dict[str, Any], world_size: int) -> list[Any]:
    if world_size == 1:
        return [own]
    every: list[Any] = [None] * world_size
    torch.distributed.all_gather_object(every, _on_cpu(own))
    return every


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(one) for key, one in value.items()}
    return [_on_cpu(one) for one in value] if isinstance(value, list | tuple) else value


def _has_saved(callback: ModelCheckpoint, checkpoint: Path) -> bool:
    """Whether this callback has saved the checkpoint, and would keep a second copy of it now."""
    path = str(checkpoint.parent.resolve() / checkpoint.name)  # as Lightning writes the callback's folder
    several = callback.monitor is None and callback.save_top_k == -1 and callback.best_model_path == path
    return several or path in callback.best_k_models or path == callback.last_model_path


def only_whole_epochs(trainer: L.Trainer) -> bool:
    """Whether a run can go on at the start of an epoch only, because its data can only be read from there.

    Args:
        trainer: In fit.
    """
    return any(getattr(loader, "exact", True) is False for loader in tree_leaves(trainer.train_dataloader))


def claimed(trainer: L.Trainer) -> set[str]:
    """Paths of the checkpoints that the callbacks keep.

    Args:
        trainer: In fit.
    """
    paths: set[str] = set()
    for callback in trainer.checkpoint_callbacks:
        if isinstance(callback, ModelCheckpoint):
            paths |= {*callback.best_k_models, callback.best_model_path, callback.last_model_path}
    return {str(path) for path in paths if path}


def remove_dropped(trainer: L.Trainer, names: Iterable[str]) -> None:
    """Remove what a better checkpoint has taken the place of, should the process have died in between.

    Args:
        trainer: Goes on from `trainer.ckpt_path`.
        names: Files beside that one.
    """
    folder = Path(str(trainer.ckpt_path)).parent
    kept = {Path(path).name for path in claimed(trainer)}
    for name in names:
        if name == Path(name).name and name.endswith(".ckpt") and name not in kept:
            trainer.strategy.remove_checkpoint(folder / name)
