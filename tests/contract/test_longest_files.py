"""The test files that are begun first exist."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import LONGEST

TESTS = Path(__file__).parents[1]


def test_the_longest_test_files_are_there() -> None:
    assert not [name for name in LONGEST if not (TESTS / name).is_file()]
