"""A small file never takes much time or memory, whoever wrote it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
import yaml
from omegaconf import OmegaConf

from assay.cli.app import main
from assay.config.yaml_file import check_yaml, load_yaml
from assay.errors import AssayError
from assay.paths import CONF_DIR
from assay.run.saved_config import read_config

if TYPE_CHECKING:
    from pathlib import Path


def bomb(first: str, again: str, levels: int) -> str:
    """Each line stands for the one before, several times."""
    lines = [
        f"a0: &a0 {first}",
        *(f"a{n}: &a{n} {again.replace('@', f'*a{n - 1}')}" for n in range(1, levels)),
    ]
    return "\n".join(lines) + "\n"


HOSTILE = {
    "aliases": bomb("[x, x, x, x, x, x, x]", "[@, @, @, @, @, @, @, @]", 12),
    "aliases of mappings": bomb("{k: 1, l: 2}", "{p: @, q: @}", 40),
    "merges": bomb("{k: [1, 2]}", "{<<: {r: @}, p: @}", 40),
    "itself": "a: &a [*a]\n",
    "itself, deeper": "a: &a {b: [{c: *a}]}\n",
    "deep flow": "a: " + "[" * 50_000 + "]" * 50_000,
    "deep block": "- " * 50_000 + "x",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_it_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(content)
    with pytest.raises(yaml.MarkedYAMLError, match=r"holds itself|unfolds into|nested"):
        check_yaml(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(OSError, match="not a regular file"):
        load_yaml(tmp_path / "x.yaml")


def test_ordinary_files_are_read_as_omegaconf_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("a: &a [1, 2]\nb: {<<: {x: 1}, y: *a}\nc: 1e-3\n")
    assert load_yaml(path) == OmegaConf.load(path)
    shipped = sorted(CONF_DIR.rglob("*.yaml"))
    assert shipped
    for one in shipped:
        check_yaml(one)


COMMANDS = {
    "check": ["check", "model=x"],
    "train": ["train", "model=x"],
    "sweep": ["train", "-m", "model=x", "seed=1,2"],
    "explain": ["explain", "model", "model=x"],
    "diff": ["diff", "", "conf/model/x.yaml"],
    "project": ["check"],
}


@pytest.mark.timeout(120)  # one that waits for a pipe would wait for good
@pytest.mark.parametrize("content", ["aliases", "deep flow", "pipe"])
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_it_in_one_message(
    command: str,
    content: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / ("conf/project.yaml" if command == "project" else "conf/model/x.yaml")
    path.parent.mkdir(parents=True)
    if content == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(HOSTILE[content])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["assay", *COMMANDS[command]])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (1, 2)
    printed = capsys.readouterr()
    assert "error:" in printed.err
    assert "Traceback" not in printed.err
    assert len(printed.err) < 1500


@pytest.mark.parametrize("content", ["aliases", "deep block", "pipe"])
def test_a_run_directory_of_somebody_elses(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    if content == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(HOSTILE[content])
    with pytest.raises(AssayError, match=r"config\.yaml"):
        read_config(tmp_path, ())
