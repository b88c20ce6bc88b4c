"""The vocabulary of ends: its words, its exit codes, and outcomes that somebody else has written."""

from __future__ import annotations

import json
import subprocess
from typing import Any, get_args

import pytest

from assay.record.outcome import Cause, Outcome, Status, exit_code, exit_code_of, stopped_by

WHOLE = Outcome(
    "interrupted", "", "stopped by SIGTERM", "SIGTERM", {"val/loss": 0.5}, {"monitor": "val/loss"}, 2.5
)


@pytest.mark.parametrize("status", [word for word in get_args(Status) if word != "running"])
def test_every_end_has_an_exit_code(status: Status) -> None:
    assert exit_code(status) == {"finished": 0, "pruned": 0, "failed": 1, "interrupted": 130}[status]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_the_exit_code_of_a_signal_is_that_of_the_shell(name: str) -> None:
    ends_itself = f"sh -c 'kill -{name.removeprefix('SIG')} $$'; exit $?"
    by_shell = subprocess.run(["/bin/sh", "-c", ends_itself], check=False).returncode
    assert exit_code("interrupted", name) == exit_code_of(name) == by_shell


def test_the_signal_that_asks_a_run_to_stop_counts_as_sigterm() -> None:
    assert exit_code_of("SIGUSR1") == exit_code_of("SIGTERM") == 143
    assert exit_code_of("of somebody's record") == 130


def test_the_reason_names_the_signal() -> None:
    assert stopped_by("SIGINT") == "stopped by hand"
    assert stopped_by("SIGHUP") == "stopped by SIGHUP"


@pytest.mark.parametrize("cause", get_args(Cause))
def test_only_what_the_machine_did_may_end_differently(cause: Cause) -> None:
    expected = cause in ("machine", "killed", "timed_out", "cannot_write")
    assert Outcome("failed", cause).transient == expected


def test_what_is_not_an_outcome_is_refused() -> None:
    assert Outcome.from_json(WHOLE.to_json()) == WHOLE
    plain: dict[str, Any] = json.loads(WHOLE.to_json())
    others: list[Any] = [None, [], "finished", 3, {}, {"status": "running"}]
    for content in others:
        with pytest.raises(ValueError, match=r"Expected|missing|running"):
            Outcome.from_plain(content)
    for name in plain:
        for value in (None, [1], b"x", "7" if name == "seconds" else 7):
            with pytest.raises(ValueError, match=name):
                Outcome.from_plain({**plain, name: value})
