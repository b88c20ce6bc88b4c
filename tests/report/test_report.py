from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pandas
import pytest
from PIL import Image

from assay.errors import AssayError
from assay.files import atomic
from assay.report.report import report

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_the_page_lies_in_the_run_and_its_figures_where_asked_for(
    digits_run: Trained, tmp_path: Path
) -> None:
    written = report([digits_run.run_dir], tmp_path / "a" / "page.html", csv=tmp_path / "numbers")
    assert written.page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.stem for path in written.tables] == list(written.figures)
    matrix = pandas.read_csv(tmp_path / "numbers" / "confusion_matrix.csv", index_col=0)
    assert matrix.to_numpy().tolist() == digits_run.record["matrices"]["test/confusion_matrix"]


def test_each_figure_is_a_picture(digits_run: Trained, tmp_path: Path) -> None:
    written = report([digits_run.run_dir], tmp_path / "page.html", png=tmp_path)
    assert {path.stem for path in written.pictures} == set(written.figures)
    with Image.open(tmp_path / "roc.png") as picture:
        assert picture.width > 600


def test_a_full_disk_leaves_nothing_half_written(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.Output, "write", full)
    with pytest.raises(AssayError, match="No space left"):
        report([digits_run.run_dir], tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_only_a_report_is_replaced(digits_run: Trained, tmp_path: Path) -> None:
    for name, content in (("data.csv", "a,b\n"), ("record.json", "{}"), ("mine.html", "<p>Mine")):
        (tmp_path / name).write_text(content)
        with pytest.raises(AssayError, match="is there and is not a report"):
            report([digits_run.run_dir], tmp_path / name)
        assert (tmp_path / name).read_text() == content
    for _ in range(2):
        report([digits_run.run_dir], tmp_path / "page.html")


@pytest.mark.parametrize(("name", "said"), [("missing", "there is no folder"), ("empty", "holds no run")])
def test_what_is_not_a_run_is_refused(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(AssayError, match=said):
        report([tmp_path / name])
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
