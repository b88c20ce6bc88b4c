"""The checkpoints of a run directory that was moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn

from assay.loop.fit_loop import MovedRun

if TYPE_CHECKING:
    from pathlib import Path


def loaded(kept: dict[str, float], before: Path, now: Path, worst: str = "") -> dict[str, Any]:
    """The state that a callback of the moved run is given, of one that kept these checkpoints."""
    callback = ModelCheckpoint(now, monitor="val/loss", save_top_k=3)
    trainer = L.Trainer(
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.state.fn = TrainerFn.TESTING
    state = callback.state_dict() | {
        "dirpath": str(before),
        "best_k_models": {path: torch.tensor(score) for path, score in kept.items()},
        "best_model_path": min(kept, key=kept.__getitem__),
        "kth_best_model_path": worst or max(kept, key=kept.__getitem__),
    }
    checkpoint: dict[str, Any] = {"callbacks": {callback.state_key: state}}
    MovedRun().on_load_checkpoint(trainer, L.LightningModule(), checkpoint)
    callback.load_state_dict(checkpoint["callbacks"][callback.state_key])
    moved: dict[str, Any] = checkpoint["callbacks"][callback.state_key]
    return moved


def test_what_lay_in_the_run_lies_in_it_now(tmp_path: Path) -> None:
    before, now = tmp_path / "old" / "checkpoints", tmp_path / "new run" / "checkpoints"
    state = loaded({f"{before}/a.ckpt": 0.3, f"{before}/b.ckpt": 0.2}, before, now)
    assert state["dirpath"] == str(now)
    assert list(state["best_k_models"]) == [f"{now}/a.ckpt", f"{now}/b.ckpt"]
    assert state["best_model_path"] == f"{now}/b.ckpt"
    assert state["kth_best_model_path"] == f"{now}/a.ckpt"


def test_what_lies_elsewhere_is_nobodys_to_remove(tmp_path: Path) -> None:
    """A checkpoint could name any file; the callback removes the worst of those it knows."""
    before, now = tmp_path / "old", tmp_path / "new"
    outside = [f"{tmp_path}/thesis.ckpt", f"{before}/../thesis.ckpt"]
    kept = {f"{before}/a.ckpt": 0.1, f"{before}/b.ckpt": 0.2, outside[0]: 0.9, outside[1]: 0.8}
    state = loaded(kept, before, now)
    assert list(state["best_k_models"]) == [f"{now}/a.ckpt", f"{now}/b.ckpt"]
    assert state["kth_best_model_path"] == f"{now}/b.ckpt"  # the worst that is left
