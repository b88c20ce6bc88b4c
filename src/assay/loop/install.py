"""Puts assay's loops into Lightning's trainer, and the paths of a run that was moved into its callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor
from typing_extensions import override

from assay.loop.evaluation_loop import EvaluationLoop
from assay.loop.fit_loop import FitLoop
from assay.loop.lightning_checkpoint_internals import was_changed
from assay.loop.micro_batch import MicroBatch

if TYPE_CHECKING:
    import lightning as L


def install(trainer: L.Trainer, micro_batch: int | Literal["auto"] | None = None) -> None:
    """Give a trainer loops that do what Lightning's do, and can go on after any step.

    Args:
        trainer: That has not run yet.
        micro_batch: The most samples that are computed at a time, see `MicroBatch`; None: the batch.
    """
    trainer.fit_loop = FitLoop(trainer.fit_loop)
    trainer.fit_loop.epoch_loop.micro_batch = None if micro_batch is None else MicroBatch(micro_batch)
    trainer.validate_loop = EvaluationLoop.like(trainer.validate_loop)
    trainer.test_loop = EvaluationLoop.like(trainer.test_loop)


_PATHS: Final = ("best_model_path", "kth_best_model_path", "last_model_path")


@final
class MovedRun(Callback):
    """Has callbacks look for the checkpoints they keep where the run directory is now."""

    @override
    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Change the paths in the states of callbacks, which are about to be given them.

        Raises:
            AssayError: A state holds what no callback has written.
        """
        for callback in trainer.checkpoint_callbacks:
            state = checkpoint["callbacks"].get(callback.state_key)
            if isinstance(callback, ModelCheckpoint) and state:
                _judge(state)
                _move(callback, state)


def _judge(state: dict[str, Any]) -> None:
    """Refuse paths that are no text, no folder, and scores that are no numbers."""
    scores = state.get("best_k_models")
    fine = {name: type(state.get(name)) is str for name in ("dirpath", *_PATHS)}
    fine["dirpath"] = fine["dirpath"] and state["dirpath"] != ""
    fine["best_k_models"] = isinstance(scores, dict) and all(
        isinstance(one, Tensor) for one in scores.values()
    )
    for name, is_fine in fine.items():
        if not is_fine:
            raise was_changed(name, state.get(name), ModelCheckpoint)


def _move(callback: ModelCheckpoint, state: dict[str, Any]) -> None:
    before, now = state["dirpath"], str(callback.dirpath)

    def moved(path: str) -> str:
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
