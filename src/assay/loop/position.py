"""Where training is: all that a run which goes on has to know of its way so far."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, final

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Phase(StrEnum):
    """What of an epoch is done.

    An epoch is `EPOCH_START`, then for each batch `BATCH_START, STEP, BATCH_END` and, where it is time,
    `VALIDATION, VALIDATION_END`, then `BATCH_START, SCORES, EPOCH_END`.

    `BATCH_START` begins when all of the batch before is done, and lasts while the next one is read. The three
    that end something begin when all callbacks but those that save checkpoints have been called: a checkpoint
    then holds what they did, and what is left to do are the hooks of `Checkpoint` callbacks and what follows.
    One that is saved during `STEP`, `VALIDATION` or `SCORES`, while the epoch's scores are looked at, is of
    half-done work, from which no run goes on.
    """

    EPOCH_START = "epoch_start"
    BATCH_START = "batch_start"
    STEP = "step"
    BATCH_END = "batch_end"
    VALIDATION = "validation"
    VALIDATION_END = "validation_end"
    SCORES = "scores"
    EPOCH_END = "epoch_end"
    TRAIN_END = "train_end"


HALF_DONE: Final = (Phase.STEP, Phase.VALIDATION, Phase.SCORES)


@final
@dataclass(frozen=True)
class Position:
    """Epoch, batches done in it, and phase.

    Attributes:
        epoch: From 0.
        batch: Batches of the epoch whose step is done.
        phase: See `Phase`.
    """

    epoch: int
    batch: int
    phase: Phase

    def as_state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {**asdict(self), "phase": str(self.phase)}

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Position:
        """The position that a checkpoint holds; the file may be anybody's.

        Args:
            state: Of `as_state`.

        Raises:
            AssayError: It is not one from which a run can go on.
        """
        epoch, batch, phase = (state.get(name) for name in ("epoch", "batch", "phase"))
        counts = all(type(one) is int and one >= 0 for one in (epoch, batch))
        if not counts or not isinstance(phase, str) or phase not in set(Phase) - {*HALF_DONE}:
            raise AssayError(f"the checkpoint says epoch {epoch!r:.40}, batch {batch!r:.40}, {phase!r:.40}")
        return cls(epoch, batch, Phase(phase))  # type: ignore[arg-type]  # looked at above
