from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import ConfigError
from assay_explain import listing
from assay_explain.listing import complete, groups, list_options

if TYPE_CHECKING:
    from pathlib import Path


def test_unknown_group() -> None:
    with pytest.raises(ConfigError, match=r"optim: unknown group; did you mean 'optimizer'\?"):
        listing.print_options(listing.options_of("optim", None))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_lists_options_of_several_folders_without_parts(tmp_path: Path) -> None:
    write(tmp_path, "ours/model/mlp.yaml", "#\n# MLP.\n# More.\n")
    write(tmp_path, "ours/model/_shared.yaml", "# Part.")
    write(tmp_path, "ours/model_zoo/big.yaml", "# @package trainer\n# Big.")
    write(tmp_path, "ours/train.yaml", "# Primary.")
    write(tmp_path, "mine/model/block/wide.yaml", "lr: 1\n# Too late.")
    folders = (tmp_path / "ours", tmp_path / "mine")
    found = [(option.group, option.name, option.description) for option in list_options("", *folders)]
    assert found == [("model", "mlp", "MLP."), ("model/block", "wide", ""), ("model_zoo", "big", "Big.")]
    assert [option.name for option in list_options("model", *folders)] == ["mlp", "wide"]
    assert groups(*folders) == ["model", "model/block", "model_zoo"]


@pytest.mark.parametrize("group", ["..", "/", "../src", "*"])
def test_nothing_outside_the_groups(group: str) -> None:
    assert list_options(group) == []


VERBS = {
    "train": ["--multirun", "-m", "--config-dir", "-cd"],
    "configs": ["--config-dir"],
    "info": ["--debug"],
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("assay tr", ["train"]),
        ("assay ", ["configs", "info", "train"]),
        ("assay train optim", ["optimizer.", "optimizer="]),
        ("assay train optimizer=ad", ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]),
        ("assay train optimizer=sgd optimizer.mom", ["optimizer.momentum="]),
        (
            "assay train -m optimizer=sgd,ad",
            ["optimizer=sgd,adagrad", "optimizer=sgd,adam", "optimizer=sgd,adamw"],
        ),
        ("assay train callbacks=[default,em", ["callbacks=[default,ema"]),
        ("assay train dat", ["data.", "data/", "data="]),
        ("assay train data/transform=re", ["data/transform=resize", "data/transform=resized_crop"]),
        ("assay try optimizer=ad", ["optimizer=adagrad", "optimizer=adam", "optimizer=adamw"]),
        ("assay train --mul", ["--multirun"]),
        ("assay train --config-dir nowhere model=line", ["model=linear"]),
        ("assay configs schedu", ["scheduler"]),
        ("assay info opt", []),
        ("assay train nonsense=1 optimizer.l", []),
    ],
)
def test_last_word(line: str, words: list[str]) -> None:
    assert complete(line, VERBS) == words


def test_own_options_are_listed_and_offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "model/mlperf.yaml", "# Mine.\n_target_: torch.nn.Identity\n")
    assert complete(f"assay train --config-dir {tmp_path} model=ml", VERBS) == ["model=mlp", "model=mlperf"]
    listing.print_options(listing.options_of("model", tmp_path))
    assert "mlperf" in capsys.readouterr().out
