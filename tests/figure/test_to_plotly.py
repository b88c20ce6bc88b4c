from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.figure.examples import EXAMPLES

from assay.figure.figure import Figure, Heatmap, Line
from assay.figure.to_plotly import plain, to_plotly

if TYPE_CHECKING:
    from collections.abc import Iterator


def texts(node: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from texts(value, f"{path}.{key}")
    elif isinstance(node, list):
        for value in node:
            yield from texts(value, path)
    elif isinstance(node, str):
        yield path, node


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_plotly_itself_takes_it_and_it_is_json(figure: Figure) -> None:
    import plotly.graph_objects as go  # type: ignore[import-untyped]  # plotly ships no types

    drawn = to_plotly(figure)
    go.Figure(drawn)  # refuses what its schema does not know
    assert json.loads(json.dumps(drawn, allow_nan=False)) == drawn


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_no_name_is_markup_or_tex(figure: Figure) -> None:
    found = [
        text
        for path, text in texts(to_plotly(figure))
        if {"<", "$"} & set(text.replace("<br>", ""))
        and not path.endswith("dimensions.ticktext")  # written as it is
    ]
    assert not found


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_a_name_is_no_template(figure: Figure) -> None:
    templates = [text for path, text in texts(to_plotly(figure)) if path.endswith("template")]
    fields = [text.split("}")[0] for template in templates for text in template.split("%{")[1:]]
    assert {field.split(":")[0] for field in fields} <= {"x", "y", "text"}


def test_two_classes_of_one_name_stay_two() -> None:
    drawn = to_plotly(Figure("m", "", (Heatmap(np.eye(2), ["a", "a"], ["a", "a"]),)))
    assert drawn["data"][0]["x"] == [0, 1]
    assert drawn["layout"]["xaxis"]["ticktext"] == ["a", "a"]


def test_lines_through_few_points_show_them() -> None:
    few, many = np.arange(30), np.arange(31)
    lines = (Line("few", few, few), Line("many", many, many), Line("", [0, 1], [0, 1], is_reference=True))
    others = Line("step", few, few, is_step=True), Line("roc", [0, 0, 1], [0, 1, 1])
    drawn = to_plotly(Figure("m", "", (*lines, *others)))
    assert [trace["mode"] for trace in drawn["data"]] == ["lines+markers", *["lines"] * 4]


def test_numbers_keep_six_digits_and_gaps_are_null() -> None:
    assert plain(np.array([1 / 3, np.nan, 2.0, np.inf, 123456.78])) == [0.333333, None, 2, None, 123457.0]
    drawn = to_plotly(Figure("m", "", (Line("a", [1, 2], [0.5, float("nan")]),)))
    assert drawn["data"][0]["y"] == [0.5, None]
