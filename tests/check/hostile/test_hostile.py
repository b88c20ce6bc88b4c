"""No config, run directory or checkpoint runs code that the user did not name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.check.hostile.corpus import CASES

HERE = Path(__file__).parent
LINES, WIDTH = 3, 900


def ran(*words: str) -> list[Any]:
    """What the runner says, a line of JSON each."""
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "runner.py"), *words],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[2]), "OMP_NUM_THREADS": "1", "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_large_enough() -> None:
    assert len(CASES) >= 250
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.long
def test_the_payloads_are_real(tmp_path: Path) -> None:
    """A loader that does not judge leaves every marker."""
    rows = ran(str(tmp_path), "naive")
    assert len(rows) >= 35
    assert not [row["name"] for row in rows if not row["marker"]]


def check(rows: list[dict[str, Any]]) -> None:
    wrong = [
        row
        for row in rows
        if any(row[name] for name in ("marker", "written", "foreign", "started"))
        or row["code"] == 0
        or "Traceback" in row["said"]
    ]
    assert not wrong, wrong[:3]
    for row in rows:
        lines = row["said"].splitlines()
        assert 1 <= len(lines) <= LINES, row
        assert all(len(line) <= WIDTH for line in lines), row


def test_a_part_of_the_corpus(tmp_path: Path) -> None:
    rows = ran(str(tmp_path), "40")
    assert len(rows) == -(-len(CASES) // 40)
    check(rows)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_whole_corpus(tmp_path: Path) -> None:
    rows = ran(str(tmp_path), "1")
    assert len(rows) == len(CASES)
    check(rows)
