"""The page of a sweep: whole, escaped, small, and without an error in a browser."""

from __future__ import annotations

import csv
import json
import shutil
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.making_runs import make_run
from tests.report.page.browser import needs_chromium, opened
from tests.report.sweep.made import ACCURACY, LOSS, contents, job

from assay.analysis.objective import Objective
from assay.files.checksum import seal_json
from assay.record.journal import JobRecord, Journal
from assay.record.outcome import Outcome
from assay.report.page import Note, Table, render, write
from assay.report.read_sweep import read_contents, read_sweep
from assay.report.report import report
from assay.report.sweep_page import sweep_page

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.report.page import Page

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"


def table(page: Page, name: str) -> Table:
    section = next(section for section in page.sections if section.name == name)
    return next(block for block in section.blocks if isinstance(block, Table))


def test_each_part_of_a_real_sweep_is_there(trained_sweep: Path) -> None:
    page = sweep_page(read_sweep(trained_sweep), trained_sweep)
    shown = [section.name for section in page.sections if section.blocks]
    assert shown == [
        *("summary", "leaderboard", "parameters", "tradeoff", "curves", "failures", "jobs"),
        "reproduce",
    ]
    assert page.status == ("2 of 6 failed", "bad")
    board = list(table(page, "leaderboard").cells)
    assert [row[0].text for row in board] == ["1", "2", "3"]
    assert board[0][1].text == "0.1"
    assert "±" in board[0][2].text
    assert [row[-2].text for row in board] == ["finished", "finished", "failed"]
    jobs = list(table(page, "jobs").cells)
    assert [row[0].href for row in jobs] == [f"{number}/" for number in range(6)]
    text = render(page)
    assert "the lowest first" not in text
    assert "By val/accuracy, the highest first" in text


@needs_chromium
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_draws_it_without_an_error(trained_sweep: Path, tmp_path: Path, width: int) -> None:
    page = sweep_page(read_sweep(trained_sweep), trained_sweep)
    write(page, tmp_path / "page.html")
    seen = opened(tmp_path / "page.html", tmp_path, width)
    assert seen.console == []
    assert seen.dom.count('class="main-svg"') >= len(page.figures)


def test_its_figures_are_pictures_and_numbers(sweep: Path, tmp_path: Path) -> None:
    written = report([sweep], png=tmp_path / "png", csv=tmp_path / "csv")
    assert (written.of, written.page) == ("sweep", sweep / "report.html")
    assert {path.stem for path in written.pictures} == set(written.figures)
    with (tmp_path / "csv" / "parallel_coordinates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(row["optimizer.lr"] for row in rows) == ["0.01", "0.1"]
    assert 'href="5/"' in written.page.read_text()
    again = report([sweep / "0", sweep / "1"], tmp_path / "page.html")
    assert again.of == "runs"
    assert "2 runs" in again.page.read_text()


def test_the_best_of_each_objective_is_marked() -> None:
    jobs = [job("0", {"lr": "1"}, 0.5), job("1", {"lr": "2"}, 0.4)]
    page = sweep_page(contents(jobs, LOSS, Objective("val/accuracy", "minimize")), Path())
    board = list(table(page, "leaderboard").cells)
    assert [[cell.tone for cell in row[3:5]] for row in board] == [["best", ""], ["", "best"]]


def test_the_leaderboard_has_the_scores_of_the_test() -> None:
    jobs = []
    for number, (lr, test) in enumerate((("1", 0.5), ("1", 0.7), ("2", 0.9))):
        metrics = {"val/loss": 0.5 - number / 10, "test/loss": 0.1, "test/accuracy": test}
        one = job(str(number), {"lr": lr}, 0.5, seed=str(number))
        jobs.append(replace(one, outcome=Outcome("finished", metrics=metrics)))
    board = table(sweep_page(contents(jobs), Path()), "leaderboard")
    assert list(board.columns)[:5] == ["#", "lr", "val/loss", "test/accuracy", "test/loss"]
    assert [row[3].text for row in board.cells] == ["90.00 %", "60 ± 130 %"]
    assert {"test/accuracy", "test/loss"} <= board.numeric


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
    assert "which cannot tell here which is best" in render(page)
    assert not any(cell.tone == "best" for row in table(page, "leaderboard").cells for cell in row)
    assert "ahead of the second" not in render(page)


def _notes(page: Page) -> Iterator[str]:
    return (block.text for section in page.sections for block in section.blocks if isinstance(block, Note))


@pytest.mark.parametrize(("is_sweep", "thing"), [(True, "Job"), (False, "Run")])
def test_a_model_of_no_use_is_told_first(is_sweep: bool, thing: str) -> None:
    useless = job("1", {"lr": "2"}, 0.4)
    assert useless.outcome is not None
    useless = replace(useless, outcome=replace(useless.outcome, warnings=["it predicts one value"]))
    page = sweep_page(contents([job("0", {"lr": "1"}, 0.5), useless], is_sweep=is_sweep), Path())
    first = page.sections[0].blocks[0]
    assert first == Note(f"{thing} 1: it predicts one value", "warn")


def test_text_of_a_users_reaches_no_page_unescaped() -> None:
    jobs = [
        job(EVIL, {EVIL: str(number), "x": EVIL}, loss, status=status, reason=EVIL, seed=EVIL)
        for number, (loss, status) in enumerate([(0.5, "finished"), (0.4, "finished"), (None, "failed")])
    ]
    page = sweep_page(
        contents(jobs, LOSS, ACCURACY, shared=(EVIL,), typed=(EVIL,), notices=(EVIL,)),
        Path(),
    )
    found: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append(tag)
            assert not any(name.startswith("on") for name, _ in attrs)

    Parser().feed(render(page))
    assert "img" not in found
    assert found.count("script") == 3, "data, library, and the page's own"


def test_an_empty_and_a_waiting_sweep_have_a_page(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "empty", overrides=["seed=1,2"])
    assert "Leaderboard" in render(sweep_page(read_sweep(tmp_path / "empty"), tmp_path))
    journal.add([JobRecord(0, "f", ("seed=1",), "", 1)])
    page = sweep_page(read_sweep(tmp_path / "empty"), tmp_path)
    assert page.status == ("0 of 1 finished", "warn")
    assert "assay resume" in render(page)


def duplicated(sweep: Path, folder: Path, number: int) -> Path:
    """A sweep of many jobs: real run directories of one, each with another learning rate and score."""
    aims = {"objectives": ["val/loss"], "directions": ["minimize"]}
    journal = Journal.create(folder, overrides=["optimizer.lr=choice()"], **aims)
    record = json.loads((sweep / "0" / "record.json").read_text())
    del record["sha256"]
    jobs, events = [], []
    for at in range(number):
        pair, seed = divmod(at, 2)
        lr = 10 ** (-4 + 8 * pair / number)
        overrides = (f"optimizer.lr={lr!r}", f"model.hidden=[{16 << pair % 5}]", f"seed={seed}")
        jobs.append(JobRecord(at, f"f{at}", overrides, "", seed))
        run_dir = folder / str(at)
        run_dir.mkdir()
        shutil.copy(sweep / "0" / "metrics.csv", run_dir)
        (run_dir / "record.json").write_text(seal_json(json.dumps(record | {"run_id": str(at)}, indent=2)))
        outcome = Outcome("finished", metrics={"val/loss": (lr - 0.01) ** 2 + 0.01 * seed})
        if at % 50 == 7:
            outcome = Outcome("failed", "exception", f"ValueError {at}")
        start = {"event": "start", "number": at, "attempt": 1, "at": f"2026-01-01T00:{at % 60:02}:00+00:00"}
        end = {"event": "end", "number": at, "final": True, "at": "2026-01-01T01:00:00+00:00"}
        events += [start, end | json.loads(outcome.to_json())]
    journal.add(jobs)
    journal._write(events)  # one write for all: each of its own is synced
    return folder


def test_a_thousand_jobs_make_a_small_page_soon(trained_sweep: Path, tmp_path: Path) -> None:
    large = duplicated(trained_sweep, tmp_path / "large", 1000)
    begin = time.perf_counter()
    page = sweep_page(read_sweep(large), large)
    text = render(page)
    seconds = time.perf_counter() - begin
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]  # plotly ships no types

    assert len(text.encode()) - len(get_plotlyjs().encode()) < 1_500_000
    assert seconds < 60, "10 s on a machine with nothing else to do"
    assert len(table(page, "jobs").rows) == 1000
