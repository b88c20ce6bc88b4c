"""Where values lie on an axis of parallel coordinates."""

from __future__ import annotations

import numpy as np

from assay.figure.figure import Figure, ParallelCoordinates, parallel_axis
from assay.figure.to_plotly import to_plotly


def test_numbers_lie_from_the_lowest_to_the_highest() -> None:
    places, ticks = parallel_axis([2.0, 4.0, 3.0, float("nan")], log=False)
    np.testing.assert_allclose(places, [0, 1, 0.5, np.nan])
    assert ticks[0] == (0.0, "2")
    assert ticks[-1] == (1.0, "4")


def test_logarithms_are_labelled_by_their_decades() -> None:
    places, ticks = parallel_axis([3e-4, 3e-2, 0.0], log=True)
    np.testing.assert_allclose(places, [0, 1, np.nan], atol=1e-12)
    assert [text for _, text in ticks] == ["0.001", "0.01"]
    np.testing.assert_allclose([place for place, _ in ticks], np.log10([1 / 0.3, 10 / 0.3]) / 2)


def test_shares_are_written_in_per_cent() -> None:
    mark = ParallelCoordinates({"accuracy": [0.9, 0.98]}, shares=frozenset({"accuracy"}))
    ticks = [one["text"] for one in to_plotly(Figure("parallel", "", (mark,)))["layout"]["annotations"]]
    assert ticks == ["90 %", "92 %", "94 %", "96 %", "98 %"]


def test_words_lie_in_alphabetical_order_and_one_alone_in_the_middle() -> None:
    places, ticks = parallel_axis(["sgd", "adam", "sgd", 1.0], log=False)
    assert places.tolist() == [1.0, 0.5, 1.0, 0.0]
    assert ticks == [(0.0, "1.0"), (0.5, "adam"), (1.0, "sgd")]
    assert parallel_axis([7.0, 7.0], log=False)[0].tolist() == [0.5, 0.5]
    many = parallel_axis([f"w{number}" for number in range(1000)], log=False)[1]
    assert len(many) <= 12


def test_each_row_is_one_line_and_says_its_name_once() -> None:
    columns = {"lr": [0.1, 0.01, 0.001], "score": [3.0, 1.0, 2.0]}
    mark = ParallelCoordinates(columns, "score", frozenset({"lr"}), ["a", "<b>", "c"])
    drawn = to_plotly(Figure("parallel", "", (mark,)))
    lines = [trace for trace in drawn["data"] if trace["mode"] == "lines+markers"]
    assert [trace["x"] for trace in lines] == [[0, 1, None]] * 3
    assert [trace["y"] for trace in lines] == [[0.5, 0, None], [0, 0.5, None], [1, 1, None]]
    assert [trace["hovertext"] for trace in lines] == [
        ["", "&lt;b&gt;", ""],
        ["", "c", ""],
        ["", "a", ""],
    ]
