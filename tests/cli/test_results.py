"""`assay ls`, `compare`, `best`, `rm`, `predict`, `export` and `report`, as they are typed."""

from __future__ import annotations

import importlib.util
import json
import os
import pty
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # ships no types
from tests.command import ASSAY, typed
from tests.making_runs import make_run

from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from tests.conftest import Trained


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two learning rates, two seeds each, in ./outputs."""
    monkeypatch.chdir(tmp_path)
    for lr in ("0.1", "0.01"):
        for seed in (0, 1):
            score = 0.9 - float(lr) - seed / 100
            metrics = {"val/accuracy": score, "test/accuracy": score}
            best = {"monitor": "val/accuracy", "value": score, "epoch": 1}
            words = (f"optimizer.lr={lr}", f"seed={seed}")
            make_run(tmp_path / f"outputs/x/{lr}-{seed}", *words, metrics=metrics, best=best)
    return Path("outputs")


def test_json_is_one_document_however_it_is_asked_for(outputs: Path) -> None:
    one = typed("compare", "--json").stdout
    other = typed("compare", "--format", "json").stdout
    assert one == other
    document = json.loads(one)
    assert (document["kind"], document["schema_version"], len(document["rows"])) == ("compare", 1, 2)
    assert json.loads(typed("ls", "--json").stdout)["kind"] == "ls"
    wrong = typed("compare", "--json", "--metric", "acc", code=2).stdout
    assert "no run has a metric 'acc'" in json.loads(wrong)["error"]["message"]


def test_of_many_runs_the_newest_come_first_page_by_page(outputs: Path) -> None:
    for number, path in enumerate(sorted(outputs.glob("x/*"))):
        record = RunRecord.load(path)
        record.started = f"2026-11-2{number}T12:00:00+00:00"
        record.save(path)
    (outputs / "x/0.1-1/record.json").write_text("{}")
    newest_first = ["0.1-0", "0.01-1", "0.01-0", "0.1-1"]  # what cannot be read comes last

    def listed(*words: str) -> list[str]:
        document = json.loads(typed("ls", "--json", *words).stdout)
        assert document["total"] == 4
        runs = [row["runs"][0] for row in document["rows"]] + document["broken"]
        return [Path(run["run"]).name for run in runs]

    assert listed() == newest_first
    assert [listed("--limit", "3", "--offset", offset) for offset in ("0", "3", "6")] == [
        newest_first[:3],
        newest_first[3:],
        [],
    ]
    assert listed("--sort", "val/accuracy", "--limit", "1") == ["0.01-0"]
    table = typed("ls", "--limit", "1", "--offset", "1").stdout
    assert table.splitlines()[0].startswith("1 run")
    assert "0.01-1" in table
    assert "0.1-0" not in table
    assert "2 to 2 of 4 are shown; --offset 2 shows the next, --limit 0 all" in table
    assert "--offset 9 skips all 4" in typed("ls", "--offset", "9").stdout
    assert "are shown" not in typed("ls").stdout
    rows = json.loads(typed("compare", "--json", "--limit", "1").stdout)["rows"]
    assert [row["best"] for row in rows] == [True]
    assert "--limit" in typed("ls", "--limit", "-1", code=2).stderr


def test_a_table_has_fifty_rows_and_a_file_has_all(outputs: Path) -> None:
    for number in range(52):
        make_run(outputs / f"many/{number}", f"seed={number}", csv=None)
    table = typed("ls", "outputs/many").stdout
    assert table.count("outputs/many/") == 50
    assert "1 to 50 of 52 are shown; --offset 50 shows the next, --limit 0 all" in table
    assert typed("ls", "outputs/many", "--limit", "0").stdout.count("outputs/many/") == 52
    assert typed("ls", "outputs/many", "--format", "csv").stdout.count("outputs/many/") == 52


def test_best_is_a_directory_for_scripts(outputs: Path) -> None:
    best = typed("best", "outputs")
    assert (best.stdout, best.stderr) == ("outputs/x/0.01-0\n", "")
    assert typed("best", "outputs", "test/accuracy:min").stdout == "outputs/x/0.1-1\n"
    assert json.loads(typed("best", "outputs", "--json").stdout)["run"] == "outputs/x/0.01-0"
    assert "did you mean 'val/accuracy'" in typed("best", "outputs", "val/acc", code=2).stderr
    assert "no run has a metric 'optimizer.lr'" in typed("best", "outputs", "optimizer.lr", code=2).stderr


def test_losses_of_different_kinds_have_no_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for loss, score in (("mse", 3000.0), ("cross_entropy", 0.5)):
        best = {"monitor": "val/loss", "value": score, "epoch": 1}
        make_run(tmp_path / f"runs/{loss}", f"loss={loss}", metrics={"val/loss": score}, best=best)
    told = typed("best", "runs", code=1)
    assert told.stdout == ""
    assert "val/loss is not the same quantity in all rows: loss=cross_entropy, mse" in told.stderr
    assert typed("best", "runs", "--where", "loss=mse").stdout == "runs/mse\n"


@pytest.mark.parametrize("key", ["data", "data.source.path"])
def test_scores_of_different_data_have_no_best_unless_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for data, score in (("digits", 0.8), ("wine", 0.9)):
        best = {"monitor": "val/accuracy", "value": score, "epoch": 1}
        make_run(tmp_path / f"runs/{data}", f"{key}={data}", metrics={"val/accuracy": score}, best=best)
    told = typed("best", "runs", code=1)
    assert (told.stdout, "rows come from different data" in told.stderr) == ("", True)
    assert "select some of them: --where KEY=VALUE; or compare them anyway: assay best runs" in told.stderr
    assert "best" not in typed("compare", "runs").stdout
    assert typed("best", "runs", "--where", f"{key}=digits").stdout == "runs/digits\n"
    told = typed("best", "runs", "val/accuracy")
    assert (told.stdout, "different data" in told.stderr) == ("runs/wine\n", True)


def test_rm_asks_and_refuses_where_nobody_can_be_asked(outputs: Path) -> None:
    run = outputs / "x/0.1-0"
    told = typed("rm", str(run), code=1).stderr
    assert "assay rm --yes" in told
    assert run.is_dir()
    typed("rm", "--yes", str(run))
    assert not run.exists()
    told = typed("rm", "--yes", "outputs/x/0.1-1", "outputs", code=1).stderr
    assert "is not a run directory" in told
    assert (outputs / "x/0.1-1").is_dir(), "all or none"
    told = typed("rm", "--yes", "outputs/x/0.1-1", "outputs/x/../x/0.1-1").stderr
    assert told.count("0.1-1") == 1, "once, however often it is named"
    assert not (outputs / "x/0.1-1").exists()


def in_terminal(*words: str, answer: str, until: str) -> tuple[str, int]:
    """What a command shows on a terminal of 60 columns, and its exit code."""
    first, second = pty.openpty()
    environment = {**os.environ, "COLUMNS": "60", "LINES": "40", "TERM": "xterm"}
    command = subprocess.Popen(
        [*ASSAY, *words], stdin=second, stdout=second, stderr=second, env=environment, start_new_session=True
    )
    os.close(second)
    shown, deadline, done = "", time.monotonic() + 120, False
    while time.monotonic() < deadline:
        if select.select([first], [], [], 0.2)[0]:
            try:
                shown += os.read(first, 65536).decode(errors="replace")
            except OSError:
                break
        if not done and until in shown:
            done = True
            os.write(first, answer.encode())
    os.close(first)
    return shown, command.wait(timeout=60)


def test_rm_takes_no_for_an_answer_and_yes(outputs: Path) -> None:
    shown, code = in_terminal("rm", "outputs/x/0.1-0", "outputs/x/0.1-1", answer="n\n", until="[y/N]")
    assert "Remove 2 runs for good?" in shown
    assert code == 1
    assert (outputs / "x/0.1-0").is_dir()
    assert in_terminal("rm", "outputs/x/0.1-0", answer="y\n", until="[y/N]")[1] == 0
    assert not (outputs / "x/0.1-0").exists()


HALF = "\ud800"
"""Half a letter, as JSON can say it and no encoding can write it."""


def test_half_a_letter_in_a_record_hurts_no_other_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {
        **dict.fromkeys(("name", "reason", "fingerprint", "config_fingerprint", "data_sha256"), HALF),
        "tags": [HALF],
        "warnings": [HALF],
        "machine": {"hostname": HALF},
        "git": {"commit": HALF},
        "overrides": [f"optimizer.lr={HALF}", f"model.{HALF}={HALF}"],
        "choices": {"model": HALF, HALF: HALF, "data": HALF, "loss": HALF},
        "metrics": {f"val/{HALF}": 0.5, "val/accuracy": 0.7},
        "directions": {HALF: "min"},
    }
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs/good", "optimizer.lr=0.5", metrics={"val/accuracy": 0.5})
    make_run(tmp_path / "runs/torn", **fields)
    for form in ("table", "csv", "markdown", "latex", "json"):
        for verb in ("ls", "compare"):
            assert "0.5" in typed(verb, "runs", "--format", form).stdout
    typed("report", "runs", "--csv", "figures", "--png", "figures")
    assert "good" in Path("runs/report.html").read_text(encoding="utf-8")


def test_without_the_extra(digits_run: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxscript" else find(name, *rest)
    )
    said = typed("export", digits_run.run_dir, code=2)
    assert "needs the package onnxscript, which is not installed" in said.stderr
    assert "pip install 'assay[export]'" in said.stderr


def test_a_file_has_all_rows(digits_run: Trained, tmp_path: Path) -> None:
    digits, out, gone = tmp_path / "digits.npy", tmp_path / "found.csv", tmp_path / "gone\x1b[31m.npy"
    np.save(digits, load_digits().images[:60, None].astype(np.float32))
    words = ("predict", digits_run.run_dir, digits, gone, "--out", out, "--checkpoint", "last")
    lines = typed(*words).stdout.splitlines()
    assert lines[0] == f"out    {out}: 61 rows"
    assert lines[-1].startswith("failed 1 of 61 samples, see column error; ")
    assert lines[-1].endswith("gone\\x1b[31m.npy: there is no such file")
    frame = pd.read_csv(out)
    assert frame["error"].notna().tolist() == [False] * 60 + [True]
    right = (frame["prediction"][:60] == load_digits().target[:60]).mean()
    assert right > 0.8


def test_the_page_is_told_and_opened(
    digits_run: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = tmp_path / "page.html"
    said = typed("report", digits_run.run_dir, "--out", page, "--open").stdout
    assert said.startswith(f"page  {page}  (")
    assert f"next  assay predict {digits_run.run_dir} INPUT" in said
    assert f"assay compare {digits_run.run_dir.parent}" in said
    assert opened == [page.as_uri()]
