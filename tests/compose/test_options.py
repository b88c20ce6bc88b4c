from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.compose.listing import describe, groups, list_options

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# What it is.\nlr: 1\n", "What it is."),
        ("# @package trainer\n# What it is.\n# More.\n", "What it is."),
        ("#\n# What it is.\n", "What it is."),
        ("lr: 1\n# Too late.\n", ""),
        ("", ""),
    ],
)
def test_describe(tmp_path: Path, text: str, said: str) -> None:
    assert describe(write(tmp_path, "x.yaml", text)) == said


def test_lists_options_of_several_folders_without_parts(tmp_path: Path) -> None:
    write(tmp_path, "ours/model/mlp.yaml", "# MLP.")
    write(tmp_path, "ours/model/_shared.yaml", "# Part.")
    write(tmp_path, "ours/model_zoo/big.yaml", "# Big.")
    write(tmp_path, "ours/train.yaml", "# Primary.")
    write(tmp_path, "mine/model/block/wide.yaml", "# Wide.")
    folders = (tmp_path / "ours", tmp_path / "mine")
    found = [(option.group, option.name, option.description) for option in list_options("", *folders)]
    assert found == [("model", "mlp", "MLP."), ("model/block", "wide", "Wide."), ("model_zoo", "big", "Big.")]
    assert [option.name for option in list_options("model", *folders)] == ["mlp", "wide"]
    assert groups(*folders) == ["model", "model/block", "model_zoo"]


@pytest.mark.parametrize("group", ["..", "/", "../src", "mod", "train.yaml", "*"])
def test_nothing_outside_the_groups(group: str) -> None:
    assert list_options(group) == []


def test_own_options_by_default() -> None:
    assert "sgd" in [option.name for option in list_options("optimizer")]
