"""Commands as they are typed, in a folder of their own."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer
import yaml
from omegaconf import OmegaConf
from typer.testing import CliRunner

from assay.cli.app import app
from assay.compose.listing import groups
from assay.errors import AssayError, ConfigError
from assay.record.provenance import assay_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Trained
    from typer.testing import Result

QUICK = ["debug=one_batch", "device=cpu", "data=iris"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def typed(*words: str, width: int = 80) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": str(width)})


VERBS = [
    ["--help"],
    ["train", "--help"],
    ["configs", "--help"],
    ["explain", "--help"],
    ["diff", "--help"],
    ["info", "--help"],
    [],
]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_fits_the_screen(words: list[str]) -> None:
    result = typed(*words)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 40, "one screen"
    assert not [line for line in lines if line.rstrip().endswith("...") and "Usage" not in line], "cut off"


def test_version() -> None:
    head = typed("--version").stdout
    assert head == f"assay {importlib.metadata.version('assay')} (commit {assay_commit()})\n"


def test_debug_lets_an_error_through() -> None:
    result = typed("train", "--debug", "seed=x")
    assert isinstance(result.exception, AssayError)


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
    assert sweep.stderr.splitlines()[0].startswith("error: seed: expected int, got y")
    assert sweep.stderr.splitlines()[0].endswith("(command line)")
    (tmp_path / "conf/experiment/mine.yaml").write_text("# @package _global_\ndata: wine\n", encoding="utf-8")
    assert "- override /data: wine" in typed("train", "experiment=mine").stderr


def test_a_sweep_has_a_directory_of_its_own() -> None:
    for verb in ("train", "check"):
        assert "hydra.sweep.dir=runs/a b" in typed(verb, "-m", "seed=1,2", "hydra.run.dir=runs/a b").stderr


_REQUIRED = {"explain": ["optimizer.lr"], "diff": ["", ""], "best": ["RUN"], "predict": ["RUN", "x.npy"]}
_REQUIRED |= {
    "convert": [str(Path(__file__).parents[2] / "examples" / "lightning_project")],
    "try": ["optimizer.lr=0.01", "--against", "RUN"],
}
_OF_A_RUN = ("resume", "reproduce", "ls", "compare", "report", "eval", "export", "rm")
_WRONG = {"--out": "{file}", "--png": "{file}", "--csv": "{file}", "--plot": "{file}", "--write": "no name"}


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
    (tmp_path / "file.txt").write_text("content")
    words = [
        str(digits_run.run_dir) if word == "RUN" else word
        for word in _REQUIRED.get(verb, ["RUN"] if verb in _OF_A_RUN else [])
    ]
    wrong = _WRONG.get(option, "wrong").format(file=tmp_path / "file.txt")
    result = typed(verb, *words, option, wrong, width=200)
    assert result.exit_code == 2, result.stderr[-300:]
    assert option in result.stderr or "wrong" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_hydra_full_error_is_debug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    assert isinstance(typed("check", "modl=mlp").exception, ConfigError)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert isinstance(typed("check", "modl=mlp").exception, SystemExit)


def test_help_of_train_names_every_group_and_shows_examples() -> None:
    text = typed("train", "--help").stdout
    for group in groups():
        if "/" not in group:
            assert f" {group} " in text.replace("\n", " "), group
    assert "assay configs" in text
    assert text.count("  assay train") >= 3


def test_cfg_prints_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    result = typed("train", "--cfg", "optimizer=sgd", "optimizer.lr=0.25")
    assert result.exit_code == 0
    config = OmegaConf.create(result.stdout)
    assert OmegaConf.select(config, "optimizer._target_") == "torch.optim.SGD"
    assert OmegaConf.select(config, "optimizer.lr") == 0.25
    assert "hydra" not in config
    assert not list(tmp_path.iterdir())


def test_cfg_of_a_sweep_is_every_job() -> None:
    result = typed("train", "-m", "--cfg", "seed=1,2,3")
    assert [OmegaConf.create(job).seed for job in result.stdout.split("---\n")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("häuser.csv", "häuser.csv"),
        ("my files/数据.csv", "my files/数据.csv"),
        ("[Größe m², age]", ["Größe m²", "age"]),
        ("{a: höhe}", {"a": "höhe"}),
        ('"Größe, m²"', "Größe, m²"),
    ],
)
def test_letters_beyond_ascii_need_no_quotes(value: str, read: object) -> None:
    result = typed("train", "--cfg", "data=table", f"data.source.path={value}")
    assert yaml.safe_load(result.stdout)["data"]["source"]["path"] == read, result.output


def test_a_sweep_over_words_with_letters_beyond_ascii() -> None:
    result = typed("train", "-m", "--cfg", "name=für,über")
    assert [job["name"] for job in yaml.safe_load_all(result.stdout)] == ["für", "über"], result.output


def test_a_sweep_with_a_job_that_cannot_run_is_not_started(tmp_path: Path) -> None:
    result = typed("train", "-m", *QUICK[:2], "data=iris,diabetes", "metrics=multiclass", "hydra.sweep.dir=s")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (tmp_path / "s").exists()
    assert "error: 1 of 2 jobs cannot run; none was started\n" in result.stderr
    assert "job 1 (" in result.stderr
    assert "\n  metrics." in result.stderr
