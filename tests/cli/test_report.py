from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from assay.cli.app import app

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.conftest import Trained


def test_it_says_where_the_page_is_and_what_comes_next(digits_run: Trained, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    said = CliRunner().invoke(app, ["report", str(digits_run.run_dir), "--out", str(page)])
    assert said.exit_code == 0
    assert said.stdout.startswith(f"page  {page}  (")
    assert f"next  assay predict {digits_run.run_dir} INPUT" in said.stdout
    assert f"assay compare {digits_run.run_dir.parent}" in said.stdout


def test_open_opens_it(digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def remember(address: str) -> bool:
        opened.append(address)
        return True

    monkeypatch.setattr("webbrowser.open", remember)
    words = ["report", str(digits_run.run_dir), "--out", str(tmp_path / "p.html"), "--open"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert opened == [(tmp_path / "p.html").as_uri()]
