"""What is known about a job before it runs, what of the job decides that, and what `assay check` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lightning as L


@final
@dataclass(frozen=True)
class Memory:
    """Bytes on the device at the fullest moment of a step.

    Attributes:
        weights: Parameters and buffers.
        gradients: One for each trainable parameter.
        optimizer: What the optimizer keeps.
        activations: What is left of the peak: outputs kept for the backward pass, and passing values.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def peak(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


@final
@dataclass(frozen=True)
class Step:
    """What a step comes to.

    Attributes:
        outputs: Shape of the model's outputs.
        flops: Of forward and backward of one batch, counting a multiplication and an addition as two.
        memory: At its peak, which is the sum of its parts.
    """

    outputs: tuple[int, ...]
    flops: int
    memory: Memory


@final
@dataclass(frozen=True)
class Report:
    """What `assay check` found; a job with an error has none.

    Attributes:
        overrides: What was typed.
        name: Of the run.
        spec: What the data tells, with `steps_per_epoch` and `total_steps`; empty where a datamodule of
            somebody's own tells nothing. `total_steps` is None where nobody knows it.
        data_read: Whether the data had to be read, because its YAML does not state a `spec`.
        targets: Short names of model, loss, optimizer and scheduler.
        batch_size: Samples a step and device; 0 where the data has no such key.
        devices: Processes of the job.
        parameters: Numbers in the model; None where they are known only after a first batch.
        trainable: Of these, the ones the optimizer changes.
        step: What a step comes to; None where it is unproven.
        unproven: Why a step could not be proven without data; empty where it was.
        scores: Names of the metrics that training, validation and test will log; empty where nobody knows.
        directions: `min` or `max` for each score whose metric says which is better.
        lr: Learning rate at each step of the run (of the fastest parameter group); empty where it was not
            asked for.
        lr_note: What the curve does not show.
        notes: What the user should know although the job can run, a sentence each.
        may_end_early: Whether time or a callback may end the run before `total_steps`.
        warnings: Probable mistakes; the job can still run.
        seconds: The check took.
    """

    overrides: Sequence[str]
    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    data_read: bool = False
    targets: Mapping[str, str] = field(default_factory=dict)
    batch_size: int = 0
    devices: int = 1
    parameters: int | None = None
    trainable: int | None = None
    step: Step | None = None
    unproven: str = ""
    scores: Sequence[str] = ()
    directions: Mapping[str, str] = field(default_factory=dict)
    lr: Sequence[float] = ()
    lr_note: str = ""
    notes: Sequence[str] = ()
    may_end_early: bool = False
    warnings: Sequence[str] = ()
    seconds: float = 0.0


@final
@dataclass(frozen=True)
class Proof:
    """A job that can run."""

    report: Report
    datamodule: L.LightningDataModule | None = None
    trainer: tuple[L.Trainer, Any] | None = None
    """With what it was made from: the run takes it where that is still so once its data was read."""
    parts: tuple[Mapping[str, Any], Any] | None = None
    """All of the module's parts but the model, likewise."""
