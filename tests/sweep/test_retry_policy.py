from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from assay.record.outcome import Outcome
from assay.sweep.job_spec import Retry
from assay.sweep.scheduler import Policy, after_failure

if TYPE_CHECKING:
    from pathlib import Path

JOB: dict[str, Any] = {"data": {"batch_size": 64}, "trainer": {"accumulate_grad_batches": 3}}
PASSING = Outcome("failed", "killed")
LASTING = Outcome("failed", "exception")
OOM = Outcome("failed", "out_of_memory")


def test_only_what_may_end_differently_is_retried() -> None:
    retry = Policy(on_failure="retry", max_retries=2)
    assert after_failure(retry, PASSING, 0, JOB) == Retry(resume=True)
    assert after_failure(retry, PASSING, 1, JOB) == Retry(resume=True)
    assert after_failure(retry, PASSING, 2, JOB) is None
    assert after_failure(retry, LASTING, 0, JOB) is None
    assert after_failure(retry, OOM, 0, JOB) is None
    assert after_failure(Policy(), PASSING, 0, JOB) is None
    assert after_failure(Policy(on_failure="stop"), PASSING, 0, JOB) is None


def test_a_batch_is_halved_until_it_cannot_be() -> None:
    policy = Policy(on_out_of_memory="halve_batch", max_retries=10)
    job: dict[str, Any] = {"data": {"batch_size": 12}, "trainer": {}}
    changes: tuple[str, ...] = ()
    seen: list[tuple[str, ...]] = []
    for retries in range(10):
        retry = after_failure(policy, OOM, retries, job, changes)
        if retry is None:
            break
        assert not retry.resume
        changes = retry.changes
        seen.append(changes)
    assert seen == [
        ("data.batch_size=6", "trainer.accumulate_grad_batches=2"),
        ("data.batch_size=3", "trainer.accumulate_grad_batches=4"),
    ]
    assert after_failure(policy, OOM, 0, JOB).changes[1] == "trainer.accumulate_grad_batches=6"  # type: ignore[union-attr]  # there is one
    assert after_failure(policy, OOM, 0, {"data": {}, "trainer": {}}) is None
    assert after_failure(policy, LASTING, 0, JOB) is None


@pytest.mark.parametrize("wrong", [{"max_retries": -1}, {"timeout_min": 0.0}, {"memory_gb": -1.0}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Policy(**wrong)


def test_a_batch_size_that_follows_the_data_is_halved_too(tmp_path: Path) -> None:
    policy = Policy(on_out_of_memory="halve_batch", max_retries=10)
    job = {**JOB, "data": {"batch_size": "${oc.select:spec.batch_size,auto}"}, "run_dir": str(tmp_path)}
    assert after_failure(policy, OOM, 0, job) is None, "the run has not come to its data"
    (tmp_path / "config.yaml").write_text("data:\n  batch_size: 32\ntrainer:\n  accumulate_grad_batches: 1\n")
    retry = after_failure(policy, OOM, 0, job)
    assert retry is not None
    assert retry.changes == ("data.batch_size=16", "trainer.accumulate_grad_batches=2")
