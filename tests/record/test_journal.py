"""The journal of a sweep survives every death, and forgets nothing that it has told."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import AssayError
from assay.record.run_directory import JOURNAL
from assay.record.run_record import Outcome
from assay.record.secrets import redact_tree
from assay_analysis.journal import JobRecord, Journal

if TYPE_CHECKING:
    from pathlib import Path


DONE = Outcome("finished", metrics={"val/loss": 0.25}, best={"monitor": "val/loss", "value": 0.2, "epoch": 3})
NUMBERS = st.integers(0, 3)
TEXT = st.text(max_size=8)
STEPS = st.one_of(
    st.tuples(st.just("start"), NUMBERS, st.integers(1, 4)),
    st.tuples(
        st.just("end"),
        NUMBERS,
        st.builds(
            Outcome,
            status=st.sampled_from(["finished", "failed", "pruned", "interrupted"]),
            cause=st.sampled_from(["", "killed", "out_of_memory"]),
            reason=TEXT,
            metrics=st.dictionaries(TEXT, st.floats(), max_size=2),
        ),
        st.booleans(),
    ),
    st.tuples(st.just("reopen"), NUMBERS),
)


def job_records() -> list[JobRecord]:
    return [JobRecord(number, f"f{number}", (f"seed={number}",), f"t{number}", number) for number in range(4)]


def new(folder: Path) -> Journal:
    journal = Journal.create(folder, overrides=["seed=range(4)"], config_dir="")
    journal.add(job_records())
    return journal


def play(journal: Journal, steps: list[tuple[object, ...]]) -> None:
    for what, *arguments in steps:
        if what == "end":
            number, outcome, final = arguments
            journal.end(number, outcome, final=final)  # type: ignore[arg-type]  # as STEPS draws them
        else:
            getattr(journal, str(what))(*arguments)


def same(one: object, two: object) -> bool:
    return repr(one) == repr(two)  # NaN is NaN here


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=12))
def test_what_is_read_is_what_was_known(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]]
) -> None:
    journal = new(tmp_path_factory.mktemp("sweep"))
    play(journal, steps)
    again = Journal.open(journal.path.parent)
    assert same(again.jobs, journal.jobs)
    assert again.header == journal.header


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, min_size=1, max_size=6), share=st.floats(0, 1))
def test_a_torn_tail_is_cut_off_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[object, ...]], share: float
) -> None:
    folder = tmp_path_factory.mktemp("sweep")
    journal = new(folder)
    play(journal, steps[:-1])
    before = repr(journal.jobs)
    whole = journal.path.read_bytes()
    play(journal, steps[-1:])
    last = journal.path.read_bytes()[len(whole) :]
    journal.path.write_bytes(whole + last[: int(share * (len(last) - 1))])
    again = Journal.open(folder)
    assert repr(again.jobs) == before
    assert again.path.read_bytes() == whole
    again.end(0, DONE)
    assert Journal.open(folder).jobs[0].status == "finished"


def test_damage_within_is_told_not_repaired(tmp_path: Path) -> None:
    journal = new(tmp_path)
    content = journal.path.read_bytes().replace(b'"event":"job"', b'"event":"jo\0"', 1)
    journal.path.write_bytes(content)
    with pytest.raises(AssayError, match="damaged in line 2"):
        Journal.open(tmp_path)
    assert journal.path.read_bytes() == content


def test_the_journal_says_when_a_job_began_and_what_jobs_are_compared_by(tmp_path: Path) -> None:
    aims = {"objectives": ["val/loss", "test/loss"], "directions": ["minimize", "minimize"]}
    journal = Journal.create(tmp_path, overrides=["seed=range(4)"], **aims)
    journal.add(job_records())
    before = datetime.now(UTC)
    journal.start(0, 1)
    after = datetime.now(UTC)
    journal.end(0, Outcome("failed", "killed"), final=False)
    journal.start(0, 2)
    journal.note_command(["x=1"], objectives=["val/accuracy"], directions=["maximize"])
    again = Journal.open(tmp_path)
    second = timedelta(seconds=1)
    assert before - second < datetime.fromisoformat(again.jobs[0].started) <= after + second
    assert again.objectives == [("val/accuracy", "maximize")]


def test_a_journal_is_begun_once(tmp_path: Path) -> None:
    new(tmp_path)
    with pytest.raises(AssayError, match="already holds a sweep"):
        Journal.create(tmp_path, overrides=[])
    with pytest.raises(AssayError, match="is not a sweep"):
        Journal.open(tmp_path / "other")


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = new(tmp_path)
    whole, genuine = journal.path.read_bytes(), os.write

    def half(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return genuine(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", lambda descriptor, data: half(descriptor, bytes(data)[:11]))
    with pytest.raises(OSError, match="No space"):
        journal.start(0, 1)
    monkeypatch.undo()
    assert journal.path.read_bytes() == whole
    assert journal.jobs[0].status == "waiting", "what is not on disk has not happened"


def test_a_token_is_not_a_secret(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path, overrides=["seed=100,200"])
    journal.add([JobRecord(0, "f", ("seed=100",), "seed=100")])
    journal.add([JobRecord(1, "g", ("+logger.x.api_key=abcdef123",), "a=1 +logger.x.api_key=abcdef123")])
    kept = Journal.open(tmp_path).jobs
    assert kept[0] == journal.jobs[0]
    assert (kept[1].overrides, kept[1].token) == (("+logger.x.api_key=***",), "a=1 +logger.x.api_key=***")
    assert redact_tree({"overrides": ["seed=100"]}) == {"overrides": ["seed=100"]}, "nor anywhere else"


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.long)])
def test_a_writer_that_is_killed_loses_at_most_its_last_line(tmp_path: Path, kills: int) -> None:
    new(tmp_path)
    told = 0
    for round_ in range(kills):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            journal = Journal.open(tmp_path)
            for attempt in range(1, 10_000):
                journal.start(1, attempt + 10_000 * round_)
                os.write(write, b".")
            os._exit(0)
        os.close(write)
        told = len(os.read(read, 1 + 7 * round_))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(read, 65536):
            told += len(more)
        os.close(read)
        before = (tmp_path / JOURNAL).read_bytes()
        journal = Journal.open(tmp_path)
        assert before.startswith(journal.path.read_bytes())
        assert journal.jobs[1].attempts - 10_000 * round_ in (told, told + 1), "told is on disk"


def test_a_journal_of_another_version_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"event": "sweep", "version": 2, "overrides": []}\n')
    with pytest.raises(AssayError, match="has version 2; this assay reads 1"):
        Journal.open(tmp_path)
