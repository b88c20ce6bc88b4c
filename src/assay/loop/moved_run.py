"""A run directory that was moved since its checkpoint was saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor
from typing_extensions import override

from assay.errors import AssayError

if TYPE_CHECKING:
    import lightning as L

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
    scores = state.get("best_k_models")
    whole = isinstance(scores, dict) and all(isinstance(score, Tensor) for score in scores.values())
    wrong = [name for name in ("dirpath", *_PATHS) if type(state.get(name)) is not str]
    if not whole or wrong or not state["dirpath"]:
        name = "best_k_models" if not whole else (*wrong, "dirpath")[0]
        raise AssayError(
            f"the checkpoint says {name}={state.get(name)!r:.80} of ModelCheckpoint: it was changed"
        )


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
