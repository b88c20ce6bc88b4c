"""Each command that a command names as the next one, typed as a shell takes it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command import documented, typed

from assay.quoting import command, repeat_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@given(st.lists(st.text(min_size=1), max_size=4), st.none() | st.text(min_size=1))
def test_a_shell_takes_the_words_as_they_were(words: list[str], folder: str | None) -> None:
    options = ["--config-dir", folder] if folder else []
    assert shlex.split(command("train", *words, config_dir=folder)) == ["assay", "train", *options, *words]


def test_other_seeds_replace_the_one_that_was_typed() -> None:
    overrides = ["model=mlp", "+seed=3", "hydra.run.dir=a b", "notes='a b'"]
    words = ["assay", "train", "-m", "model=mlp", "notes='a b'", "seed=1,2,3"]
    assert shlex.split(repeat_command(overrides, "seed=1,2,3")) == words


TABLE = "it's my table.csv"
CONF = "my conf"


@dataclass
class Place:
    folder: Path
    overrides: list[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A table and a folder of config groups whose names need quotes."""
    folder = tmp_path_factory.mktemp("next")
    (folder / CONF / "optimizer").mkdir(parents=True)
    (folder / CONF / "optimizer" / "mine.yaml").write_text(
        "# My own.\n_target_: torch.optim.SGD\n_partial_: true\nlr: 0.05\n"
    )
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(60, 2)), columns=["a", "b c"])
    table.assign(ill=np.where(table["a"] > 0, "yes", "no")).to_csv(folder / TABLE, index=False)
    source = [f'data.source.path="{TABLE}"', "data.source.target=ill", "data.source.exclude=[b c]"]
    small = ["model=linear", "optimizer=mine", "trainer.max_epochs=1", "device=cpu", "tags=[a b]"]
    return Place(folder, ["data=table", *source, *small])


def named_by(place: Place, *words: str, code: int = 0) -> list[str]:
    ended, document = documented(*words, folder=place.folder)
    assert ended == code, document
    commands: list[str] = document["next"]
    assert commands
    return commands


def to_type(commands: list[str]) -> Iterator[list[str]]:
    """The words after `assay` of each; training is composed and checked alone."""
    for text in commands:
        words = [word for word in shlex.split(text) if not word.startswith("OMP_NUM_THREADS=")]
        assert words.pop(0) == "assay"
        if words[0] == "train":
            words[0] = "check"
        yield [TABLE if word in ("NEW_ROWS.csv", "INPUT") else word for word in words]


def test_what_is_named_can_be_typed(place: Place) -> None:
    typed_with = ["--config-dir", CONF, *place.overrides]
    run = ["hydra.run.dir='out/a run'"]
    sweep = ["hydra.sweep.dir='out/a sweep'", "hydra/launcher=serial", "optimizer.lr=0.01,0.1"]
    named = [
        *named_by(place, "train", *typed_with, *run),
        *named_by(place, "train", "-m", *typed_with, *sweep),
        *named_by(place, "data", *typed_with),
        *named_by(place, "predict", "out/a run", TABLE),
    ]
    advice = documented("resume", "out/a run", folder=place.folder)[1]["baseline"]["advice"]
    named += [advice.partition("rate: ")[2]] if "rate: assay" in advice else []
    verbs = {text.split()[1] for text in named}
    assert verbs >= {"train", "report", "predict", "export"}
    assert sum("--config-dir 'my conf'" in text or f"{CONF}'" in text for text in named) >= 3
    for words in dict.fromkeys(map(tuple, to_type(named))):
        typed(*words, folder=place.folder)
