"""Commands as they are typed, in a folder of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

QUICK = ["debug=one_batch", "device=cpu", "data=iris"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(*words: str, width: int = 80) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(width)})
