from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.report.page.browser import needs_chromium, opened
from tests.task.made_predictions import of_embeddings, of_labels, of_values

from assay.analysis.read_runs import read_curves
from assay.errors import AssayError
from assay.figure.figure import Line
from assay.record import predictions_file, samples_file
from assay.record.run_record import RunRecord
from assay.record.samples_file import KeptSample
from assay.report.page import Cards, Figures, Note, Page, Pictures, Table, render, write
from assay.report.run_page import run_page
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained

    from assay.task.prediction.predictions import Predictions


@pytest.fixture
def run_dir(digits_run: Trained, tmp_path: Path) -> Path:
    """A copy of a real run, to damage."""
    shutil.copytree(digits_run.run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    return tmp_path / "run"


def notes(page: Page) -> list[str]:
    return [block.text for section in page.sections for block in section.blocks if isinstance(block, Note)]


def test_a_real_run_is_shown_whole(digits_run: Trained) -> None:
    page = run_page(digits_run.run_dir)
    assert page.status == ("finished", "good")
    names = {figure.name for figure in page.figures}
    assert {"confusion_matrix", "confusion_matrix_normalised", "per_class", "roc", "calibration"} <= names
    assert {"learning_rate", "curve_0", "throughput"} <= names
    blocks = [block for section in page.sections for block in section.blocks]
    (cards,) = (block for block in blocks if isinstance(block, Cards))
    accuracy = digits_run.record["metrics"]["test/accuracy"]
    assert cards.cards[0][:2] == ("accuracy", f"{100 * accuracy:.2f} %")
    assert re.fullmatch(r"\d+\.\d\d to \d+\.\d\d %", cards.cards[0][2])
    worst, drawn = (block for block in blocks if isinstance(block, Pictures))
    assert (worst.title, drawn.title) == ("The most wrong", "At random")
    assert "where the loss is highest" in worst.caption
    assert len(worst.pictures) == len(drawn.pictures) == 24
    assert all(picture.png.startswith(b"\x89PNG") for picture in worst.pictures)
    last, config = (block for block in blocks if isinstance(block, Table))
    assert last.columns == ("metric", "train", "val", "test")
    shown = {row[0].text: [cell.title for cell in row[1:]] for row in last.cells}
    best = digits_run.record["best"]
    curves = read_curves(digits_run.run_dir)
    (at,) = [at for at, epoch in enumerate(curves["val/f1"].epochs) if epoch == best["epoch"]]
    assert best["epoch"] < max(epoch or 0 for epoch in curves["val/f1"].epochs), "the best is not the last"
    assert shown["f1 (macro)"] == [
        "",
        repr(curves["val/f1"].values[at]),
        repr(digits_run.record["metrics"]["test/f1"]),
    ]
    assert shown["loss"][1] == repr(best["value"])
    assert "accuracy" in shown
    assert last.caption == f"All of epoch {best['epoch']}, the best by val/loss, whose checkpoint was tested."
    (f1,) = (figure for figure in page.figures if figure.title == "f1 (macro)")
    *_, line = f1.marks
    assert isinstance(line, Line)
    assert (line.name, line.is_reference) == (f"epoch {best['epoch']}, tested", True)
    assert list(line.x) == [curves["val/f1"].steps[at]] * 2
    assert ["optimizer.lr", "0.01", "optimizer.lr=0.01", "typed"] in [
        [cell.text for cell in row] for row in config.cells
    ]


def test_it_is_small_beside_the_one_library(digits_run: Trained) -> None:
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # plotly ships no types

    text = render(run_page(digits_run.run_dir))
    assert text.count(get_plotlyjs()) == 1
    assert len(text.encode()) - len(get_plotlyjs().encode()) < 500_000


def test_the_scores_are_those_of_the_run(digits_run: Trained) -> None:
    predictions = predictions_file.read(digits_run.run_dir / predictions_file.FILE)
    assert predictions.targets is not None
    right = (predictions.outputs.argmax(1) == predictions.targets).mean()
    assert digits_run.record["metrics"]["test/accuracy"] == pytest.approx(right)


@pytest.mark.parametrize("make", [of_values, of_labels, of_embeddings])
def test_each_task_brings_its_own(make: type, run_dir: Path) -> None:
    predictions: Predictions = make()
    predictions_file.write(run_dir / predictions_file.FILE, predictions)
    samples_file.write(
        run_dir / samples_file.FILE,
        [KeptSample("3", "worst", None, {"a": 1.5, "b": "x"}), KeptSample("4", "random", None, {"a": None})],
    )
    page = run_page(run_dir)
    shown = {figure.name for figure in page.figures}
    task = task_of(predictions.task)
    assert {figure.name for figure in task.figures(predictions)} <= shown
    tables = [block for section in page.sections for block in section.blocks if isinstance(block, Table)]
    worst = tables[1]
    assert next(iter(worst.cells))[1].text == task.said(predictions, 3)
    assert worst.columns == ("sample", "the model said", "a", "b")
    assert (worst.title, worst.caption) == ("The most wrong", task.worst_is(predictions))
    assert notes(page) == [text for text in notes(page) if "Memory" in text or "git" in text]


@pytest.mark.parametrize("damage", ["metrics.csv", "predictions.parquet", "samples.parquet", "config.yaml"])
@pytest.mark.parametrize("content", [None, b"\x00\xff damaged", b""])
def test_what_is_missing_or_damaged_becomes_a_marked_box(
    damage: str, content: bytes | None, run_dir: Path
) -> None:
    if content is None:
        (run_dir / damage).unlink()
    else:
        (run_dir / damage).write_bytes(content)
    page = run_page(run_dir)
    render(page)
    if damage != "samples.parquet" or content is not None:
        assert any(damage in note for note in notes(page))


def test_a_log_and_a_record_of_somebody_elses(run_dir: Path) -> None:
    with (run_dir / "log.txt").open("ab") as file:
        file.truncate(65 << 20)  # a hole: nothing is written
    record = RunRecord.load(run_dir)
    record.machine, record.git = {"gpus": 7, "memory_bytes": "x"}, {"commit": 5}
    record.best = {"value": "high"}
    record.choices = {"data": ["a", {"b": 1}], "model": 3}
    record.save(run_dir)
    page = run_page(run_dir)
    render(page)
    assert "throughput" not in {figure.name for figure in page.figures}


def test_predictions_that_are_not_finite_are_no_reason_to_abort(run_dir: Path) -> None:
    predictions = predictions_file.read(run_dir / predictions_file.FILE)
    outputs = np.full_like(predictions.outputs, np.nan)
    predictions_file.write(run_dir / predictions_file.FILE, replace(predictions, outputs=outputs))
    assert any("cannot be judged" in note for note in notes(run_page(run_dir)))


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("running", "a process of the run died"),
        ("interrupted", "The run has been interrupted: SIGTERM"),
        ("failed", "The run has failed (out of memory): too large"),
    ],
)
def test_a_run_that_did_not_end_well_says_so(status: str, said: str, run_dir: Path) -> None:
    record = RunRecord.load(run_dir)
    record.status = status  # type: ignore[assignment]  # one of them
    record.reason = {"failed": "too large", "interrupted": "SIGTERM"}.get(status, "")
    record.cause = "out_of_memory" if status == "failed" else ""
    record.save(run_dir)
    assert any(said in note for note in notes(run_page(run_dir)))


def test_without_a_record_there_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"has no record\.json"):
        run_page(tmp_path)


def test_no_figure_is_left_out_of_its_section(digits_run: Trained) -> None:
    page = run_page(digits_run.run_dir)
    drawn = [block for section in page.sections for block in section.blocks if isinstance(block, Figures)]
    assert sum(len(block.figures) for block in drawn) == len(page.figures)


@needs_chromium
def test_a_browser_shows_a_real_run_without_a_word(digits_run: Trained, tmp_path: Path) -> None:
    page = run_page(digits_run.run_dir)
    write(page, tmp_path / "report.html")
    seen = opened(tmp_path / "report.html", tmp_path / "browser")
    assert seen.console == []
    assert seen.dom.count('class="main-svg"') >= len(page.figures)
