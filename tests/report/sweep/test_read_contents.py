"""A sweep or runs, by what lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.record.journal import Journal
from assay.report.sweep.read_contents import read_contents

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sweep_alone_is_a_sweep_and_with_others_runs(trained_sweep: Path) -> None:
    assert read_contents([trained_sweep]).is_sweep
    assert not read_contents([trained_sweep, trained_sweep / "0"]).is_sweep
    assert not read_contents([trained_sweep.parent]).is_sweep


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
