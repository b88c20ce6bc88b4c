from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.figure.figure import Bars, Figure, Heatmap, Line, ParallelCoordinates, Points, Spans

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "make",
    [
        lambda: Line("a", [1, 2], [1]),
        lambda: Line("a", [1, 2], [1, 2], low=[0], high=[3, 4]),
        lambda: Points("a", [1, 2], [1, 2], texts=["one"]),
        lambda: Points("a", [], [1]),
        lambda: Bars("a", ["x"], [1, 2]),
        lambda: Heatmap(np.zeros((2, 3)), ["a", "b"], ["c", "d", "e"]),
        lambda: ParallelCoordinates({"a": [1], "b": [1, 2]}),
        lambda: ParallelCoordinates({"a": [1]}, colour="b"),
        lambda: Spans(["a"], [0], [1, 2]),
        lambda: Figure("Confusion matrix", "", ()),
        lambda: Figure("../x", "", ()),
        lambda: Figure("x", "", (Line("a", [1], [1]), Heatmap(np.zeros((1, 1)), ["a"], ["b"]))),
        lambda: Figure("x", "", (Bars("a", ["p"], [1]), Bars("b", ["q"], [1]))),
    ],
)
def test_what_does_not_fit_together_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"values|names|one value|columns|letters|alone|same"):
        make()


def test_what_may_be_left_out() -> None:
    assert not Points("a", np.arange(3), [1, 2, 3]).texts
    assert Line("a", [], []).low is None
