"""Contents of a page without a sweep, for what depends on values alone."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from tests.making_runs import make_run

from assay.figure import Line
from assay_analysis.journal import JobRecord, Journal
from assay_report import sweep_page as sweep_page_module
from assay_report.page import Code, Note, Table, render
from assay_report.report import report
from assay_report.sweep_page import (
    curve_figures,
    failure_blocks,
    is_sweep,
    log_tail,
    parameter_figures,
    read_contents,
    sweep_page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay_report.page import Page


def test_a_sweep_that_has_ended(trained_sweep: Path) -> None:
    assert is_sweep(trained_sweep)
    assert not is_sweep(trained_sweep / "0")
    contents = read_contents([trained_sweep])
    assert [aim.name for aim in contents.objectives] == ["val/accuracy", "val/loss"]
    assert [aim.direction for aim in contents.objectives] == ["maximize", "minimize"]
    assert [run.status for run in contents.runs] == ["finished"] * 4 + ["failed"] * 2
    assert [(run.typed["optimizer.lr"], run.seed) for run in contents.runs[1:3]] == [("0.1", 2), ("0.01", 1)]
    assert contents.comparison.shared["data"] == "iris"
    assert contents.typed[0].startswith("assay train -m data=iris")
    assert contents.notices == []


def test_a_sweep_with_a_damaged_journal_is_what_its_runs_are(sweep: Path) -> None:
    journal = sweep / "journal.jsonl"
    journal.write_bytes(b"x" + journal.read_bytes())
    contents = read_contents([sweep])
    assert len(contents.runs) == 6
    assert "damaged" in contents.notices[0]
    assert "What follows is from the run directories" in contents.notices[0]


def test_several_folders_and_broken_runs_have_a_page(sweep: Path) -> None:
    (sweep / "1" / "record.json").write_text("<script>")
    (sweep / "2" / "metrics.csv").unlink()
    shutil.copytree(sweep / "0", sweep.parent / "other" / "again")
    contents = read_contents([sweep, sweep.parent / "other"])
    broken = [contents.name(run) for run in contents.runs if run.status == "broken"]
    assert broken == ["sweep/1"]
    assert any("of the same config and seed" in notice for notice in contents.notices)
    page = sweep_page(contents, sweep)
    assert page.title == f"{len(contents.runs)} runs"
    text = render(page)
    assert "1 run broken: sweep/1." in text
    assert "has no metrics.csv" in text


def test_a_band_reaches_from_the_lowest_seed_to_the_highest(trained_sweep: Path) -> None:
    contents = read_contents([trained_sweep])
    rows = contents.comparison.rows
    figures, problems = curve_figures(rows, contents.objectives)
    assert problems == []
    assert [figure.title for figure in figures][:2] == ["val/accuracy", "val/loss"]
    line = figures[1].marks[0]
    assert isinstance(line, Line)
    assert line.low is not None
    assert line.high is not None
    tables = [pd.read_csv(run.path / "metrics.csv") for run in rows[0].runs]
    values = np.stack([table["val/loss"].dropna().to_numpy() for table in tables])
    assert values.shape == (2, 3)
    np.testing.assert_allclose(line.y, values.mean(axis=0))
    np.testing.assert_allclose(line.low, values.min(axis=0))
    np.testing.assert_allclose(line.high, values.max(axis=0))
    assert "band" in figures[1].caption
    figures, notes = parameter_figures(rows, contents.objectives[0])
    assert ([figure.name for figure in figures], notes) == (["slice_1"], [])


def test_a_run_that_diverged_does_not_flatten_all_others(sweep: Path) -> None:
    contents = read_contents([sweep])
    figures = {one.title: one for one in curve_figures(contents.comparison.rows, contents.objectives)[0]}
    loss = figures["val/loss"]  # a learning rate of 100 is among them
    values = [value for mark in loss.marks if isinstance(mark, Line) for value in mark.y]
    assert loss.y_range is not None
    outside = [value for value in values if not loss.y_range[0] <= value <= loss.y_range[1]]
    assert f"{len(outside)} point" in loss.caption
    assert min(outside) > 10 * loss.y_range[1]
    assert figures["val/accuracy"].y_range is None


def test_a_process_that_died_has_said_its_last_words_where_its_output_went(tmp_path: Path) -> None:
    dead = tmp_path / "7"
    make_run(dead, status="failed", cause="killed")
    (dead / "log.txt").write_text("quiet")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "7.txt").write_text("Segmentation fault\n")
    for words in ("quiet", "Segmentation fault"):
        _, code = failure_blocks(read_contents([tmp_path]))
        assert isinstance(code, Code)
        assert code.text == words
        if words == "quiet":
            Journal.create(tmp_path, overrides=["seed=1,2"])


def test_what_a_terminal_would_obey_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\x1b[31mred\x1b[0m\x1b]0;owned\x07\nepoch 1\repoch 2\r\nbad \xff \x9b31m\x00\n\n")
    assert log_tail(log).splitlines() == [
        "red0;owned",
        "epoch 2",
        "bad � \\x9b31m\\x00".replace("\\x9b", "�"),
    ]


def test_no_link_is_followed_and_no_secret_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "log.txt").symlink_to(tmp_path / "secret")
    assert log_tail(tmp_path / "log.txt") == ""
    monkeypatch.setenv("MY_API_KEY", "kq83hfkw92hf")
    (tmp_path / "out.txt").write_text("token kq83hfkw92hf")
    assert log_tail(tmp_path / "out.txt") == "token ***"


@pytest.mark.parametrize("linked", ["logs", "4"])
def test_a_folder_that_is_a_link_shows_nothing_of_elsewhere(linked: str, sweep: Path, tmp_path: Path) -> None:
    """Of a sweep that somebody has sent: its folder of logs, and that of a job."""
    elsewhere = tmp_path / "elsewhere"
    if (sweep / linked).is_dir():
        (sweep / linked).rename(elsewhere)
    elsewhere.mkdir(exist_ok=True)
    for name in ("4.txt", "log.txt"):
        (elsewhere / name).write_text("hunter2\n")
    (sweep / linked).symlink_to(elsewhere)
    if linked == "logs":
        (sweep / "4" / "log.txt").unlink()
    contents = read_contents([sweep])
    html = render(sweep_page(contents, sweep))
    assert "hunter2" not in html
    assert len(contents.runs) == 6


def table(page: Page, name: str) -> Table:
    section = next(section for section in page.sections if section.name == name)
    return next(block for block in section.blocks if isinstance(block, Table))


def test_each_part_of_a_real_sweep_is_there(trained_sweep: Path) -> None:
    page = sweep_page(read_contents([trained_sweep]), trained_sweep)
    shown = [section.name for section in page.sections if section.blocks]
    assert shown == [
        *("summary", "leaderboard", "parameters", "curves", "failures", "jobs"),
        "reproduce",
    ]
    assert page.status == ("2 of 6 failed", "bad")
    board = list(table(page, "leaderboard").cells)
    assert [row[0].text for row in board] == ["1", "2", "3"]
    assert [cell.text for cell in board[0][1:3]] == ["2 of 2", "0.1"]
    assert "±" in board[0][3].text
    assert [row[-2].text for row in board] == ["finished", "finished", "2 failed (non_finite)"]
    jobs = list(table(page, "jobs").cells)
    assert sorted(row[1].href for row in jobs) == [f"{number}/" for number in range(6)]
    text = render(page)
    assert "the lowest first" not in text
    assert "By val/accuracy, the highest first" in text


def test_its_figures_are_pictures(sweep: Path, tmp_path: Path) -> None:
    written = report([sweep], png=tmp_path / "png")
    assert (written.of, written.page) == ("sweep", sweep / "report.html")
    assert {path.stem for path in written.pictures} == set(written.figures)
    assert 'href="5/"' in written.page.read_text()
    again = report([sweep / "0", sweep / "1"], tmp_path / "page.html")
    assert again.of == "runs"
    assert "2 runs" in again.page.read_text()


def test_losses_that_are_not_one_quantity_have_no_best(tmp_path: Path) -> None:
    """An own module without another score than its loss."""
    for number, weight in enumerate((None, [19])):
        for seed in range(2):
            make_run(
                tmp_path / f"{number}-{seed}",
                f"seed={seed}",
                config={"loss": {"_target_": "BCE", "pos_weight": weight}},
                metrics={"val/loss": number + seed / 10, "test/loss": 0.5},
                csv=None,
            )
    page = sweep_page(read_contents([tmp_path]), tmp_path)
    assert "loss.pos_weight=[19], null" in next(_notes(page))
    assert "which cannot rank these runs" in render(page)
    assert not any(cell.tone == "best" for row in table(page, "leaderboard").cells for cell in row)
    assert "against the second" not in render(page)


def test_of_thousands_of_runs_a_page_shows_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_page_module, "_MOST_ROWS", 2)
    for number in range(4):
        metrics = {"val/loss": number / 10}
        make_run(tmp_path / str(number), f"optimizer.lr={number}", metrics=metrics, csv=None)
    board = table(sweep_page(read_contents([tmp_path]), tmp_path), "leaderboard")
    assert [row[1].text for row in board.cells] == ["0", "1"]
    assert board.caption == f"The first 2 of 4: assay compare {tmp_path} --format csv has all."
    make_run(tmp_path / "4", "optimizer.lr=0", "seed=1", metrics={"val/loss": 0.1}, csv=None)
    jobs = table(sweep_page(read_contents([tmp_path]), tmp_path), "jobs")
    assert jobs.caption == f"The first 2 of 5: assay ls {tmp_path} --format csv has all."


def test_runs_that_are_broken_in_one_way_are_told_once_whatever_their_names(tmp_path: Path) -> None:
    for name in ("lark", "wren", "crow"):
        make_run(tmp_path / name, csv=None)
        record = tmp_path / name / "record.json"
        record.write_text(record.read_text().replace('"seed": ', '"seed": 1'))
    (note,) = failure_blocks(read_contents([tmp_path]))
    assert isinstance(note, Note)
    assert note.text.startswith("3 runs broken: crow, lark, wren.")


def _notes(page: Page) -> Iterator[str]:
    return (block.text for section in page.sections for block in section.blocks if isinstance(block, Note))


@pytest.mark.parametrize(("is_sweep", "thing"), [(True, "Job"), (False, "Run")])
def test_a_model_of_no_use_is_told_first(is_sweep: bool, thing: str, tmp_path: Path) -> None:
    make_run(tmp_path / "0", "optimizer.lr=1", metrics={"val/loss": 0.5})
    make_run(tmp_path / "1", "optimizer.lr=2", metrics={"val/loss": 0.4}, warnings=["it predicts one value"])
    if is_sweep:
        Journal.create(tmp_path, overrides=["optimizer.lr=1,2"])
    page = sweep_page(read_contents([tmp_path]), tmp_path)
    assert page.sections[0].blocks[0] == Note(f"{thing} 1: it predicts one value", "warn")


def test_a_sweep_that_goes_on_says_what_is_left(sweep: Path) -> None:
    Journal.open(sweep).add([JobRecord(6, "f", ("seed=1",), "", 1)])
    page = sweep_page(read_contents([sweep]), sweep)
    assert page.status == ("4 of 7 finished", "warn")
    assert "1 of 7 jobs are not done: assay resume" in render(page)
