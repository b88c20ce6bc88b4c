"""Studies that are killed between any two calls, and in the midst of Optuna's own writes."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from optuna.trial import TrialState
from tests.sweep.search.studies import (
    SAMPLERS,
    SPACE,
    Killed,
    Line,
    check_whole,
    counted,
    drive,
    ended,
    run,
    sampler,
    search,
)

from assay.errors import ConfigError
from assay.record.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence


def kill_and_resume(folder: Path, calls: int, at_once: int, **arguments: Any) -> tuple[list[Line], bool]:
    """The journal of a sweep that was killed after so many calls and resumed; whether it was."""
    journal: list[Line] = []
    one = search(folder, **arguments)
    killed = False
    try:
        drive(one, journal, at_once=at_once, calls=calls)
    except Killed:
        killed = True
    one.close()
    again = search(folder, **arguments)
    drive(again, journal, at_once=at_once)
    check_whole(again, journal)
    again.close()
    return journal, killed


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Line]:
    """The journal of a study that nobody kills."""
    journal: list[Line] = []
    run(tmp_path_factory.mktemp("whole"), journal, num_trials=5).close()
    return journal


@pytest.mark.always("14")
@pytest.mark.parametrize("calls", [3, 4, 9, 14, 19])
def test_a_killed_study_ends_with_exactly_its_trials(calls: int, whole: list[Line], tmp_path: Path) -> None:
    journal, killed = kill_and_resume(tmp_path / "killed", calls, 1, num_trials=5)
    assert killed
    assert [entry[1] for entry in journal] == [entry[1] for entry in whole], "a serial one is the same again"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [*SAMPLERS, "GridSampler"])
@pytest.mark.parametrize("overrides", [(), ("seed=0,1,2",)], ids=["one seed", "three seeds"])
def test_killed_between_any_two_calls(name: str, overrides: Sequence[str], tmp_path: Path) -> None:
    space = {**SPACE, "lr": "0.1,0.01"} if name == "GridSampler" else SPACE
    for at_once in (1, 3):
        calls, killed = 0, True
        while killed:
            calls += 1
            _, killed = kill_and_resume(
                tmp_path / f"{at_once}-{calls}",
                calls,
                at_once,
                overrides=overrides,
                sampler=sampler(name),
                params=space,
                num_trials=6,
            )
        assert calls > 20


@pytest.mark.always("5", "17")
@pytest.mark.parametrize("calls", [2, 5, 11, 17])
def test_killed_with_three_jobs_of_two_seeds_at_once(calls: int, tmp_path: Path) -> None:
    _, killed = kill_and_resume(tmp_path, calls, 3, overrides=["seed=0,1"], num_trials=3)
    assert killed


DRIVER = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from assay.record.outcome import Outcome
from studies import loss, search
folder = Path(sys.argv[1])
journal = folder / "journal.jsonl"
lines = journal.read_text().split("\\n") if journal.exists() else []
known = {}
for line in lines[:-1]:
    token, overrides, scores = json.loads(line)
    known[token] = (overrides, scores)
one = search(folder, num_trials=int(sys.argv[3]))
one.restore([(t, Outcome("finished") if s else None, s) for t, (o, s) in known.items()])
with journal.open("a") as file:
    def write(*entry):
        file.write(json.dumps(entry) + "\\n"); file.flush(); os.fsync(file.fileno())
    if lines and lines[-1]:
        file.write("\\n")
    waiting = [(t, o) for t, (o, s) in known.items() if not s]
    while True:
        if not waiting:
            proposal = one.next()
            if proposal is None:
                break
            write(proposal.token, proposal.overrides, None)
            waiting.append((proposal.token, proposal.overrides))
        token, overrides = waiting.pop()
        scores = [loss(overrides)]
        write(token, overrides, scores)
        one.tell(token, Outcome("finished"), scores)
print("whole")
"""


@pytest.mark.parametrize("kills", [2, pytest.param(60, marks=pytest.mark.long)])
def test_a_process_killed_anywhere_in_a_study(kills: int, tmp_path: Path) -> None:
    """SIGKILL, also in the midst of Optuna's own writes."""
    trials, moments = (12, random.Random(1)) if kills < 10 else (150, random.Random(2))
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(Path(__file__).parent), str(trials)]
    said = ""

    def written() -> list[str]:
        path = tmp_path / "journal.jsonl"
        return path.read_text().splitlines() if path.exists() else []

    for attempt in range(kills + 1):
        before = len(written())
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if attempt < kills:
            # First while the study is being made, then while it is used.
            while process.poll() is None and not (
                len(written()) > before + 2 if attempt else (tmp_path / ".study.db.tmp").exists()
            ):
                time.sleep(0.005)
            time.sleep(moments.uniform(0, 0.05))
            process.kill()
        said, _ = process.communicate(timeout=120)
    assert "whole" in said
    one = search(tmp_path, num_trials=trials)
    assert len(counted(one.study)) == trials
    one.close()
    assert len({line.split(",", 1)[0] for line in written()}) == trials


def test_more_trials_on_resume_are_added_to_those_there_are(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path, journal, num_trials=3).close()
    one = run(tmp_path, journal, num_trials=5)
    assert len(journal) == len(one.study.get_trials()) == 5
    assert len({entry[1] for entry in journal}) == 5, "a sampler that begins anew repeats its first trials"
    one.close()


def test_a_job_that_was_interrupted_has_not_ended(tmp_path: Path) -> None:
    one = search(tmp_path)
    proposal = one.next()
    assert proposal is not None
    one.tell(proposal.token, ended("interrupted"), None)
    assert one.study.get_trials()[0].state == TrialState.RUNNING
    one.tell(proposal.token, Outcome("finished"), [1.0])
    one.tell(proposal.token, Outcome("finished"), [2.0])
    assert one.study.get_trials()[0].value == 1.0
    one.close()


def test_other_choices_on_resume_are_told_of(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path, journal, num_trials=2).close()
    one = search(tmp_path, params={**SPACE, "opt": "sgd,adamw,rmsprop"}, num_trials=3)
    one.restore([(token, outcome, scores) for token, _, outcome, scores in journal])
    with pytest.raises(ConfigError, match="cannot go on with this space"):
        one.next()
    one.close()


def test_a_study_without_trials_of_the_journal_is_refused(tmp_path: Path) -> None:
    journal: list[Line] = []
    run(tmp_path / "1", journal, num_trials=3).close()
    with pytest.raises(ConfigError, match="has no trial 0, which the journal has"):
        drive(search(tmp_path / "2", num_trials=5), journal)
