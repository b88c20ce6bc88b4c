"""Where in the life of a run a checkpoint was saved, and what of it Lightning leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint, WeightAveraging
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from assay.errors import AssayError
from assay.loop.logged_results import results_state
from assay.torch_internals import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lightning as L

KEY: Final = "resume_point"
_KEPT: Final[dict[type, dict[str, type]]] = {
    ModelCheckpoint: {
        "_last_global_step_saved": int,
        "_last_checkpoint_saved": str,
        "_defer_save_until_validation": bool,
    },
    WeightAveraging: {"_latest_update_epoch": int},
}
"""What callbacks keep for themselves and leave out of their state."""
_PATHS: Final = ("best_model_path", "kth_best_model_path", "last_model_path")
_BETWEEN: Final = ("epoch_start", "batch_start")
_RESUMABLE: Final = (*_BETWEEN, "batch_end", "validation_end", "epoch_end", "train_end")


@final
class ResumePoint(Callback):
    """Notes in each checkpoint from which point of the loop on a run that loads it has to go on.

    A checkpoint is saved in the middle of something: after an optimizer step and before its validation, after
    the validation and before the plateau scheduler looks at it, at the end of an epoch whose row is not yet
    written. Lightning 2.6 goes on with the next batch or epoch, and what was left to do is lost. With this
    note, `PickUp` does the rest first. The note holds what the rest needs: the metrics so far, whether
    training was to stop, how many rows metrics.csv had; and, for each process, gradients that are being
    accumulated, buffers, and what has been logged in the epoch so far.

    First of all callbacks, so that a checkpoint saved by any other one is saved after the note was made.

    Attributes:
        phase: The hook that was entered last.
        outputs: Of the last training step, until the next one.
        loaded: The note of the checkpoint that this run goes on from.
    """

    def __init__(self) -> None:
        self.phase = "batch_start"
        self.outputs: Any = None
        self.loaded: dict[str, Any] | None = None
        self._csv: Any = None
        self._mark: dict[str, Any] = {}
        self._max_steps: int | None = None
        self._claimed: set[str] = set()

    # -- where training is ---------------------------------------------------------------------------------

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Find the log that can be cut back to a checkpoint."""
        loggers = (logger for logger in trainer.loggers if hasattr(logger, "rewind"))
        self._csv = next(loggers, None)

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Drop the rows that will be written again, and let the number of steps count again."""
        if self.loaded is not None and self._csv is not None:
            self._csv.rewind(self.loaded["log"])
        if self._max_steps is not None:
            trainer.fit_loop.epoch_loop.max_steps, self._max_steps = self._max_steps, None
        self._claimed = claimed(trainer)

    @override
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """An epoch begins."""
        self._begin("epoch_start")

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """A step begins."""
        self._begin("batch_start")

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A step has changed the weights, and is not yet validated or logged."""
        self.phase, self.outputs = "batch_end", outputs

    @override
    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validation begins; what is saved in the middle of it may hold averaged weights."""
        self.phase = "validation"

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Validation is over and logged."""
        self.phase = "validation_end"

    @override
    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The metrics of an epoch are known and not yet logged."""
        self.phase = "epoch_end"

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Training is over."""
        self.phase = "train_end"

    def _between_epochs(self, trainer: L.Trainer) -> bool:
        """Whether no batch has been trained of an epoch that is not over."""
        progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        begun = progress.processed
        return self.phase in ("epoch_start", "epoch_end", "train_end") or (
            self.phase == "batch_start" and not begun
        )

    def _begin(self, phase: str) -> None:
        self.phase, self.outputs = phase, None
        if self._csv is not None:
            self._mark = self._csv.mark()

    # -- into the checkpoint -------------------------------------------------------------------------------

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the note."""
        progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
        whole = self.phase in _RESUMABLE and not (
            self.phase in _BETWEEN and progress.started != progress.processed
        )
        log = None if self._csv is None else self._csv.position()
        if log is not None and self.phase in _BETWEEN:
            log |= self._mark
        own = _own_state(trainer, pl_module, pending=self.phase in ("batch_start", *_RESUMABLE[2:4]))
        # A callback removes what this checkpoint takes the place of once it is saved, and may not come to it.
        before, self._claimed = self._claimed, claimed(trainer)
        checkpoint[KEY] = {
            "dropped": sorted(Path(path).name for path in before - self._claimed),
            "phase": self.phase if whole else "",
            "epoch_lost": only_whole_epochs(trainer) and not self._between_epochs(trainer),
            "loss": self.outputs["loss"] if _has_loss(self.outputs) else None,
            "log": log,
            "should_stop": bool(trainer.should_stop),
            "metrics": {
                name: value.detach().clone()
                for name, value in trainer.callback_metrics.items()
                if isinstance(value, Tensor)
            },
            "callbacks": {
                kept.state_key: _bookkeeping(kept)
                for kept in trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
                if isinstance(kept, (ModelCheckpoint, WeightAveraging))
            },
            "processes": _gathered(own, trainer.world_size),
        }

    # -- and out of it -------------------------------------------------------------------------------------

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take the note, and have Lightning's loops begin after the last step, whatever was left to do."""
        if trainer.state.fn != TrainerFn.FITTING or KEY not in checkpoint:
            return
        self.loaded = checkpoint[KEY]
        _at_a_step(checkpoint["loops"]["fit_loop"], self.loaded["phase"])
        _move(trainer, checkpoint)
        # A run whose last step is done would not even start, and what comes after that step would be lost.
        loop = trainer.fit_loop.epoch_loop
        self._max_steps, loop.max_steps = loop.max_steps, -1


def only_whole_epochs(trainer: L.Trainer) -> bool:
    """Whether a run can go on at the start of an epoch only, because its data can only be read from there.

    Args:
        trainer: In fit.
    """
    return any(getattr(loader, "exact", True) is False for loader in tree_leaves(trainer.train_dataloader))


def _at_a_step(fit_loop: dict[str, Any], phase: str) -> None:
    """Rewrite Lightning's progress as if the last step were over and its epoch not.

    Lightning guesses from small differences between its counters what to do next, and skips the validation
    and the end of the epoch that a step was saved before.
    """
    epoch = fit_loop["epoch_progress"]
    done = epoch["current"]["completed"] - (phase == "train_end")
    begun = done if phase == "epoch_start" else done + 1
    for counters in (epoch["current"], epoch["total"]):
        counters |= {"ready": begun, "started": begun, "processed": done, "completed": done}
    batches = fit_loop["epoch_loop.batch_progress"]
    for counters in (batches["current"], batches["total"]):
        steps = counters["processed"]
        counters |= {"ready": steps, "started": steps, "completed": steps}


def _move(trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
    """A run directory may have been moved: its checkpoints are where the callbacks now say."""
    for callback in trainer.checkpoint_callbacks:
        state = checkpoint["callbacks"].get(callback.state_key)
        if not isinstance(callback, ModelCheckpoint) or not state or not state.get("dirpath"):
            continue
        before, now = str(state["dirpath"]), str(callback.dirpath)

        def moved(path: str, before: str = before, now: str = now) -> str:
            inside = path and ".." not in Path(path).parts and Path(path).is_relative_to(before)
            # What lies elsewhere is not this run's: Lightning would remove it for a better one.
            return str(Path(now) / Path(path).relative_to(before)) if inside else ""

        state["dirpath"] = callback.dirpath
        for name in _PATHS:
            state[name] = moved(state[name])
        kept = {moved(path): score for path, score in state["best_k_models"].items()}
        state["best_k_models"] = best = {path: score for path, score in kept.items() if path}
        if best and state["kth_best_model_path"] not in best:  # Lightning looks its score up
            worst = max if callback.mode == "min" else min
            state["kth_best_model_path"] = worst(best, key=best.__getitem__)


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


def _bookkeeping(callback: ModelCheckpoint | WeightAveraging) -> dict[str, Any]:
    """What the callback does not put into its own state."""
    return {name: getattr(callback, name) for name in _kinds(callback)}


def _kinds(callback: object) -> dict[str, type]:
    return next((kinds for kind, kinds in _KEPT.items() if isinstance(callback, kind)), {})


def take_up_bookkeeping(callback: Callback, state: Mapping[str, Any]) -> None:
    """Give a callback back what a checkpoint says of it; the file may be anybody's.

    Args:
        callback: Any.
        state: From the note of a checkpoint.

    Raises:
        AssayError: It says something that is never written there.
    """
    kinds = _kinds(callback)
    for name, value in state.items():
        if type(value) is not kinds.get(name):
            raise AssayError(
                f"the checkpoint says {name}={value!r:.80} of {type(callback).__name__}: it was changed"
            )
        setattr(callback, name, value)


def _has_loss(outputs: Any) -> bool:
    return isinstance(outputs, dict) and isinstance(outputs.get("loss"), Tensor)


def _own_state(trainer: L.Trainer, pl_module: L.LightningModule, *, pending: bool) -> dict[str, Any]:
    loop = trainer.fit_loop.epoch_loop
    progress: Any = loop.batch_progress.current
    inner = progress.processed % trainer.accumulate_grad_batches != 0
    accumulating = pending and (
        not pl_module.automatic_optimization or (inner and not loop._num_ready_batches_reached())
    )
    state: dict[str, Any] = {"logged": results_state(loop._results)}
    if hasattr(pl_module, "epoch_state"):
        state["module"] = pl_module.epoch_state()  # type: ignore[operator]  # the module's own
    if accumulating:
        named = pl_module.named_parameters()
        state["gradients"] = {name: p.grad for name, p in named if p.grad is not None}
    if trainer.world_size > 1:
        state["buffers"] = [dict(module.named_buffers()) for module in averaged_too(trainer, pl_module)]
        # Whether the first process hands its buffers on before the next batch; a new wrapper would.
        wrapper = trainer.strategy.model
        if isinstance(wrapper, DistributedDataParallel):
            state["buffers_due"] = wrapper.require_forward_param_sync
    return state


def averaged_too(trainer: L.Trainer, pl_module: L.LightningModule) -> list[torch.nn.Module]:
    """The module, and the averaged copies that callbacks keep of it.

    Args:
        trainer: In fit.
        pl_module: What is trained.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
    copies = (kept._average_model for kept in callbacks if isinstance(kept, WeightAveraging))
    return [pl_module, *(copy for copy in copies if copy is not None)]


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
