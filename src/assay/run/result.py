"""What a run came to."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from assay.record.outcome import exit_code
from assay.targets.objects import given

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import lightning as L

    from assay.record.outcome import Cause, Status
    from assay.run.predict.predictor import Predictor

OWN_LOOPS: Final = "its trainer has loops of its own: it cannot be resumed"


@final
@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_dir: Where everything about it lies.
        status: `finished`, `failed`, `interrupted` or `pruned`.
        metrics: Last value of each scalar, such as `test/accuracy`.
        best: Monitored metric, its value and the epoch of the best checkpoint; empty without one.
        overrides: What was typed.
        seconds: Spent in the run, over all segments.
        reason: How it ended, when not well.
        signal: Name of the signal that interrupted it.
        cause: Kind of the failure; see `assay.record.outcome.Cause`.
        warnings: What the test says of a model that is of no use, such as that it predicts one class for all.
        parameters: Numbers in the model; None where the run ended before it was made.
        trainable: Of these, the ones the optimizer changes.
        notes: What the user should know of the data, the model and the config, a sentence each.
        baseline: What a simple model scores on the same test samples, and what to type where it is as good;
            empty where there is none.
        threshold: Of two classes, the probability from which on `predict` says the second one, with its
            precision and recall on the test; empty where none was chosen.
        curves: A row an epoch or logged step, as CSV; None where the run writes none.
        module: What was trained, where that was in this process; of a finished run on the weights of its best
            checkpoint.
        trainer: What trained it, likewise.
    """

    run_dir: Path
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seconds: float = 0.0
    reason: str = ""
    signal: str = ""
    cause: Cause = ""
    warnings: Sequence[str] = ()
    parameters: int | None = None
    trainable: int | None = None
    notes: Sequence[str] = ()
    baseline: Mapping[str, Any] = field(default_factory=dict)
    threshold: Mapping[str, Any] = field(default_factory=dict)
    curves: Path | None = None
    module: L.LightningModule | None = field(default=None, repr=False)
    trainer: L.Trainer | None = field(default=None, repr=False)
    _objects: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _trusted: Sequence[str] = field(default=(), repr=False)

    @functools.cached_property
    def predictor(self) -> Predictor:
        """As `assay.load` gives it: the model on its best checkpoint's weights, behind what its data does.

        Raises:
            AssayError: As for `assay.load`.
        """
        from assay.run.load import load

        with given(self._objects):
            return load(self.run_dir, trusted_packages=self._trusted)

    @property
    def can_be_resumed(self) -> bool:
        """Whether it was interrupted, and `assay resume` goes on with it."""
        return self.status == "interrupted" and OWN_LOOPS not in self.reason

    @property
    def exit_code(self) -> int:
        """0 finished or pruned, 130 stopped by hand, 129 terminal closed, 143 told to stop, 1 otherwise."""
        return exit_code(self.status, self.signal)
