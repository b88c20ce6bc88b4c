from __future__ import annotations

from typing import Any

import pytest

from assay.record.outcome import Outcome
from assay.sweep.scheduler import Policy

PASSING = Outcome("failed", "killed")
LASTING = Outcome("failed", "exception")
OOM = Outcome("failed", "out_of_memory")


def test_only_what_may_end_differently_is_retried() -> None:
    retry = Policy(on_failure="retry", max_retries=2)
    assert [retry.retries(PASSING, failures) for failures in range(3)] == [True, True, False]
    assert not any(retry.retries(outcome, 0) for outcome in (LASTING, OOM))
    assert not Policy().retries(PASSING, 0)
    assert not Policy(on_failure="stop").retries(PASSING, 0)


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"timeout_min": 0.0}, {"memory_gb": -1.0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Policy(**wrong)
