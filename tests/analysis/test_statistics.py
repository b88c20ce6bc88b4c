"""Intervals, p-values and verdicts, against scipy.stats and in thousands of draws."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types
from tests.making_runs import make_run
from typer.testing import CliRunner

from assay.cli.app import app
from assay.record.run_record import Outcome
from assay.record.scores import format_score
from assay_analysis.objective import Objective, read_objectives, score_text, scores_of
from assay_analysis.run import Run
from assay_analysis.statistics import (
    RATE,
    Verdict,
    count_pairs,
    fold_gap,
    have_same_folds,
    level_of_next,
    mean_of,
    welch_gap,
)
from assay_analysis.statistics import judge as judge_named

if TYPE_CHECKING:
    from collections.abc import Sequence


scores = st.lists(st.integers(-10_000, 10_000).map(lambda number: number / 1000), min_size=2, max_size=12)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scores)
def test_the_interval_is_students(values: Sequence[float]) -> None:
    found = mean_of(values)
    assert found is not None
    error = stats.sem(values)
    assert found.n == len(values)
    if error == 0:
        assert found.low == pytest.approx(found.mean)
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=error)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9, abs=1e-12)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(scores, scores)
def test_the_p_value_is_welchs(one: Sequence[float], other: Sequence[float]) -> None:
    found = welch_gap(one, other)
    if len(set(one)) == len(set(other)) == 1:
        assert found is None
        return
    assert found is not None
    both = ((statistics.fmean(values), statistics.stdev(values), len(values)) for values in (one, other))
    expected = stats.ttest_ind_from_stats(*next(both), *next(both), equal_var=False).pvalue
    assert math.isclose(found.p_value, expected, rel_tol=1e-7, abs_tol=1e-12)


def test_too_few() -> None:
    assert welch_gap([0.5], [0.1, 0.2]) is None
    assert mean_of([math.nan, None, math.inf]) is None
    one = mean_of([0.5, math.nan, None, -math.inf])
    assert one is not None
    assert (one.mean, one.std, one.low, one.half_width) == (0.5, None, None, None)


def test_seeds_of_a_fold_count_once() -> None:
    """The mean over folds of the means over seeds, with scipy's interval of as many values as folds."""
    drawn = np.random.default_rng(0).normal(size=(5, 3))
    found = mean_of(drawn.ravel(), np.repeat(range(5), 3))
    means = drawn.mean(1)
    low, high = stats.t.interval(0.95, 4, means.mean(), stats.sem(means))
    assert found is not None
    assert (found.n, found.mean, found.low, found.high) == pytest.approx((5, means.mean(), low, high))
    alone = mean_of(drawn[0], [2, 2, 2])  # one fold: its seeds are all there is
    assert alone is not None
    assert alone.values == tuple(drawn[0])
    assert mean_of([1.0, None], [0, 1]) == mean_of([1.0])


def test_configurations_over_the_same_folds_are_compared_fold_by_fold() -> None:
    first, second = [0.91, 0.82, 0.95, 0.88, 0.79], [0.90, 0.80, 0.93, 0.88, 0.78]
    one, other = mean_of(first, [0, 1, 2, 3, 4]), mean_of(second[::-1], [4, 3, 2, 1, 0])
    assert one is not None
    assert other is not None
    assert have_same_folds(one, other)
    plain = stats.ttest_rel(first, second)
    t = plain.statistic * math.sqrt((1 / 5) / (1 / 5 + 1 / 4))
    gap = fold_gap(one, other)
    assert gap is not None
    assert gap.p_value == pytest.approx(2 * stats.t.sf(abs(t), 4), rel=1e-12)
    unpaired = mean_of(second)
    assert unpaired is not None
    assert not have_same_folds(one, unpaired)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("test/accuracy", 0.5, "50.00 %"),
        ("val/f1", 1.0, "100.00 %"),
        ("test/loss", 0.000123456, "0.0001235"),
        ("test/rmse", 57.4321, "57.43"),
        ("test/mae", 607270.0, "607,270"),
        ("test/mse", 9.91600123e8, "991,600,123"),
        ("test/loss", -0.0, "0"),
        ("test/loss", 2.7e-7, "2.7e-07"),
        ("val/precision_at_k_loss", 0.3, "0.3"),
        ("val/precision_at_k_loss", 1.3, "1.3"),
        ("val/top5_accuracy", 0.93, "93.00 %"),
        ("val/accuracy", 93.0, "93"),
        ("val/specificity", 0.93, "93.00 %"),
        ("val/f1 (macro)", 0.93, "93.00 %"),
        ("val/precision of loss", 0.93, "93.00 %"),
        ("val/selfie1", 0.93, "0.93"),
    ],
)
def test_format_score(name: str, value: float, text: str) -> None:
    assert format_score(name, value) == text


SHARES = {"specificity": True, "gap": True, "accuracy_ms": False, "head/balanced": True}


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("test/specificity", 0.93, "93.00 %"),
        ("val/gap", 0.25, "25.00 %"),
        ("gap", 0.25, "25.00 %"),
        ("test/accuracy_ms", 0.25, "0.25"),
        ("val/head/balanced", 0.5, "50.00 %"),
        ("val/gap", 1.3, "1.3"),
        ("test/accuracy", 0.5, "50.00 %"),
        ("val/other", 0.5, "0.5"),
    ],
)
def test_the_bounds_of_a_metric_say_whether_it_is_a_share(name: str, value: float, text: str) -> None:
    mean = mean_of([value])
    assert mean is not None
    assert format_score(name, value, SHARES) == score_text(name, mean, SHARES) == text


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("val/loss", (0.98611,), "0.9861"),
        ("val/loss", (0.95, 0.96, 0.97), "0.960 ± 0.025"),
        ("val/accuracy", (0.98611,), "98.61 %"),
        ("val/accuracy", (0.95, 0.96, 0.97), "96.0 ± 2.5 %"),
        ("loss", (8000.0, 8100.0), "8,050 ± 640"),
        ("loss", (1e-7, 2e-7), "1.5e-07 ± 6.4e-07"),
    ],
)
def test_score_text(name: str, values: tuple[float, ...], text: str) -> None:
    mean = mean_of(values)
    assert mean is not None
    assert score_text(name, mean) == text


LOSS = Objective("val/loss", "minimize")
ACCURACY = Objective("val/accuracy", "maximize")


def test_the_best_checkpoint_counts_where_the_objective_is_what_it_is_kept_by() -> None:
    outcome = Outcome(
        "finished", metrics={"val/loss": 0.5}, best={"monitor": "val/loss", "value": 0.3, "epoch": 1}
    )
    assert LOSS.score(outcome) == 0.3
    assert ACCURACY.score(outcome) is None
    assert scores_of(outcome, [LOSS]) == [0.3]
    assert scores_of(outcome, [LOSS, ACCURACY]) is None
    assert LOSS.score(Outcome("finished", metrics={"val/loss": float("nan")})) is None


def test_what_is_best_is_known_from_the_name() -> None:
    aims = read_objectives({"objective": ["val/loss", "val/accuracy", "train/mae"]}, {})
    assert [aim.direction for aim in aims] == ["minimize", "maximize", "minimize"]
    assert read_objectives({"objective": "x", "direction": "minimize"}, {}) == [Objective("x", "minimize")]


GAUSS = np.random.default_rng(0)
FIRST = [0.91, 0.93, 0.90, 0.95]
SECOND = [0.90, 0.91, 0.89, 0.92]


def judge(first: list[Run], second: list[Run], metric: str, direction: str) -> Verdict:
    return judge_named(first, second, metric, direction, ("the first", "the second"))


def runs(scores: list[float], seeds: range | None = None, folds: bool = False) -> list[Run]:
    names = seeds or range(len(scores))
    return [
        Run(
            Path(str(n)),
            "finished",
            seed=0 if folds else n,
            fold=n if folds else None,
            metrics={"val/m": score},
        )
        for n, score in zip(names, scores, strict=True)
    ]


def test_runs_of_the_same_seeds_are_paired_as_scipy_does() -> None:
    found = judge(runs(FIRST), runs(SECOND)[::-1], "val/m", "max")
    expected = stats.ttest_rel(FIRST, SECOND)
    low, high = expected.confidence_interval(0.95)
    assert (found.test, found.pairs, found.word) == ("paired t-test", 4, "better")
    assert (found.p_value, found.low, found.high) == pytest.approx((expected.pvalue, low, high))
    assert found.p_better == pytest.approx(stats.ttest_rel(FIRST, SECOND, alternative="greater").pvalue)
    pooled = np.sqrt((np.var(FIRST, ddof=1) + np.var(SECOND, ddof=1)) / 2)
    assert found.noise == pytest.approx(pooled)
    assert judge(runs(FIRST), runs(SECOND), "val/m", "min").word == "worse"
    assert judge(runs(SECOND), runs(FIRST), "val/m", "max").p_better == pytest.approx(1 - found.p_better)


def test_other_seeds_are_not_paired_and_what_more_seeds_would_tell_is_said() -> None:
    found = judge(runs(FIRST), runs(SECOND, range(7, 11)), "val/m", "max")
    assert (found.test, found.pairs) == ("Welch's t-test", 0)
    assert found.p_value == pytest.approx(stats.ttest_ind(FIRST, SECOND, equal_var=False).pvalue)
    assert found.word == "no significant difference"
    assert found.text.endswith(
        f"no significant difference; {found.more_seeds} more seeds would detect a difference of 0.017"
    )
    of_folds = judge(runs(FIRST, folds=True), runs(SECOND, folds=True), "val/m", "max")
    assert (of_folds.test, of_folds.more_seeds) == ("corrected resampled t-test", None)


@settings(deadline=None)
@given(
    st.lists(st.floats(0.05, 1.0), min_size=2, max_size=9),
    st.sampled_from((0.0, 0.01, -0.01, 0.005, 3e-4)),
    st.sampled_from((0.0, 1e-9, 5e-8)),
    st.booleans(),
)
def test_pairs_that_differ_by_the_same_amount_stay_pairs(
    scores: list[float], step: float, rounding: float, folds: bool
) -> None:
    """A t-test would divide by what rounding left; the reference flips all signs."""
    changed = [score + step + score * rounding * (-1) ** number for number, score in enumerate(scores)]
    found = judge(runs(changed, folds=folds), runs(scores, folds=folds), "val/m", "max")
    reference = stats.permutation_test(
        (np.full(len(scores), step),), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    assert (found.test, found.pairs) == ("exact sign-flip test", len(scores))
    assert found.p_value == pytest.approx(reference.pvalue)
    assert (found.low, found.high) == (None, None)
    assert "differ by the same amount" in found.text
    significant = "better" if step > 0 else "worse"
    assert found.word == (significant if reference.pvalue < 0.05 else "no significant difference")
    if step and not folds:
        enough = len(scores) + (found.more_seeds or 0)
        assert 2.0 ** (1 - enough) < 0.05 <= 2.0 ** (1 - min(enough - 1, 5))
        assert (found.more_seeds is None) == (found.word != "no significant difference")


def test_rounding_is_no_variation_of_other_seeds_either() -> None:
    first, second = [0.9, 0.9 * (1 + 1e-9), 0.9], [0.8, 0.8, 0.8 * (1 + 1e-9)]
    found = judge(runs(first), runs(second, range(3, 6)), "val/m", "max")
    assert (found.word, found.p_value) == ("", None)
    assert "do not vary" in found.reason


@pytest.mark.parametrize(("difference", "std"), [(1.0, 1.0), (0.3, 1.0), (2.0, 1.5)])
def test_so_many_pairs_have_the_power_and_fewer_do_not(difference: float, std: float) -> None:
    n = count_pairs(difference, std)
    draws = GAUSS.normal(difference, std, (40_000, n))
    shares = [(stats.ttest_1samp(draws[:, :size], 0, axis=1).pvalue < 0.05).mean() for size in (n, n - 1)]
    assert shares[0] > 0.79
    assert shares[1] < 0.81


def test_without_repetitions_there_is_no_verdict(tmp_path: Path) -> None:
    for lr, seeds in (("0.1", 1), ("0.2", 1), ("0.3", 3), ("0.4", 3)):
        for seed in range(seeds):
            metrics = {"val/accuracy": float(lr) + seed / 100 + seed * seed * float(lr) / 1000}
            typed = (f"optimizer.lr={lr}", f"seed={seed}")
            make_run(tmp_path / f"lr {lr}" / str(seed), *typed, metrics=metrics)

    def verdict(*places: str) -> dict[str, object]:
        words = ["compare", *(str(tmp_path / place) for place in places), "--json", "--sort", "val/accuracy"]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.stderr
        found: dict[str, object] = json.loads(result.stdout)["verdict"]
        return found

    alone = verdict("lr 0.1", "lr 0.2")
    assert alone["word"] == ""
    assert str(alone["reason"]).startswith("1 run against 1 run cannot tell")
    assert verdict("lr 0.4", "lr 0.3")["word"] == "better"
    assert verdict("lr 0.3", "lr 0.4")["word"] == "worse"
    assert verdict("lr 0.[3]", "lr 0.[4]")["word"] == "worse"
    assert "holds 2 configurations" in str(verdict("lr 0.[12]", "lr 0.4")["reason"])
    several = verdict("lr 0.1", "lr 0.2", "lr 0.3")
    assert (several["first"], several["second"]) == ("the best", "the second")
    same = judge(runs([0.5, 0.5]), runs([0.5, 0.5], range(2, 4)), "val/m", "max")
    assert (same.word, same.p_value) == ("", None)
    assert "do not vary" in same.reason
    printed = (
        CliRunner().invoke(app, ["compare", *(str(tmp_path / f"lr {lr}") for lr in ("0.4", "0.3"))]).stdout
    )
    assert printed.rstrip().endswith(": better")


@pytest.mark.long
@pytest.mark.parametrize("noise", [0.5, 0.9])
@pytest.mark.parametrize("samples", [0, 50])
def test_at_most_one_in_twenty_of_what_thousands_of_tries_keep_is_noise(noise: float, samples: int) -> None:
    """The rule of `assay try` on scores without runs, also on a validation set of 50 samples.

    The reference of a night is drawn once, so that some are unlucky; a change is tested where its first seeds
    look better than they, and half of the changes that are real raise the score by twice its deviation.
    """
    kept_of_night, false_of_night, real = [], [], 0
    for _ in range(60):
        kept: list[bool] = []
        false = 0
        reference = draw_scores(0.0, 3, samples)
        for is_noise in GAUSS.random(50) < noise:
            effect = 0.0 if is_noise else GAUSS.choice([2.0, 4.0])
            real += not is_noise
            paired = judge(runs(list(draw_scores(effect, 3, samples))), runs(list(reference)), "val/m", "max")
            if not paired.difference or paired.difference < 0 or (paired.p_value and paired.p_better > 0.2):
                continue
            level = level_of_next(kept)
            changed, again = (list(draw_scores(size, 10, samples)) for size in (effect, 0.0))
            found = judge(runs(changed), runs(again), "val/m", "max")
            kept.append(found.p_better <= level)
            false += bool(kept[-1] and is_noise)
        kept_of_night.append(sum(kept))
        false_of_night.append(false)
    assert sum(false_of_night) / sum(kept_of_night) < RATE
    assert np.mean(np.array(false_of_night) / np.maximum(kept_of_night, 1)) < RATE
    assert sum(kept_of_night) > 0.4 * real


def draw_scores(effect: float, n: int, samples: int) -> np.ndarray:
    scores = GAUSS.normal(0.8 + 0.02 * effect, 0.02, n)
    return np.round(scores * samples) / samples if samples else scores
