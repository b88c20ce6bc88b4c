"""Whether two groups of runs can be told apart, and how much of what many tries keep is noise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]  # scipy has no types
from tests.making_runs import make_run
from typer.testing import CliRunner

from assay.analysis.run import Run
from assay.analysis.statistics import count_pairs
from assay.analysis.verdict import RATE, Verdict, level_of_next
from assay.analysis.verdict import judge as judge_named
from assay.cli.app import app

DRAW = np.random.default_rng(0)
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
    assert found.word == "not told apart"
    assert found.text.endswith(
        f"not told apart; {found.more_seeds} more seeds would tell a difference of 0.017"
    )
    of_folds = judge(runs(FIRST, folds=True), runs(SECOND, folds=True), "val/m", "max")
    assert (of_folds.test, of_folds.more_seeds) == ("corrected resampled t-test", None)


@pytest.mark.parametrize(
    ("difference", "std", "level"), [(1.0, 1.0, 0.05), (0.3, 1.0, 0.05), (2.0, 1.0, 0.01)]
)
def test_so_many_pairs_have_the_power_and_fewer_do_not(difference: float, std: float, level: float) -> None:
    n = count_pairs(difference, std, level)
    draws = DRAW.normal(difference, std, (40_000, n))
    shares = [(stats.ttest_1samp(draws[:, :size], 0, axis=1).pvalue < level).mean() for size in (n, n - 1)]
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
    assert verdict("lr 0.1", "lr 0.2", "lr 0.3") is None
    same = judge(runs([0.5, 0.5]), runs([0.5, 0.5]), "val/m", "max")
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
        for is_noise in DRAW.random(50) < noise:
            effect = 0.0 if is_noise else DRAW.choice([2.0, 4.0])
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
    scores = DRAW.normal(0.8 + 0.02 * effect, 0.02, n)
    return np.round(scores * samples) / samples if samples else scores
