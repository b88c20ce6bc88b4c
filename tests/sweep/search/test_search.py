from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.record.outcome import Outcome
from assay.sweep.search.search import Proposal, Search

if TYPE_CHECKING:
    from collections.abc import Sequence


class Two(Search):
    """All that a search of one's own has to say."""

    def __init__(self) -> None:
        self.left = [Proposal(("seed=1",)), Proposal(("seed=2",))]

    @property
    def total(self) -> int:
        return 2

    def next(self) -> Proposal | None:
        return self.left.pop(0) if self.left else None

    def restore(self, known: Sequence[Any]) -> None:
        del self.left[: len(known)]


def test_what_is_not_said_is_that_all_jobs_are_known_and_nothing_is_learnt() -> None:
    search = Two()
    assert (search.ahead, search.learns, search.samples()) == (True, False, [])
    search.tell("", Outcome("finished"), [0.5])
    assert search.trial("") is None
    search.restore([("", None, None)])
    assert search.next() == Proposal(("seed=2",), None, "")
    assert search.next() is None
    search.close()
