"""Contents of a page without a sweep, for what depends on values alone."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from tests.making_runs import make_run

from assay.analysis.jobs import Job
from assay.analysis.objective import Objective
from assay.analysis.read_runs import Curve
from assay.errors import AssayError
from assay.figure.figure import Line, Points
from assay.record import predictions_file
from assay.record.journal import JobRecord, Journal
from assay.record.outcome import Outcome
from assay.report.page import Cell, Note, Table, render
from assay.report.read_sweep import Contents, is_sweep, ranked, read_contents, read_runs, read_sweep
from assay.report.report import report
from assay.report.sweep_figures import curve_figures, parameter_figures, pareto_front, tradeoff
from assay.report.sweep_page import failures, fold_blocks, log_tail, sweep_page
from assay.task.prediction.stored_predictions import StoredPredictions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.report.page import Page


LOSS = Objective("val/loss", "minimize")
ACCURACY = Objective("val/accuracy", "maximize")


def job(name: str, values: Mapping[str, str], loss: float | None, **fields: Any) -> Job:
    """A job that has finished with a loss, or failed without one."""
    status: Any = fields.pop("status", "failed" if loss is None else "finished")
    metrics = {} if loss is None else {"val/loss": loss, "val/accuracy": 1 - loss}
    outcome = Outcome(status, fields.pop("cause", ""), fields.pop("reason", ""), metrics=metrics, seconds=2.0)
    return Job(name, values, fields.pop("seed", "0"), status, outcome, **fields)


def contents(jobs: Sequence[Job], *objectives: Objective, **fields: Any) -> Contents:
    """Of a sweep with these jobs."""
    return Contents("title", "source", tuple(jobs), objectives or (LOSS,), **fields)


def test_a_sweep_that_has_ended(trained_sweep: Path) -> None:
    assert is_sweep(trained_sweep)
    assert not is_sweep(trained_sweep / "0")
    contents = read_sweep(trained_sweep)
    assert [aim.name for aim in contents.objectives] == ["val/accuracy", "val/loss"]
    assert [aim.direction for aim in contents.objectives] == ["maximize", "minimize"]
    assert [job.status for job in contents.jobs] == ["finished"] * 4 + ["failed"] * 2
    assert [(job.values, job.seed) for job in contents.jobs[1:3]] == [
        ({"optimizer.lr": "0.1"}, "2"),
        ({"optimizer.lr": "0.01"}, "1"),
    ]
    assert "data=iris" in contents.shared
    assert contents.typed[0].startswith("assay train -m data=iris")
    assert contents.notices == ()
    assert contents.keys == ["optimizer.lr"]


def test_a_damaged_record_is_said_and_the_journal_knows_the_score(sweep: Path) -> None:
    (sweep / "1" / "record.json").write_text("{}")
    contents = read_sweep(sweep)
    assert contents.jobs[1].status == "finished"
    assert contents.jobs[1].outcome is not None
    (notice,) = contents.notices
    assert notice.startswith("Job 1: ")
    assert "schema version" in notice


def test_a_sweep_with_a_damaged_journal_is_what_its_runs_are(sweep: Path, tmp_path: Path) -> None:
    journal = sweep / "journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b"optimizer.lr=0.1", b"optimizer.lr=0.2", 1))
    contents = read_contents([sweep])
    assert len(contents.jobs) == 6
    assert "is damaged in line 1. What follows is from the run directories" in contents.notices[0]
    alone = Journal.create(tmp_path / "alone", overrides=["seed=1"]).path
    alone.write_bytes(alone.read_bytes()[:-30] + b"\n")
    with pytest.raises(AssayError, match="damaged"):
        read_contents([tmp_path / "alone"])


def test_a_sweeps_runs_alone_say_what_its_journal_says(trained_sweep: Path) -> None:
    runs, sweep = read_runs([trained_sweep]), read_sweep(trained_sweep)
    assert not runs.is_sweep
    (aim,) = runs.objectives
    assert (aim.name, aim.direction) == ("val/loss", "minimize"), "what checkpoints are kept by"
    by_name = {job.name: job for job in runs.jobs}
    for job in sweep.jobs:
        assert by_name[job.name].values == job.values
        assert (by_name[job.name].seed, by_name[job.name].status) == (job.seed, job.status)
    scores = {group.label: group.scores[0] for group in ranked(runs)}
    assert scores.keys() == {"optimizer.lr=0.1", "optimizer.lr=0.01", "optimizer.lr=100"}
    assert all(len(group.jobs) == 2 for group in ranked(runs))


def test_several_folders_and_broken_runs_have_a_page(sweep: Path) -> None:
    (sweep / "1" / "record.json").write_text("<script>")
    (sweep / "2" / "metrics.csv").unlink()
    shutil.copytree(sweep / "0", sweep.parent / "other" / "again")
    contents = read_runs([sweep, sweep.parent / "other"])
    assert contents.title == f"{len(contents.jobs)} runs"
    broken = [job for job in contents.jobs if job.status == "broken"]
    assert [job.name for job in broken] == ["sweep/1"]
    assert any("of the same config and seed" in notice for notice in contents.notices)
    text = render(sweep_page(contents, sweep))
    assert "1 run broken: sweep/1." in text
    assert "has no metrics.csv" in text


WORST = Objective("val/loss", "maximize")


@pytest.mark.parametrize(("aim", "best"), [(LOSS, "a"), (WORST, "b")])
def test_the_best_comes_first_and_what_has_not_finished_last(aim: object, best: str) -> None:
    jobs = [
        job("0", {"lr": "b"}, 0.6),
        job("1", {"lr": "a"}, 0.4),
        job("2", {"lr": "c"}, 0.1),
        job("3", {"lr": "c"}, None),
        job("4", {"lr": "d"}, 0.5, status="pruned"),
    ]
    groups = ranked(contents(jobs, aim))  # type: ignore[arg-type]  # an objective
    assert groups[0].values["lr"] == best
    assert [group.values["lr"] for group in groups[2:]] == ["c", "d"]
    assert groups[2].status == "finished", "one of its seeds has"
    assert groups[3].scores == (None,), "what was pruned has no final score"


def curve(steps: list[int], values: list[float]) -> Curve:
    return Curve(steps, [None] * len(steps), values)


def test_a_band_reaches_from_the_lowest_seed_to_the_highest(trained_sweep: Path) -> None:
    contents = read_sweep(trained_sweep)
    groups = ranked(contents)
    figures, problems = curve_figures(contents, groups)
    assert problems == []
    assert [figure.title for figure in figures][:2] == ["val/accuracy", "val/loss"]
    line = figures[1].marks[0]
    assert isinstance(line, Line)
    assert line.low is not None
    assert line.high is not None
    tables = [pd.read_csv(job.run_dir / "metrics.csv") for job in groups[0].jobs if job.run_dir is not None]
    values = np.stack([table["val/loss"].dropna().to_numpy() for table in tables])
    assert values.shape == (2, 3)
    np.testing.assert_allclose(line.y, values.mean(axis=0))
    np.testing.assert_allclose(line.low, values.min(axis=0))
    np.testing.assert_allclose(line.high, values.max(axis=0))
    assert "band" in figures[1].caption


def test_a_run_that_diverged_does_not_flatten_all_others(sweep: Path) -> None:
    contents = read_sweep(sweep)
    figures = {one.title: one for one in curve_figures(contents, ranked(contents))[0]}
    loss = figures["val/loss"]  # a learning rate of 100 is among them
    values = [value for mark in loss.marks if isinstance(mark, Line) for value in mark.y]
    assert loss.y_range is not None
    outside = [value for value in values if not loss.y_range[0] <= value <= loss.y_range[1]]
    assert f"{len(outside)} point" in loss.caption
    assert min(outside) > 10 * loss.y_range[1]
    assert figures["val/accuracy"].y_range is None


def test_a_process_that_died_has_said_its_last_words_where_its_output_went(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("quiet")
    (tmp_path / "7.txt").write_text("Segmentation fault\n")
    dead = job("7", {}, None, cause="killed", run_dir=tmp_path, output=tmp_path / "7.txt")
    assert failures(contents([dead]))[0].tail == "Segmentation fault"


def test_what_a_terminal_would_obey_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\x1b[31mred\x1b[0m\x1b]0;owned\x07\nepoch 1\repoch 2\r\nbad \xff \x9b31m\x00\n\n")
    assert log_tail(log).splitlines() == ["red", "epoch 2", "bad � \\x9b31m\\x00".replace("\\x9b", "�")]


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
    contents = read_sweep(sweep)
    html = render(sweep_page(contents, sweep))
    assert "hunter2" not in html
    notice = f"{sweep / linked} is a link to {elsewhere}, outside of {sweep}"
    assert any(notice in one for one in contents.notices)
    assert len(contents.jobs) == len(read_sweep(sweep).jobs)


def test_of_a_real_sweep(trained_sweep: Path) -> None:
    found = read_sweep(trained_sweep)
    figures, notes = parameter_figures(found, ranked(found))
    assert [figure.name for figure in figures] == ["slice_1"]
    assert notes == ["Importance: 2 finished configurations are too few: at least 10 are needed."]
    against = tradeoff(found, ranked(found))
    assert against is not None
    points = against.marks[1]
    assert isinstance(points, Points)
    assert len(points.x) == 2
    assert against.x_label == "val/accuracy (higher is better)"


def test_the_front_is_what_no_point_dominates() -> None:
    draw = np.random.default_rng(3)
    x, y = draw.integers(0, 20, 60).astype(float), draw.integers(0, 20, 60).astype(float)
    for first in ("minimize", "maximize"):
        for second in ("minimize", "maximize"):
            costs = np.stack([x if first == "minimize" else -x, y if second == "minimize" else -y], axis=1)
            beaten = [any((other <= one).all() and (other < one).any() for other in costs) for one in costs]
            expected = {tuple(cost) for cost, is_beaten in zip(costs, beaten, strict=True) if not is_beaten}
            assert {tuple(cost) for cost in costs[pareto_front(x, y, first, second)]} == expected


def job_folds(folder: Path, name: int, fold: int, **values: str) -> Job:
    """Fold f has ten samples, f of which are wrong."""
    run_dir = folder / str(name)
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("data: {split: {folds: 3}}\n")
    right = np.arange(10) >= fold
    outputs = np.stack([right, ~right], axis=1).astype(np.float32)
    keys = tuple(f"{fold}-{row}" for row in range(10))
    said = StoredPredictions("multiclass", "probabilities", keys, outputs, np.zeros(10, np.int64), ("a", "b"))
    predictions_file.write(run_dir / predictions_file.FILE, said)
    outcome = Outcome("finished", metrics={"test/accuracy": 1 - fold / 10, "val/loss": 0.5})
    return Job(str(name), values, "0", "finished", outcome, run_dir, fold=fold)


def tables(*jobs: Job) -> tuple[list[Table], list[str]]:
    contents = Contents("sweep", "sweep", jobs, (Objective("val/loss", "minimize"),))
    blocks = fold_blocks(contents)
    notes = [block.text for block in blocks if isinstance(block, Note)]
    return [block for block in blocks if isinstance(block, Table)], notes


def texts(row: object) -> list[str]:
    return [cell.text if isinstance(cell, Cell) else cell for cell in row]  # type: ignore[attr-defined]  # a row


def test_scores_of_all_samples_at_once(tmp_path: Path) -> None:
    jobs = [job_folds(tmp_path, 20 + fold, fold) for fold in range(3)]
    [out_of_fold], notes = tables(*jobs)
    assert texts(out_of_fold.rows[0])[:2] == ["30", "90.00 %"]
    assert not notes
    _, notes = tables(*jobs[::2])
    assert notes == ["Fold 1 of 3 is missing."]


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


def test_its_figures_are_pictures_and_numbers(sweep: Path, tmp_path: Path) -> None:
    written = report([sweep], png=tmp_path / "png", csv=tmp_path / "csv")
    assert (written.of, written.page) == ("sweep", sweep / "report.html")
    assert {path.stem for path in written.pictures} == set(written.figures)
    with (tmp_path / "csv" / "slice_1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert sorted(float(row["x"]) for row in rows) == [0.01, 0.1]
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
    page = sweep_page(contents(jobs, LOSS, ACCURACY, shared=(EVIL,), typed=(EVIL,), notices=(EVIL,)), Path())
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
