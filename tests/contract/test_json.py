"""Every verb prints one document, every kind of document is described, and what is described is printed."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.command import documented
from tests.contract.json_page import KINDS, MARK, PAGE, problems_of, reference
from typer.testing import CliRunner

from assay.cli.app import app
from assay.errors import AssayError, ConfigError
from assay.process import STOP_SIGNALS
from assay.record.run_record import Status, exit_code

SRC = Path(__file__).parents[2] / "src"


def said() -> set[str]:
    """The kinds that the verbs say, in their source."""
    calls = [
        node
        for path in (
            *SRC.glob("assay/cli/*.py"),
            *SRC.glob("*/verbs.py"),
            SRC / "assay_sweep" / "multirun.py",
        )
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "say"
    ]
    first = [call.args[0] for call in calls if call.args]
    named = {one.value for one in first if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return named | {"ls", "compare"}  # one function says either


def test_every_kind_that_is_said_is_described() -> None:
    assert said() == set(KINDS)


def test_the_page_is_as_the_classes_are() -> None:
    written = PAGE.read_text(encoding="utf-8").partition(MARK)[2]
    assert written == reference(), "python -m tests.contract.json_page"


def printed(*words: str, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == code, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    assert not problems_of(document)
    assert ("error" in document) == bool(code)
    return document


def test_the_error_on_the_page_is_one_that_is_printed() -> None:
    text = PAGE.read_text(encoding="utf-8")
    example = json.loads(text[text.index('{"kind": "error"') : text.index("\n\nWhere there is something")])
    code, document = documented("check", "data=wine", "optimizer.lr=fast")
    document["error"]["hint"] = document["error"]["hint"].partition("\n")[0]
    assert (code, document) == (2, example)


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("train", ["trainer.max_epochs=1", "hydra.run.dir=run"]),
        ("train -m", ["trainer.max_epochs=1", "hydra/launcher=serial", "hydra.sweep.dir=sweep", "seed=1,2"]),
        ("data", []),
    ],
)
def test_a_document_has_what_is_told_on_the_terminal(
    verb: str, more: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{at},{at % 7 or ''},{'ab'[at % 2]}\n" for at in range(60))
    Path("rows.csv").write_text(f"x,y,kind\n{rows}", encoding="utf-8")
    table = [
        *("data=table", "data.source.path=rows.csv", "data.source.target=kind", "model=linear", "device=cpu"),
        "baseline=none",
    ]
    done = CliRunner().invoke(app, [*verb.split(), *table, *more, "--json"])
    document = json.loads(done.stdout)
    assert not problems_of(document)
    # What is told goes to standard error then; `data` says it in the document alone.
    told = done.stderr if verb != "data" else CliRunner().invoke(app, [verb, *table]).stdout
    lines = [line.removeprefix("next").strip() for line in told.splitlines()]
    assert document["next"] == [line for line in lines if line.startswith("assay ")] != []
    if verb == "train":
        assert document["notes"] == [line[4:].strip() for line in lines if line.startswith("note ")] != []
        assert f"model  linear: {document['parameters']:,} parameters" in lines
        assert json.loads(Path("run/record.json").read_text(encoding="utf-8"))["notes"] == document["notes"]


def table_of_exit_codes() -> dict[int, str]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return {int(code): told for code, told in re.findall(r"^\| (\d+) \| (.+) \|$", section, re.MULTILINE)}


def test_exit_codes_are_those_of_the_table() -> None:
    told = table_of_exit_codes()
    statuses = {status: exit_code(status) for status in get_args(Status) if status != "interrupted"}
    assert {name for name, code in statuses.items() if not code} == {"finished", "pruned"}
    by_signal = {number.name: exit_code("interrupted", number.name) for number in STOP_SIGNALS}
    for name, code in by_signal.items():
        assert name in told[code]
    every: list[type[AssayError]] = [AssayError, *every_subclass(AssayError)]
    errors = {one.exit_code for one in every}
    assert (ConfigError.exit_code, AssayError.exit_code) == (2, 1)
    assert set(told) == {*statuses.values(), *by_signal.values(), *errors}
    assert CliRunner().invoke(app, ["trian"]).exit_code == 2


def every_subclass(one: type[AssayError]) -> list[type[AssayError]]:
    return [inner for child in one.__subclasses__() for inner in (child, *every_subclass(child))]


def test_a_run_that_is_told_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = threading.Event()

    def stop() -> None:
        while not Path("run/metrics.csv").is_file() and not ended.wait(0.05):
            pass
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=stop)
    watching.start()
    try:
        words = ["data=iris", "model=linear", "device=cpu", "trainer.max_epochs=1000000", "hydra.run.dir=run"]
        document = printed("train", *words, code=143)
    finally:
        ended.set()
        watching.join()
    assert (document["status"], document["signal"]) == ("interrupted", "SIGTERM")
    assert (document["error"]["message"], document["error"]["hint"]) == (
        "stopped by SIGTERM",
        "assay resume run",
    )
