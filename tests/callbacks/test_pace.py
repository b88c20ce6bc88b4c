from __future__ import annotations

import pytest

from assay.callbacks.pace import Pace


def test_knows_nothing_at_first() -> None:
    pace = Pace()
    assert pace.steps_per_second is None
    pace.restart(now=1.0, done=0)
    assert pace.steps_per_second is None
    assert pace.seconds_for(10) is None
    pace.sample(now=2.0, done=0)
    assert pace.steps_per_second is None, "no step, no pace"


def test_forgets_what_lies_before_the_window() -> None:
    pace = Pace(window=5.0)
    pace.restart(now=0.0, done=0)
    for second in range(1, 11):  # 10 steps a second, then 100
        pace.sample(now=second, done=10 * second)
    for second in range(11, 21):
        pace.sample(now=second, done=100 + 100 * (second - 10))
    assert pace.steps_per_second == pytest.approx(100.0)
    assert pace.seconds_for(250) == pytest.approx(2.5)


def test_two_samples_far_apart_are_enough() -> None:
    pace = Pace(window=5.0)
    pace.restart(now=0.0, done=0)
    pace.sample(now=30.0, done=60)
    assert pace.steps_per_second == pytest.approx(2.0)
    pace.sample(now=60.0, done=90)
    assert pace.steps_per_second == pytest.approx(1.0)


def test_a_pause_does_not_count() -> None:
    pace = Pace()
    pace.restart(now=0.0, done=0)
    pace.sample(now=1.0, done=10)
    pace.restart(now=100.0, done=10)
    pace.sample(now=101.0, done=20)
    assert pace.steps_per_second == pytest.approx(10.0)
