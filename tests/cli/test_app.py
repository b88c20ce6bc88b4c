from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from typing import TYPE_CHECKING

import pytest
import typer
from tests.cli.typed import in_an_empty_folder, typed

from assay.cli.app import app, main
from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Trained

__all__ = ["in_an_empty_folder"]

VERBS = [
    ["--help"],
    ["train", "--help"],
    ["configs", "--help"],
    ["explain", "--help"],
    ["diff", "--help"],
    ["info", "--help"],
    [],
]


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_fits_the_screen(words: list[str], width: int) -> None:
    result = typed(*words, width=width)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= min(width, 80)
    assert len(lines) <= 36, "one screen"
    assert not [line for line in lines if line.rstrip().endswith("...") and "Usage" not in line], "cut off"


def test_version() -> None:
    assert typed("--version").stdout == f"assay {importlib.metadata.version('assay')}\n"


@pytest.mark.parametrize("words", [["trian"], ["train", "--foo"], ["configs", "a", "b"]], ids=" ".join)
def test_unknown_verbs_and_flags(words: list[str]) -> None:
    result = typed(*words)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
    assert not result.stdout


def test_debug_lets_an_error_through() -> None:
    result = typed("train", "--debug", "seed=x")
    assert isinstance(result.exception, AssayError)


def test_an_error_of_another_kind_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr("assay.check.checker.compose_job", fail)
    result = typed("train")
    assert result.exit_code == 1
    first, second = result.stderr.splitlines()
    assert first.startswith("error: RuntimeError: first line (")
    assert re.search(r"test_app\.py:\d+, in fail\)$", first)
    assert second == "  → the same command with --debug shows where this came from"


def test_ctrl_c_before_a_run_began(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("assay.check.checker.compose_job", stop)
    assert typed("train").exit_code == 130


def test_an_error_names_the_file_and_line_of_its_key(tmp_path: Path) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    text = "# @package _global_\n# Mine.\nseed: x\noptimizer:\n  lr: 7\n"
    (tmp_path / "conf" / "experiment" / "mine.yaml").write_text(text, encoding="utf-8")
    result = typed("train", "experiment=mine")
    assert result.stderr.splitlines()[0].endswith("(conf/experiment/mine.yaml:3)")
    sweep = typed("train", "-m", "experiment=mine", "seed=1,y")
    assert sweep.stderr.splitlines()[0].startswith("error: seed: y was given")
    assert sweep.stderr.splitlines()[0].endswith("(command line)")


@pytest.mark.parametrize("flag", ["-sc", "--shell-completion"])
def test_shell_completion_passes_by_the_verbs(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COMP_LINE", "assay tr")
    monkeypatch.setattr(sys, "argv", ["assay", flag, "query=bash"])
    main()
    assert capsys.readouterr().out.split() == ["train"]


_REQUIRED = {"explain": ["optimizer.lr"], "diff": ["", ""], "best": ["RUN"], "predict": ["RUN", "x.npy"]}
_OF_A_RUN = ("resume", "reproduce", "ls", "compare", "report", "eval", "export", "rm")
_WRONG = {"--out": "{file}", "--png": "{file}", "--csv": "{file}", "--plot": "{file}"}


def options_with_a_value() -> Iterator[tuple[str, str]]:
    for verb, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.is_flag:
                yield verb, parameter.opts[0]


@pytest.mark.parametrize(("verb", "option"), list(options_with_a_value()))
def test_a_mistyped_option_is_exit_code_2(
    verb: str, option: str, digits_run: Trained, tmp_path: Path
) -> None:
    """Every option of every verb: nothing has run then, and the message names the option."""
    (tmp_path / "file.txt").write_text("somebody's")
    words = [
        str(digits_run.run_dir) if word == "RUN" else word
        for word in _REQUIRED.get(verb, ["RUN"] if verb in _OF_A_RUN else [])
    ]
    wrong = _WRONG.get(option, "wrong").format(file=tmp_path / "file.txt")
    result = typed(verb, *words, option, wrong, width=200)
    assert result.exit_code == 2, result.stderr[-300:]
    assert option in result.stderr or "wrong" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_a_metric_that_no_run_has_is_exit_code_2(digits_run: Trained) -> None:
    result = typed("best", str(digits_run.run_dir), "val/acuracy")
    assert (result.exit_code, "val/acuracy" in result.stderr, "--sort" in result.stderr) == (2, True, False)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train", "--config-name", "mine"], "conf/experiment/NAME.yaml"),
        (["train", "-cn=mine"], "conf/experiment/NAME.yaml"),
        (["check", "--config-path", "configs"], "--config-dir DIR"),
        (["train", "-cp", "configs"], "--config-dir DIR"),
        (["train", "--info"], "assay explain KEY"),
        (["train", "--cfg", "--package", "optimizer"], "assay explain NODE"),
        (["train", "--cfg", "--resolve"], "config.yaml"),
        (["train", "--cfg", "hydra"], "assay explain hydra"),
        (["train", "data=iris", "--cfg", "all"], "assay explain hydra"),
        (["train", "--hydra-help"], "assay train --help"),
        (["train", "--experimental-rerun", "x"], "assay reproduce RUN"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, list) else "",
)
def test_an_option_of_hydras_says_what_does_the_same(words: list[str], says: str) -> None:
    result = typed(*words, width=200)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr
    assert "is an option of Hydra's" in result.stderr
    document = typed(*words, "--json")
    assert says in json.loads(document.stdout)["error"]["message"]


def test_cfg_job_prints_the_job_as_cfg_does() -> None:
    plain, hydras = (typed("train", "data=iris", *cfg) for cfg in (["--cfg"], ["--cfg", "job"]))
    assert (plain.exit_code, hydras.exit_code) == (0, 0)
    lines = [[one for one in each.stdout.splitlines() if "run_dir:" not in one] for each in (plain, hydras)]
    assert lines[0] == lines[1]
    assert len(lines[0]) > 50


def test_hydra_full_error_is_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert isinstance(typed("check", "modl=mlp").exception, ConfigError)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert isinstance(typed("check", "modl=mlp").exception, SystemExit)
