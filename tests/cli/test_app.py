"""Commands as they are typed, in a folder of their own."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer
import yaml
from omegaconf import OmegaConf
from tests.command import ASSAY
from typer.testing import CliRunner

from assay.cli.app import app
from assay.cli.verb import SCHEMA_VERSION, Document, report_errors, to_plain, verb
from assay.errors import AssayError, ConfigError
from assay.files.atomic import open_atomic, temporary_folder
from assay.process import Stopped
from assay.record.provenance import assay_commit
from assay_explain.listing import groups

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
    assert len(lines) <= 50, "one screen"
    assert not [line for line in lines if line.rstrip().endswith("...") and "Usage" not in line], "cut off"


def test_verbs_are_listed_by_what_they_are_for() -> None:
    text = typed("--help").stdout
    listed = {}
    for section in text.split("\n\n"):
        listed[section.partition(":")[0]] = re.findall(r"^  (\w+) ", section, re.MULTILINE)
    titles = ["Train", "Look", "Compare", "Use", "Project"]
    assert [title for title in listed if title in titles] == titles
    assert "predict" in listed["Use"]
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]  # a group
    assert sorted(name for title in titles for name in listed[title]) == sorted(commands)
    for name, command in commands.items():
        first = command.help.partition("\n")[0]
        assert re.search(rf"^  {name} +{re.escape(first)}$", text, re.MULTILINE), name


def test_version() -> None:
    head = typed("--version").stdout
    assert head == f"assay {importlib.metadata.version('assay')} (commit {assay_commit()})\n"


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
    for word in ("train", "check"):
        assert "hydra.sweep.dir=runs/a b" in typed(word, "-m", "seed=1,2", "hydra.run.dir=runs/a b").stderr


_REQUIRED = {"explain": ["optimizer.lr"], "diff": ["", ""], "best": ["RUN"], "predict": ["RUN", "x.npy"]}
_REQUIRED |= {
    "convert": [str(Path(__file__).parents[1] / "experiment" / "lightning_project")],
    "try": ["optimizer.lr=0.01", "--against", "RUN"],
}
_OF_A_RUN = ("resume", "reproduce", "ls", "compare", "report", "eval", "export", "rm")
_WRONG = {"--out": "{file}", "--png": "{file}", "--csv": "{file}", "--plot": "{file}", "--write": "no name"}


def options_with_a_value() -> Iterator[tuple[str, str]]:
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]  # a group
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.is_flag:
                yield name, parameter.opts[0]


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


def test_debug_and_hydra_full_error_let_an_error_through(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(typed("train", "--debug", "seed=x").exception, AssayError)
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


@dataclass(frozen=True)
class Inner:
    path: Path
    value: float


def printed(*words: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert len(result.stdout.splitlines()) == 1, result.stdout
    return result.exit_code, json.loads(result.stdout)


def only_verb(body: Any) -> int:
    """What a verb prints on the real descriptors."""
    own = typer.Typer()

    own.command()(verb(body))
    with pytest.raises(SystemExit) as ended:
        own(["--json"])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_what_is_printed_elsewhere_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    def body(document: Document) -> None:
        print("printed")
        os.write(1, b"written\n")
        subprocess.run([sys.executable, "-c", "print('of a child')"], check=True)
        document.say("x", {"a": 1})

    assert only_verb(body) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out) == {"kind": "x", "schema_version": SCHEMA_VERSION, "a": 1}
    assert {"printed", "written", "of a child"} <= set(shown.err.splitlines())


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (AssayError("no", hint="do"), {"message": "no", "hint": "do", "code": 1}),
        (
            ConfigError("is odd", key="a.b", file="conf/a.yaml:7", hint="a.b=1"),
            {"key": "a.b", "file": "conf/a.yaml", "line": 7, "code": 2, "hint": "a.b=1"},
        ),
        (ConfigError("is odd", key="a", file="command line"), {"file": "command line", "line": None}),
        (KeyError("k"), {"code": 1}),
        (KeyboardInterrupt(), {"message": "stopped by hand", "code": 130}),
        (typer.Exit(3), {"code": 3}),
        (SystemExit("out"), {"code": 1}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_errors(error: BaseException, told: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    def body(document: Document) -> None:
        document.say("x", {"a": 1})
        raise error

    code = only_verb(body)
    document = json.loads(capfd.readouterr().out)
    assert (document["kind"], document["a"], document["error"]["code"]) == ("x", 1, code)
    assert set(document["error"]) == {"message", "key", "file", "line", "hint", "code"}
    assert document["error"]["message"]
    assert told.items() <= document["error"].items()


@pytest.mark.parametrize("as_json", [True, False])
def test_a_signal_removes_what_is_being_written(tmp_path: Path, *, as_json: bool) -> None:
    def write_half() -> None:
        with (
            report_errors(False, as_json=as_json),
            temporary_folder(tmp_path / "folder"),
            open_atomic(tmp_path / "file") as file,
        ):
            file.write(b"half")
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait(60)

    with pytest.raises(typer.Exit) as ended:
        write_half()
    assert ended.value.exit_code == 143
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "words", [["trian"], ["info", "--what"], ["--what"], ["configs", "a", "b"]], ids=" ".join
)
def test_a_command_line_that_is_refused(words: list[str]) -> None:
    code, document = printed(*words)
    assert (code, document["kind"], document["error"]["code"]) == (2, "error", 2)
    assert words[-1] in document["error"]["message"] or "argument" in document["error"]["message"]
    assert not CliRunner().invoke(app, words).stdout, "without --json nothing is on stdout"
    assert not CliRunner().invoke(app, [*words, "--", "--json"]).stdout, "an argument is not the flag"


def test_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "s3cr3t9of2mine7")
    document = Document()
    document.say("x", {"a": Inner(Path("b"), float("nan")), "n": np.float32(0.5), "l": (np.arange(2), True)})
    found = json.loads(document.to_json())
    assert found["a"] == {"path": "b", "value": "nan"}
    assert (found["n"], found["l"]) == (0.5, [[0, 1], True])
    document.say("x", {"text": "a s3cr3t9of2mine7 b", "api_key": "abc", "o": "logger.api_key=abc"})
    found = json.loads(document.to_json())
    assert (found["text"], found["api_key"], found["o"]) == ("a *** b", "***", "logger.api_key=***")
    with pytest.raises(TypeError, match="object"):
        to_plain(object())


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (">&-", 1, "error: standard output is closed, but --json prints to it\n"),
        (">/dev/full", 1, "error: standard output cannot be written: No space left on device\n"),
        ("| :", 1, ""),
    ],
    ids=["closed", "full", "nobody reads"],
)
def test_stdout_that_takes_nothing(end: str, code: int, said: str) -> None:
    bash = shutil.which("bash")
    assert bash
    command = f"'{ASSAY[0]}' -c '{ASSAY[2]}' configs device --json {end}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run([bash, "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_a_reader_that_goes_away() -> None:
    code = f"'{sys.executable}' -c 'from assay.cli.app import main; main()' configs | head -1"
    bash = shutil.which("bash")
    assert bash
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.splitlines() == ["augment"]
    assert not done.stderr


@pytest.mark.parametrize("chained", [True, False])
def test_an_interrupt_behind_an_error_is_one(chained: bool) -> None:
    def fail() -> None:
        try:
            raise Stopped("SIGTERM")
        except KeyboardInterrupt as stop:
            raise AssayError("cannot be read") from (ValueError(str(stop)) if chained else None)

    with pytest.raises(typer.Exit) as caught, report_errors(debug=False):
        fail()
    assert caught.value.exit_code == 143


@pytest.mark.long
def test_ctrl_c_leaves_a_record_and_a_clean_terminal(tmp_path: Path) -> None:
    main_end, terminal = pty.openpty()
    command = [*ASSAY, "train", "device=cpu", "data=iris"]
    process = subprocess.Popen(
        [*command, "trainer.max_epochs=1000000", "hydra.run.dir=run"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(terminal)
    shown, sent, end = b"", False, time.monotonic() + 120
    try:
        while time.monotonic() < end:
            if select.select([main_end], [], [], 0.1)[0]:
                try:
                    shown += os.read(main_end, 65536)
                except OSError:  # the other end is closed
                    break
            if not sent and b"/1000000" in shown:
                process.send_signal(signal.SIGINT)
                sent = True
        code = process.wait(timeout=30)
    finally:
        process.kill()
        os.close(main_end)
    text = shown.decode()
    record = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))
    assert (code, record["status"], record["reason"]) == (130, "interrupted", "stopped by hand"), text
    assert "Traceback" not in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") > 0, "the cursor is back"
    last = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", line) for line in text.splitlines()[-4:]]
    assert [line.split()[0] for line in last] == ["interrupted:", "run", "log", "next"]


@pytest.mark.parametrize(
    "word",
    ["+x.api_key=[hunter2secret", "+logger.csv.password=hunter2secret", "seed.token=hunter2secret"],
)
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_refused_secret_is_not_printed(word: str, more: list[str]) -> None:
    result = typed("check", "data=iris", "model=linear", word, *more)
    assert result.exit_code == 2
    assert "error" in result.output
    assert "hunter2secret" not in result.output
