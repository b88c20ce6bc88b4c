from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import lightning as L


def start_epoch(trainer: L.Trainer, epoch: int | None, fraction: float, name: str) -> float:
    """The epoch, or the share of `trainer.max_epochs`; not rounded."""
    if epoch is not None:
        return epoch
    if trainer.max_epochs is None or trainer.max_epochs < 0:
        raise ValueError(
            f"start_fraction={fraction} is a share of trainer.max_epochs, which is not set; "
            f"give callbacks.{name}.start_epoch or trainer.max_epochs"
        )
    return fraction * trainer.max_epochs
