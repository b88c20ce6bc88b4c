"""Under `--json` standard output holds one document, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tests.command import ASSAY
from typer.testing import CliRunner

from assay.cli.app import app
from assay.cli.documents import SCHEMA_VERSION, Document, to_plain
from assay.cli.verb import report_errors, verb
from assay.errors import AssayError, ConfigError
from assay.files.atomic import open_atomic, temporary_folder


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
