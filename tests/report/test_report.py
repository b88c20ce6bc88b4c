from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pandas
import pytest
from PIL import Image
from tests.mounting import room_for

from assay.errors import AssayError
from assay.figure.figure import Bars, Figure, Heatmap
from assay.report.report import _csv, report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_the_page_lies_in_the_run_and_its_figures_where_asked_for(
    digits_run: Trained, tmp_path: Path
) -> None:
    page, figures, numbers = tmp_path / "a" / "page.html", tmp_path / "figures", tmp_path / "numbers"
    written = report([digits_run.run_dir], page, png=figures, csv=numbers)
    assert written.page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.stem for path in written.pictures] == list(written.figures)
    with Image.open(tmp_path / "figures" / "roc.png") as picture:
        assert picture.width > 600
    assert [path.stem for path in written.tables] == list(written.figures)
    matrix = pandas.read_csv(numbers / "confusion_matrix.csv", index_col=0)
    assert matrix.to_numpy().tolist() == digits_run.record["matrices"]["test/confusion_matrix"]


def test_no_name_of_a_figure_becomes_a_formula() -> None:
    bars = Figure("a", "", (Bars("@series", ["=cmd()", "b"], [-1, 2]),))
    assert _csv(bars).decode().splitlines()[1] == "'@series,'=cmd(),-1"
    matrix = Figure("a", "", (Heatmap(np.eye(2, dtype=int), ["+p", "-1"], ["=q", "r"]),))
    assert _csv(matrix).decode().splitlines() == ["index,'+p,-1", "'=q,1,0", "r,0,1"]


@pytest.mark.always("--png DIR-10000")
@pytest.mark.parametrize(
    ("option", "room"), [("--out FILE", 1_000_000), ("--png DIR", 10_000), ("--csv DIR", 60)]
)
def test_a_full_disk_leaves_nothing_half_written(
    option: str, room: int, digits_run: Trained, tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text('<!doctype html>\n<html lang="en"> of before')
    folders = {key: tmp_path for key in ("png", "csv") if option == f"--{key} DIR"}
    with room_for(room), pytest.raises(AssayError, match="cannot be written") as error:
        report([digits_run.run_dir], tmp_path / "page.html", **folders)
    assert error.value.hint == f"{option} writes it somewhere else"
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir() if path.stat().st_size > room} == {}
    assert "of before" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not list(tmp_path.glob(".*")), "nothing is left of what was begun"


def test_only_a_report_is_replaced(digits_run: Trained, tmp_path: Path) -> None:
    for name, content in (("data.html", "a,b\n"), ("mine.html", "<p>Mine")):
        (tmp_path / name).write_text(content)
        with pytest.raises(AssayError, match="exists and is not a report; refusing to replace it"):
            report([digits_run.run_dir], tmp_path / name)
        assert (tmp_path / name).read_text() == content
    os.mkfifo(tmp_path / "pipe.html")
    with pytest.raises(AssayError, match=r"pipe.html exists and is not a report"):  # it waits for nobody
        report([digits_run.run_dir], tmp_path / "pipe.html")
    assert (tmp_path / "pipe.html").is_fifo()
    for _ in range(2):
        report([digits_run.run_dir], tmp_path / "page.html")
