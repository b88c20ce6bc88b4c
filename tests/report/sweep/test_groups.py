"""Configurations, their scores and their order, against scipy."""

from __future__ import annotations

import pytest
from scipy import stats  # type: ignore[import-untyped]  # it has no stubs
from tests.report.sweep.made import LOSS, contents, job

from assay.analysis.objective import Objective
from assay.report.read_sweep import ranked, verdict

WORST = Objective("val/loss", "maximize")


def test_the_interval_is_that_of_scipy() -> None:
    losses = [0.31, 0.42, 0.38, 0.35]
    jobs = [job(str(number), {"lr": "1"}, loss) for number, loss in enumerate(losses)]
    (group,) = ranked(contents(jobs))
    score = group.scores[0]
    assert score is not None
    assert score.n == 4
    mean = sum(losses) / 4
    expected = stats.t.interval(0.95, 3, loc=mean, scale=stats.sem(losses))
    assert (score.mean, score.low, score.high) == pytest.approx((mean, *expected))


def test_one_seed_has_no_interval() -> None:
    (group,) = ranked(contents([job("0", {"lr": "1"}, 0.5)]))
    score = group.scores[0]
    assert score is not None
    assert (score.low, score.high, score.n) == (None, None, 1)


@pytest.mark.parametrize(("aim", "best"), [(LOSS, "a"), (WORST, "b")])
def test_the_best_comes_first_and_what_has_not_finished_last(aim: object, best: str) -> None:
    jobs = [
        job("0", {"lr": "b"}, 0.6),
        job("1", {"lr": "a"}, 0.4),
        job("2", {"lr": "c"}, 0.1),
        job("3", {"lr": "c"}, None),
        job("4", {"lr": "d"}, 0.5, status="pruned"),
    ]
    groups = ranked(contents(jobs, aim))  # type: ignore[arg-type]  # an objective
    assert groups[0].values["lr"] == best
    assert [group.values["lr"] for group in groups[2:]] == ["c", "d"]
    assert groups[2].status == "finished", "one of its seeds has"
    assert groups[3].scores == (None,), "what was pruned has no final score"


def test_whether_the_gap_is_noise_is_said_by_welch() -> None:
    near, far = [0.30, 0.34, 0.38], [0.31, 0.35, 0.41]
    jobs = [
        job(f"{key}{n}", {"x": key}, loss)
        for key, all_ in (("a", near), ("b", far))
        for n, loss in enumerate(all_)
    ]
    found = contents(jobs)
    p_value = stats.ttest_ind(near, far, equal_var=False).pvalue
    said = verdict(found, ranked(found))
    assert "not more than noise" in said
    assert f"p = {p_value:.2g}" in said
    alone = contents(jobs[:1] + jobs[3:4])
    assert "n too small to say" in verdict(alone, ranked(alone))
    assert verdict(contents(jobs[:3]), ranked(contents(jobs[:3]))) == ""
