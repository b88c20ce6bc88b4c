"""What it means for its weights that a run has not finished."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from omegaconf import OmegaConf

from assay.errors import AssayError
from assay.quoting import counted
from assay.record.run_lock import is_written
from assay.record.run_record import RunRecord
from assay.record.runs.curves import read_curves

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig

_ENDED: Final = {"interrupted": "was interrupted", "failed": "failed", "pruned": "was pruned"}


def unfinished(run_dir: Path, config: DictConfig, checkpoint: Path) -> list[str]:
    """One sentence on where the run ended and which weights these are; none where it has finished."""
    try:
        record = RunRecord.load(run_dir)
    except AssayError:  # of a run that was killed early: `checkpoint_path` has told it
        return []
    if record.status == "finished":
        return []
    ended = _ENDED.get(record.status, "has not ended" if is_written(run_dir) else "was killed")
    epochs = _epochs(run_dir)
    of = OmegaConf.select(config, "trainer.max_epochs")
    if epochs is None:
        when = ""
    elif isinstance(of, int) and of > 0:
        when = f" after {epochs} of {counted(of, 'epoch')}"
    else:
        when = f" after {counted(epochs, 'epoch')}"
    which = "last checkpoint"
    if checkpoint.name == record.checkpoints.get("best"):
        best = record.best.get("epoch")
        which = f"best checkpoint so far{f' (epoch {best})' if isinstance(best, int) else ''}"
    return [f"the run {ended}{when}: these are the weights of its {which}"]


def _epochs(run_dir: Path) -> int | None:
    """How many were trained whole; None where metrics.csv does not tell."""
    with suppress(AssayError):
        curves = read_curves(run_dir).values()
        return max((epoch for curve in curves for epoch in curve.epochs if epoch is not None), default=0)
    return None
