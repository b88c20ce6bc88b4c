from __future__ import annotations

from typing import TYPE_CHECKING

from assay.paths import CONF_DIR, project_conf

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_projects_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert project_conf() is None
    (tmp_path / "conf").write_text("a file", encoding="utf-8")
    assert project_conf() is None
    (tmp_path / "conf").unlink()
    (tmp_path / "conf").mkdir()
    assert project_conf() == tmp_path / "conf"


def test_assays_own_folder_is_not_taken_for_a_projects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CONF_DIR.parent)
    assert project_conf() is None
