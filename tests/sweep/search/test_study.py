"""Where a study lies, and opening it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optuna
import pytest

from assay.analysis.objective import Objective
from assay.callbacks.optuna_study import close_storage
from assay.errors import ConfigError
from assay.sweep.search.optuna import FILE, make_own, open_study, storage_of

if TYPE_CHECKING:
    from pathlib import Path

AIM = [Objective("val/accuracy", "maximize")]
PRUNER = {"_target_": "optuna.pruners.NopPruner"}


def test_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert storage_of("postgresql://host/db", tmp_path) == "postgresql://host/db"
    assert storage_of("a.journal", tmp_path) == str(tmp_path / "a.journal")
    folder = tmp_path / "with space & #"
    folder.mkdir()
    make_own(folder, "mine", AIM, PRUNER)
    study, storage = open_study(storage_of(None, folder), "mine", AIM, PRUNER)
    assert study.direction == optuna.study.StudyDirection.MAXIMIZE
    close_storage(storage)
    with pytest.raises(ConfigError, match="is not a storage of studies") as error:
        storage_of("study.db", tmp_path)
    assert "sqlite:///" in error.value.hint


def test_an_own_study_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    """A killed sweep leaves half a database under another name, which the next one replaces."""
    half = tmp_path / f".{FILE}.tmp"
    half.write_bytes(b"SQLite format 3\0 cut off")
    make_own(tmp_path, "mine", AIM, PRUNER)
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE]
    before = (tmp_path / FILE).read_bytes()
    make_own(tmp_path, "mine", AIM, PRUNER)
    assert (tmp_path / FILE).read_bytes() == before


def test_a_study_with_other_objectives_is_not_taken(tmp_path: Path) -> None:
    make_own(tmp_path, "mine", AIM, PRUNER)
    with pytest.raises(ConfigError, match="has other objectives already") as error:
        open_study(storage_of(None, tmp_path), "mine", [Objective("val/loss", "minimize")], PRUNER)
    assert error.value.key == "hydra.sweeper.study_name"


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database, but long enough to be read as one" * 40)
    with pytest.raises(ConfigError, match="the study cannot be opened") as error:
        open_study(storage_of(None, tmp_path), "mine", AIM, PRUNER)
    assert error.value.key == "hydra.sweeper.storage"
