from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from assay.record.provenance import (
    code_changes,
    differences_within,
    machine_changes,
    package_changes,
    segment_here,
    segments,
    shortened,
)
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

HERE: dict[str, Any] = {
    "git": {"commit": "a" * 40},
    "patch_sha256": "",
    "lock_sha256": "1",
    "packages": {"torch": "2.14", "six": "1", "numpy": "2"},
    "machine": {"cpu": "one", "threads": 4, "gpus": [], "environment": {"OMP_NUM_THREADS": "4"}},
}


def changed(**parts: Any) -> dict[str, Any]:
    other = copy.deepcopy(HERE)
    for name, value in parts.items():
        other[name] = {**other[name], **value} if isinstance(value, dict) else value
    return other


def record(*entries: dict[str, Any]) -> RunRecord:
    told = {
        "run_id": "r",
        "name": "n",
        "status": "finished",
        "started": "2026",
        "seed": 1,
        "fingerprint": "f",
        "config_fingerprint": "c",
    }
    return RunRecord(**told, **copy.deepcopy(HERE), resumed=list(entries))  # type: ignore[arg-type]  # as they come


def test_what_runs_here_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    segment, patch = segment_here(["a GPU"], 3)
    assert (segment["git"], segment["patch_sha256"], patch) == (None, "", "")
    assert (segment["machine"]["gpus"], segment["machine"]["threads"]) == (["a GPU"], 3)
    assert segment["packages"].keys() >= {"torch", "numpy"}
    assert machine_changes(segment, segment) == code_changes(segment, segment) == []


def test_an_entry_says_what_changed_and_the_whole_comes_back() -> None:
    now = changed(packages={"torch": "2.15", "rich": "1"}, machine={"cpu": "other"})
    del now["packages"]["six"]
    entry = shortened(now, HERE)
    assert entry["packages"] == {"rich": "1", "six": "", "torch": "2.15"}
    third = changed(packages=now["packages"] | {"numpy": "3"})
    del third["packages"]["six"]
    found = segments(record(entry, {"from_step": 3}, shortened(third, now)))
    assert found == [HERE, now, third]


def test_differences_within_a_run_name_the_step() -> None:
    entries = [
        {**shortened(changed(machine={"cpu": "other"}), HERE), "from_step": 7},
        {**shortened(changed(machine={"cpu": "other"}), HERE), "from_step": 9},
    ]
    assert differences_within(record(*entries)) == [
        "the run itself went on at step 7 with other CPU: one then, other now"
    ]
    assert differences_within(record()) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"git": {"commit": "b" * 40}}, ["code: commit aaaaaaaaaaaa then, commit bbbbbbbbbbbb now"]),
        (
            {"patch_sha256": "c" * 64},
            ["code: commit aaaaaaaaaaaa then, commit aaaaaaaaaaaa with changes (cccccccc) now"],
        ),
        ({"git": None}, ["code: commit aaaaaaaaaaaa then, not in a repository now"]),
        ({"machine": {"cpu": "other"}}, []),
    ],
)
def test_other_code(now: dict[str, Any], said: list[str]) -> None:
    assert code_changes(HERE, changed(**now)) == said


def test_the_likeliest_cause_of_other_numbers_comes_first() -> None:
    now = changed(
        machine={"gpus": ["H"], "threads": 8, "environment": {"OMP_NUM_THREADS": "8", "CUBLAS": "1"}},
        packages={"torch": "2.15"},
    )
    assert machine_changes(HERE, now) == [
        "device: none then, ['H'] now",
        "packages: torch 2.14 then, 2.15 now",
        "threads: 4 then, 8 now",
        "environment: CUBLAS= then, 1 now",
    ]


def test_of_many_packages_those_that_compute_are_shown() -> None:
    then = dict.fromkeys(("abc", "b", "c", "d", "e", "f", "numpy", "torch"), "1")
    found = package_changes(then, {})
    assert found[:2] == ["torch 1 then, none now", "numpy 1 then, none now"]
    assert found[-1] == "2 more"
