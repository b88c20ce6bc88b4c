"""Why jobs failed, and the end of their logs as text."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.report.sweep.made import contents, job

from assay.report.page import render
from assay.report.read_sweep import read_sweep
from assay.report.sweep_page import failures, log_tail, sweep_page

if TYPE_CHECKING:
    from pathlib import Path


def test_jobs_that_failed_alike_are_one_failure(trained_sweep: Path) -> None:
    (failure,) = failures(read_sweep(trained_sweep))
    assert (failure.status, failure.cause) == ("failed", "non_finite")
    assert [one.name for one in failure.jobs] == ["4", "5"]
    assert failure.log == trained_sweep / "4" / "log.txt"
    assert failure.tail.splitlines()[-1] in (trained_sweep / "4" / "log.txt").read_text()
    assert "became" in failure.reason


def test_a_process_that_died_has_said_its_last_words_where_its_output_went(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("quiet")
    (tmp_path / "7.txt").write_text("Segmentation fault\n")
    dead = job("7", {}, None, cause="killed", run_dir=tmp_path, output=tmp_path / "7.txt")
    assert failures(contents([dead]))[0].tail == "Segmentation fault"


def test_what_a_terminal_would_obey_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"\x1b[31mred\x1b[0m\x1b]0;owned\x07\nepoch 1\repoch 2\r\nbad \xff \x9b31m\x00\n\n")
    assert log_tail(log).splitlines() == ["red", "epoch 2", "bad � \\x9b31m\\x00".replace("\\x9b", "�")]


def test_a_long_log_is_read_from_its_end_alone(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        file.truncate(1 << 33)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"line\n" * 1000 + b"x" * 9000 + b"\nend\n")
    lines = log_tail(log).splitlines()
    assert lines[-1] == "end"
    assert len(lines[-2]) == 400
    assert len(lines) <= 25


def test_no_link_is_followed_and_no_secret_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "log.txt").symlink_to(tmp_path / "secret")
    assert log_tail(tmp_path / "log.txt") == ""
    monkeypatch.setenv("MY_API_KEY", "kq83hfkw92hf")
    (tmp_path / "out.txt").write_text("token kq83hfkw92hf")
    assert log_tail(tmp_path / "out.txt") == "token ***"


def test_numbers_alone_make_no_other_failure() -> None:
    jobs = [job(str(n), {"x": str(n)}, None, reason=f"loss became nan in batch {n}") for n in range(60)]
    jobs.append(job("60", {"x": "60"}, None, reason="another"))
    first, second = failures(contents(jobs))
    assert (len(first.jobs), len(second.jobs)) == (60, 1)


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
