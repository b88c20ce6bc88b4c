from __future__ import annotations

from io import StringIO

import numpy as np
import pandas
import pytest
from tests.figure.examples import EXAMPLES, HOSTILE

from assay.figure.figure import Bars, Figure, Heatmap, Line, Points, to_csv


def read(figure: Figure) -> pandas.DataFrame:
    return pandas.read_csv(StringIO(to_csv(figure)))


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_each_figure_is_a_table(figure: Figure) -> None:
    assert len(read(figure))


def test_numbers_read_back_equal() -> None:
    y = np.random.default_rng(0).normal(size=50)
    table = read(Figure("a", "", (Line(HOSTILE, np.arange(50), y), Line("b", [1], [2], [0], [3]))))
    assert table["y"][:50].tolist() == y.tolist()
    assert table["series"].unique().tolist() == [HOSTILE, "b"]
    assert table.iloc[50].tolist() == ["b", 1, 2, 0, 3]


def test_one_series_needs_no_name() -> None:
    assert to_csv(Figure("a", "", (Points("", [1], [2], texts=["x,y"]),))) == 'x,y,text\n1,2,"x,y"\n'


def test_a_matrix_keeps_its_form() -> None:
    assert to_csv(Figure("a", "", (Heatmap(np.eye(2, dtype=int), ["p", "p"], ["q", "r"]),))) == (
        ",p,p\nq,1,0\nr,0,1\n"
    )


def test_no_name_becomes_a_formula() -> None:
    bars = Bars("@series", ["=cmd()", "b"], [-1, 2])
    assert to_csv(Figure("a", "", (bars, bars))).splitlines()[1] == "'@series,'=cmd(),-1"
    heatmap = Heatmap(np.eye(2, dtype=int), ["+p", "-1"], ["=q", "r"])
    assert to_csv(Figure("a", "", (heatmap,))) == ",'+p,-1\n'=q,1,0\nr,0,1\n"
