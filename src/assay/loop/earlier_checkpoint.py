"""Checkpoints of before there was a position, from which a run goes on where an epoch was over."""

from __future__ import annotations

from typing import Any, Final

from assay.errors import AssayError
from assay.loop.position import Phase, Position

KEY: Final = "resume_point"
_BETWEEN_EPOCHS: Final = (Phase.EPOCH_START, Phase.EPOCH_END, Phase.TRAIN_END)


def give_position(checkpoint: dict[str, Any]) -> None:
    """Put what an earlier version of assay kept beside Lightning's loops into them, as it is kept now.

    Args:
        checkpoint: Changed in place; one of today stays as it is.

    Raises:
        AssayError: It was saved in the middle of an epoch.
    """
    loops, note = checkpoint.get("loops") or {}, checkpoint.get(KEY)
    if note is None or "position" in loops["fit_loop"]["state_dict"]:
        return
    if note["phase"] not in _BETWEEN_EPOCHS:
        raise AssayError("was saved in the middle of an epoch by an earlier version of assay")
    phase, progress = Phase(note["phase"]), loops["fit_loop"]["epoch_progress"]["current"]
    batches = loops["fit_loop"]["epoch_loop.batch_progress"]["current"]
    position = Position(
        progress["completed"] - (phase is Phase.TRAIN_END),
        0 if phase is Phase.EPOCH_START else batches["processed"],
        phase,
    )
    carried = ("should_stop", "metrics", "callbacks", "processes")
    loops["fit_loop"]["state_dict"] |= {
        "position": position.as_state(),
        "epoch_lost": False,
        "dropped": note.get("dropped", []),
        "log": note["log"],
        "carried": {name: note[name] for name in carried},
    }
