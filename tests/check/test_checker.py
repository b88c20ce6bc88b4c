"""A job is checked once, and a sweep as a whole, quickly."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.check.checker import Checker, Failure, summary_of
from assay.check.job import check_job
from assay.check.prove import Prover
from assay.errors import AssayError, ConfigError, DataError
from assay.sweep.session import check as check_sweep

if TYPE_CHECKING:
    from omegaconf import DictConfig

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "check_sweep.py"


def test_one_report_a_job_in_order() -> None:
    reports = check_sweep(["data=iris,wine", "device=cpu", "trainer.max_epochs=1,2"])
    assert [(report.spec["num_classes"], report.spec["total_steps"]) for report in reports] == [
        (3, 7),
        (3, 14),
        (3, 8),
        (3, 16),
    ]


def test_every_error_is_told_once_with_its_jobs() -> None:
    with pytest.raises(AssayError) as caught:
        check_sweep(["data=iris", "device=cpu", "optimizer.lr=0.1,-1,-2", "optimizer.eps=1e-8,-3"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "5 of 6 jobs cannot run; none was started"
    assert "job 1 (data=iris device=cpu optimizer.lr=0.1 optimizer.eps=-3)" in lines
    assert "job 2 and 1 more (data=iris device=cpu optimizer.lr=-1 optimizer.eps=1e-08)" in lines
    assert (
        "  optimizer.lr: -2 was given; a number above 0 and at most 100 was expected (command line)" in lines
    )
    assert caught.value.exit_code == 2


def test_a_single_job_has_its_own_error() -> None:
    with pytest.raises(AssayError, match=r"^optimizer\.lr: -1 was given; .* \(command line\)"):
        check_sweep(["data=iris", "optimizer.lr=-1"])


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a job's names were looked at, and how often it was proved."""
    counted: Counter[str] = Counter()
    prove = Prover.prove

    def counted_prove(self: Prover, *args: Any, **kwargs: Any) -> Any:
        counted["proofs"] += 1
        return prove(self, *args, **kwargs)

    def counted_names(config: DictConfig) -> None:
        counted["names"] += 1
        check_job(config)

    monkeypatch.setattr(Prover, "prove", counted_prove)
    monkeypatch.setattr("assay.check.checker.check_job", counted_names)
    return counted


def test_a_job_that_was_looked_at_is_not_looked_at_again(calls: Counter[str]) -> None:
    checker = Checker()
    job = checker.job(["data=iris", "device=cpu"])
    assert calls == {"names": 1}
    assert checker.check(job).report.spec["num_classes"] == 3
    assert calls == {"names": 1, "proofs": 1}


def test_jobs_that_differ_in_the_seed_alone_are_checked_once(calls: Counter[str]) -> None:
    reports = check_sweep(["data=iris", "device=cpu", "seed=1,2,3"])
    assert calls == {"names": 1, "proofs": 1}
    assert [report.overrides[-1] for report in reports] == ["seed=1", "seed=2", "seed=3"]


def test_a_seed_is_looked_at_though_its_job_is_known(calls: Counter[str]) -> None:
    with pytest.raises(ConfigError, match=r"^1 of 2 jobs cannot run(.|\n)*seed: "):
        check_sweep(["data=iris", "device=cpu", "seed=1,-1"])
    assert calls == {"names": 1, "proofs": 1}


def test_a_seed_that_decides_about_more_is_checked_each_time(calls: Counter[str]) -> None:
    check_sweep(["data=iris", "device=cpu", "seed=1,2", "optimizer.lr=${seed}"])
    assert calls == {"names": 2, "proofs": 2}


def test_a_number_is_looked_at_too_though_its_words_are_known(calls: Counter[str]) -> None:
    with pytest.raises(AssayError, match=r"1 of 2 jobs cannot run(.|\n)*data\.batch_size"):
        check_sweep(["data=iris", "device=cpu", "data.batch_size=8,-8"])
    assert calls == {"names": 2, "proofs": 1}


@pytest.mark.long
def test_a_further_job_that_differs_in_values_costs_less_than_a_third_of_one() -> None:
    benchmark = runpy.run_path(str(BENCHMARK))
    seconds = benchmark["seconds"]
    seconds(benchmark["ONE"])
    _, one, _ = seconds(benchmark["ONE"])
    number, many, _ = seconds(benchmark["MANY"])
    assert number == 100
    assert many - one <= 99 * one / 3


def test_the_same_message_is_told_once() -> None:
    same = [(number, [f"seed={number}"], ConfigError("wrong", key="seed")) for number in (2, 4, 5)]
    lines = summary_of([*same, (7, ["data=x"], DataError("gone"))], 9).message.splitlines()
    assert lines[0] == "4 of 9 jobs cannot run; none was started"
    assert lines[1] == "job 2 and 2 more (seed=2)"
    assert [line for line in lines if "wrong" in line] == [f"  {ConfigError('wrong', key='seed')}"]
    assert lines[-2:] == ["job 7 (data=x)", "  gone"]


def test_of_many_ten_are_shown() -> None:
    failures: list[Failure] = [(number, [], AssayError(f"wrong {number}")) for number in range(13)]
    lines = summary_of(failures, 13).message.splitlines()
    assert sum(line.startswith("  wrong") for line in lines) == 10
    assert lines[-1] == "… and 3 other errors"


def test_the_highest_exit_code_counts() -> None:
    config, data = ConfigError("a"), DataError("b")
    codes = {config.exit_code, data.exit_code}
    assert len(codes) == 2
    for order in ((config, data), (data, config)):
        assert summary_of([(n, [], one) for n, one in enumerate(order)], 2).exit_code == max(codes)
