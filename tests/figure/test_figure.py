"""A figure of each mark, with names that mean something to HTML, to plotly and to matplotlib."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from assay.errors import AssayError
from assay.figure import Bars, Figure, Heatmap, Line, Points, to_frame
from assay_report.draw import floats, to_matplotlib, to_plotly

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


HOSTILE = "<a href='javascript:alert(1)'>$x^{$ & _</a></script><!--"
EXAMPLES = (
    Figure(
        "curves",
        HOSTILE,
        (
            Line("chance", [0, 1], [0, 1], is_reference=True),
            Line(HOSTILE, [0, 1, 2], [0.5, float("nan"), 1 / 3], low=[0, 0, 0], high=[1, 1, 1]),
            Line("_steps", np.arange(3), np.arange(3), is_step=True),
        ),
        x_label=HOSTILE,
        y_label="%{z} y",
    ),
    Figure(
        "scatter",
        "Scatter",
        (Points(HOSTILE, [1, 10], [2, 3], texts=[HOSTILE, "b\nc"]), Points("plain", [1, 100], [2, 3])),
        log="x",
        x_range=(1, 100),
    ),
    Figure(
        "bars",
        "Bars",
        (Bars(HOSTILE, [HOSTILE, "7"], [1, 2], low=[0, 1], high=[2, 4]), Bars("b", [HOSTILE, "7"], [1, 2])),
    ),
    Figure(
        "matrix",
        "Matrix",
        (Heatmap(np.array([[1, np.nan], [3, 4000]]), [HOSTILE, "same"], ["same", "same"]),),
    ),
)


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_each_mark_is_drawn_whatever_it_is_called(figure: Figure, tmp_path: Path) -> None:
    to_matplotlib(figure).savefig(tmp_path / "figure.png", dpi=60)  # mathtext would raise on "$x^{$"
    with Image.open(tmp_path / "figure.png") as picture:
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(AssayError, match="need matplotlib") as error:
        to_matplotlib(EXAMPLES[0])
    assert "assay[plot]" in (error.value.hint or "")


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
    drawn = [text.replace("<br>", "") for _, text in texts(to_plotly(figure))]
    assert any("javascript" in text for text in drawn), "the name is shown, as text"
    assert not [text for text in drawn if {"<", "$"} & set(text)]


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_a_name_is_no_template(figure: Figure) -> None:
    templates = [text for path, text in texts(to_plotly(figure)) if path.endswith("template")]
    assert templates or figure.name == "bars", "a point has a text of its own"
    fields = [text.split("}")[0] for template in templates for text in template.split("%{")[1:]]
    assert {field.split(":")[0] for field in fields} <= {"x", "y", "text"}


def test_numbers_keep_six_digits_and_gaps_are_null() -> None:
    assert floats(np.array([1 / 3, np.nan, 2.0, np.inf, 123456.78])) == [0.333333, None, 2.0, None, 123457.0]
    drawn = to_plotly(Figure("m", "", (Line("a", [1, 2], [0.5, float("nan")]),)))
    assert drawn["data"][0]["y"] == [0.5, None]


def test_the_frame_behind_a_figure() -> None:
    y = np.random.default_rng(0).normal(size=50)
    frame = to_frame(Figure("a", "", (Line(HOSTILE, np.arange(50), y), Line("b", [1], [2], [0], [3]))))
    assert frame["y"][:50].tolist() == y.tolist()
    assert frame["series"].unique().tolist() == [HOSTILE, "b"]
    matrix = to_frame(Figure("a", "", (Heatmap(np.eye(2, dtype=int), ["p", "q"], ["r", "s"]),)))
    assert matrix.to_numpy().tolist() == [["r", 1, 0], ["s", 0, 1]]
