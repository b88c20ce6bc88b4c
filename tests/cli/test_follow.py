"""`--follow` of `assay report`, `ls` and `compare`: what is shown while a run changes, and when it ends."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.command import documented, typed
from tests.making_runs import make_run

from assay.record.run_lock import lock_run
from assay.record.run_record import RunRecord
from assay_analysis.journal import Journal
from assay_report.follow import REWRITTEN_AFTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RUN = Path("my runs/a run")
PAGE = RUN / "report.html"


class Live:
    """A run of which a process writes, and what happens to it each time the follower waits."""

    def __init__(self, folder: Path = RUN) -> None:
        self.folder = folder
        self.lock = ExitStack()
        self.lock.enter_context(lock_run(folder))
        self.happens: list[Callable[[], object]] = []
        self.waits = 0

    def sleep(self, seconds: float) -> None:
        assert seconds >= 1, "no busy waiting"
        self.waits += 1
        self.happens.pop(0)()

    def add_epoch(self) -> None:
        with (RUN / "metrics.csv").open("a") as file:
            file.write("3,30,0.25,0.875\n")

    def finish(self) -> None:
        record = RunRecord.load(RUN)
        record.status = "finished"
        record.metrics = {"val/accuracy": 0.875}
        record.save(RUN)
        self.lock.close()


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.chdir(tmp_path)
    make_run(RUN, status="running", finished=None)
    live = Live()
    time_of = SimpleNamespace(sleep=live.sleep, monotonic=time.monotonic)
    monkeypatch.setattr("assay_report.follow.time", time_of)
    yield live
    live.lock.close()


def shown() -> tuple[bool, str, int]:
    """Whether the page reloads, its status, and how many epochs its curves have."""
    text = PAGE.read_text()
    status = re.search(r'<span class="chip [^"]*">(\w+)</span>', text)
    figures: dict[str, Any] = json.loads(
        re.findall(r'<script type="application/json">(.*?)</script>', text)[0]
    )
    assert status is not None
    until = re.search(r' data-reload-until="(\d+)"', text)
    assert ('http-equiv="refresh"' in text) == (until is not None)
    reloads = until is not None and int(until[1]) > 1000 * (time.time() + REWRITTEN_AFTER)
    return reloads, status[1], len(figures["curve_0"]["data"][0]["x"])


def test_the_page_grows_with_the_run_and_reloads_until_it_ends(live: Live) -> None:
    seen = []

    def look_then(act: Callable[[], object]) -> Callable[[], object]:
        def happen() -> None:
            seen.append(shown())
            act()

        return happen

    live.happens = [look_then(live.add_epoch), look_then((RUN / "log.txt").touch), live.finish]
    done = typed("report", RUN, "--follow")
    assert seen == [(True, "running", 2), (True, "running", 3)]
    assert shown() == (False, "finished", 3)
    first, *rest = done.stdout.splitlines()
    assert first == f"page  {PAGE}  (reloads until the runs have ended)"
    assert rest[0].startswith(f"page  {PAGE}  (")
    assert not list(RUN.glob(".*.tmp"))


def test_it_ends_when_the_run_is_killed_and_shows_the_scores_so_far(live: Live) -> None:
    live.happens = [live.lock.close]
    typed("report", RUN, "--follow")
    assert shown() == (False, "failed", 2)
    text = PAGE.read_text()
    assert "a process of the run died" in text
    assert "has logged no metrics" not in text
    assert 'title="0.75"' in text, "the last accuracy"


def test_after_ctrl_c_the_page_does_not_reload(live: Live) -> None:
    def interrupt() -> None:
        assert shown()[0]
        raise KeyboardInterrupt

    live.happens = [interrupt]
    typed("report", RUN, "--follow", code=130)
    assert shown() == (False, "running", 2)


def test_a_page_without_changes_is_rewritten_before_it_stops_reloading(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    hour = iter(range(0, 36000, 3600))
    clock = SimpleNamespace(sleep=live.sleep, monotonic=lambda: next(hour))
    monkeypatch.setattr("assay_report.follow.time", clock)
    stamps = []
    live.happens = [
        lambda: stamps.append(PAGE.stat().st_ino),
        lambda: stamps.append(PAGE.stat().st_ino),
        live.finish,
    ]
    typed("report", RUN, "--follow")
    assert len({*stamps}) == len(stamps) == 2


@pytest.mark.parametrize(
    "words", [("report", RUN), ("ls", RUN), ("compare", RUN)], ids=lambda words: words[0]
)
def test_what_has_ended_is_shown_once(live: Live, words: tuple[object, ...]) -> None:
    live.finish()
    assert typed(*words, "--follow").stdout.strip() == typed(*words).stdout.strip()
    assert live.waits == 0


def test_a_run_that_is_removed_ends_it(live: Live) -> None:
    live.happens = [lambda: RUN.rename("elsewhere")]
    assert f"there is no folder {RUN}" in typed("report", RUN, "--follow", code=1).stderr


def test_a_page_that_another_process_writes_is_left_to_it(live: Live) -> None:
    def write() -> None:
        typed("report", RUN)
        live.add_epoch()

    live.happens = [write]
    done = typed("report", RUN, "--follow", code=1)
    assert f"{PAGE} was written by another process" in done.stderr
    assert "--out FILE" in done.stderr
    assert shown() == (False, "running", 2), "as the other one wrote it"


def test_a_file_that_is_no_report_is_never_replaced(live: Live) -> None:
    def write() -> None:
        PAGE.write_text("my notes")
        live.add_epoch()

    live.happens = [write]
    typed("report", RUN, "--follow", code=1)
    assert PAGE.read_text() == "my notes"


def test_a_page_that_was_removed_is_written_again(live: Live) -> None:
    def remove() -> None:
        PAGE.unlink()
        live.add_epoch()

    live.happens = [remove, live.finish]
    typed("report", RUN, "--follow")
    assert shown() == (False, "finished", 3)


@pytest.mark.parametrize("verb", ["ls", "compare"])
def test_a_table_is_printed_again_where_it_has_changed(live: Live, verb: str) -> None:
    live.happens = [(RUN / "metrics.csv").touch, live.add_epoch, live.finish]
    out = typed(verb, "my runs", "--follow").stdout
    tables = [block for block in out.split("\n\n") if "val/accuracy" in block]
    assert [re.findall(r"\d\d\.\d\d %", table) for table in tables] == [["75.00 %"], ["87.50 %"], ["87.50 %"]]
    assert ["running" in table for table in tables] == [True, True, False]


def test_on_a_terminal_the_table_replaces_itself(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    live.happens = [live.add_epoch, live.finish]
    out = typed("ls", "my runs", "--follow").stdout
    assert out.count("\x1b[2K") >= 2, "lines are cleared"
    assert out.index("75.00 %") < out.index("\x1b[2K") < out.rindex("87.50 %")


def test_a_sweep_is_followed_until_its_driver_ends(live: Live) -> None:
    sweep = Path("sweep")
    Journal.create(sweep, overrides=["seed=1,2"])
    make_run(sweep / "0", "seed=1")
    driver = Live(sweep)
    live.happens = [lambda: make_run(sweep / "1", "seed=2"), driver.lock.close]
    typed("report", sweep, "--follow")
    text = (sweep / "report.html").read_text()
    assert live.waits == 2
    assert "2 finished" in text
    assert 'http-equiv="refresh"' not in text


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (["ls", "my runs", "--json"], "json"),
        (["compare", "my runs", "--format", "csv"], "csv"),
        (["report", RUN, "--json"], "json"),
    ],
)
def test_where_one_document_is_expected_it_is_refused(live: Live, words: list[object], form: str) -> None:
    assert form in typed(*words, "--follow", code=2).stderr
    assert not PAGE.exists()
    code, document = documented(*(word for word in words if word != "--json"), "--follow")
    assert (code, document["error"]["key"]) == (2, "--follow")
