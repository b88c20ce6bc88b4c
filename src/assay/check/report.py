"""What is known about a job before it runs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from assay.check.proof.proof_key import trainer_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lightning as L
    from omegaconf import DictConfig

    from assay.check.proof.fake_step import Step


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
        warnings: What may be meant, but is not what most would want.
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
    """A job that can run.

    Attributes:
        report: What was found.
        datamodule: What had to be read to know the `spec`; its run need not read it again.
        trainer: What was built to be looked at, what it was made from, and what it had to say.
    """

    report: Report
    datamodule: L.LightningDataModule | None = None
    trainer: tuple[L.Trainer, str, Sequence[warnings.WarningMessage]] | None = None

    def trainer_for(self, config: DictConfig) -> L.Trainer | None:
        """The trainer for the job's run; None where another one is needed, now that its data was read.

        Args:
            config: The job with its `spec`.
        """
        if self.trainer is None or self.trainer[1] != trainer_key(config):
            return None
        for one in self.trainer[2]:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return self.trainer[0]
