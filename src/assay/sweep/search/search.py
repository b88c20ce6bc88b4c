"""What a sweep asks of whatever chooses its jobs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.record.run_record import Outcome

Known = tuple[str, "Outcome | None", "Sequence[float] | None"]
"""A proposal's token, how its job ended (None: not yet), and its scores."""


@final
@dataclass(frozen=True)
class Proposal:
    """One job that a search wants to be run."""

    overrides: tuple[str, ...]
    token: str = ""


class Search(ABC):
    """Proposes jobs, hears how they ended, and may propose others for it.

    What is not required stands for a search that knows all its jobs from the start and learns from none.

    Attributes:
        learns: Whether its jobs depend on how others ended: it is made with the objectives and the sweep's
            directory, and says with `samples` what its jobs are like.
    """

    learns: ClassVar[bool] = False

    @property
    @abstractmethod
    def total(self) -> int:
        """Jobs in all, as far as is known now: a pruned trial needs no further seeds."""

    @abstractmethod
    def next(self) -> Proposal | None:
        """The next job; None where there is nothing to start now."""

    @abstractmethod
    def restore(self, known: Sequence[Known]) -> None:
        """Take up a sweep where it was left; called once, before all else.

        Args:
            known: Every proposal of the journal, in order. The sweep runs those without an end again itself.
        """

    def samples(self) -> list[tuple[str, ...]]:
        """Jobs that stand for all others when a sweep is checked, where these are not known ahead."""
        return []

    def tell(self, token: str, outcome: Outcome, scores: Sequence[float] | None) -> None:
        """Say how a job has ended for good; telling it twice changes nothing.

        Args:
            token: Of its proposal.
            outcome: How it ended; one that was interrupted will be run again, and has not ended.
            scores: One per objective; None unless it has finished.
        """
        del token, outcome, scores

    def trial(self, token: str) -> dict[str, Any] | None:
        """What the process of a job gets that was proposed before; see `JobSpec.trial`."""
        return None
