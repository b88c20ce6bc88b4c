"""YAML is read as OmegaConf reads it, and a pipe is not waited for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf

from assay.config.yaml_file import load_yaml
from assay.errors import AssayError
from assay.run.saved_config import read_config

if TYPE_CHECKING:
    from pathlib import Path


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(OSError, match="not a regular file"):
        load_yaml(tmp_path / "x.yaml")


def test_ordinary_files_are_read_as_omegaconf_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &a [1, 2]\nb: {<<: {x: 1}, y: *a}\nc: 1e-3\n")
    assert load_yaml(path) == OmegaConf.load(path)


def test_a_run_directory_whose_config_is_a_pipe_or_nested_without_end(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: " + "[" * 5_000 + "]" * 5_000)
    with pytest.raises(AssayError, match=r"config\.yaml"):
        read_config(tmp_path, ())
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(AssayError, match=r"config\.yaml"):
        read_config(tmp_path, ())
