"""The config of a run directory that may be somebody else's: whole, judged, and nothing of it imported."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError, ConfigError
from assay.files.checksum import seal_yaml
from assay.run.saved_config import judged_config, read_config

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "seed: 1\nmodel:\n  _target_: assay.model.mlp.MLP\ntrusted_packages: [os]\nhydra: {job: {name: x}}\n"


def test_it_is_read_without_hydras_node_and_without_its_own_trust(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(seal_yaml(TEXT))
    config = read_config(tmp_path, ["mine"], must_be_whole=True)
    assert config.seed == 1
    assert "hydra" not in config
    assert [*config.trusted_packages] == ["mine"]


def test_one_that_was_changed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(seal_yaml(TEXT).replace("seed: 1", "seed: 2"))
    with pytest.raises(AssayError, match=r"config\.yaml is damaged or was changed"):
        read_config(tmp_path)


def test_one_without_its_sum(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config.yaml").write_text(TEXT)
    assert read_config(tmp_path).seed == 1
    assert "has no SHA-256 in its last line" in caplog.text
    with pytest.raises(AssayError, match=r"config\.yaml is damaged or was changed"):
        read_config(tmp_path, must_be_whole=True)


def test_a_target_that_is_not_trusted_names_key_and_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(seal_yaml(TEXT.replace("assay.model.mlp.MLP", "elsewhere.Net")))
    with pytest.raises(ConfigError, match=r"model\._target_") as refused:
        read_config(tmp_path)
    assert str(tmp_path / "config.yaml") in str(refused.value)


def test_a_task_of_ones_own_is_imported_only_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab_of_tasks.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "config.yaml").write_text(seal_yaml(f"{TEXT}spec: {{task: lab_of_tasks.Mine}}\n"))
    judged_config(tmp_path, ["lab_of_tasks"])
    assert "lab_of_tasks" not in sys.modules
    with pytest.raises(AssayError, match="imported"):
        read_config(tmp_path, ["lab_of_tasks"])
