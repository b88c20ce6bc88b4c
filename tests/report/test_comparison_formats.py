"""Runs whose names, values, metrics and reasons are written to harm whoever prints them."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest
from tests.making_runs import make_run

from assay.cli.verb import Document
from assay.terminal import Console
from assay_analysis.comparison import Comparison, compare
from assay_analysis.read_runs import read_runs
from assay_report.comparison_formats import (
    print_comparison,
    to_csv,
    to_document,
    to_latex,
)

if TYPE_CHECKING:
    from pathlib import Path


TEXTS: Final = (
    "\x1b]0;owned\x07",
    "<script>alert(1)</script>",
    r"\input{/etc/passwd}",
    "a|b",
    "=cmd()",
    "x & y % z # $ _ { } ~ ^",
    "[red]x[/red]",
    "line\nbreak",
    "中 é ß",
    "*",
    "[x]",
)


def hostile(folder: Path) -> Comparison:
    """One configuration for each text, which is a value, a metric and a name there."""
    for number, text in enumerate(TEXTS):
        metrics = {"val/loss": float(number), f"test/{text}": 0.5}
        make_run(folder / str(number), f"tag.text={text}", metrics=metrics, name=text, reason=text)
    broken = folder / "bad\x1b[31m"
    make_run(broken)
    (broken / "record.json").write_text('{"schema_version": "\x1b[31m"}')
    return compare(read_runs([folder]))


def printed(table: Comparison, width: int | None, **options: Any) -> list[str]:
    """On a terminal of a width; in a pipe where that is None."""
    screen = io.StringIO()
    console = Console(file=screen, width=width or 80, force_terminal=width is not None, color_system=None)
    print_comparison(console, table, **options)
    return screen.getvalue().splitlines()


def sweep(root: Path) -> Comparison:
    for lr in ("0.1", "0.01"):
        for seed in (0, 1, 2):
            metrics = {"val/loss": float(lr) + seed / 100, "test/accuracy": 0.9 + seed / 100, "test/f1": 0.8}
            make_run(
                root / f"{lr}-{seed}",
                "trainer.max_epochs=9",
                f"optimizer.lr={lr}",
                f"seed={seed}",
                metrics=metrics,
            )
    make_run(root / "bad", "optimizer.lr=0.5", status="failed", cause="non_finite", reason="it became nan")
    make_run(root / "broken")
    (root / "broken/record.json").write_text("{}")
    return compare(read_runs([root]))


def test_in_a_pipe_no_line_is_broken(tmp_path: Path) -> None:
    lines = printed(sweep(tmp_path), None)
    assert lines[0] == "3 configurations, 7 runs"
    assert lines[1].split() == ["max_epochs", "lr", "val/loss", "test/accuracy", "test/f1", "n", "status"]
    assert lines[2].split()[:8] == ["9", "0.01", "0.020", "±", "0.025", "*", "91.0", "±"]
    assert "failed (non_finite)" in "\n".join(lines)
    assert f"best  {tmp_path / '0.01-0'}, the best of 3 repetitions" in lines
    assert [line for line in lines if line.startswith("verdict") and "sign-flip" in line]
    assert "note  ± is half a 95 % interval of the mean (Student's t)" in lines
    assert [line for line in lines if line.startswith("broken") and "schema version" in line]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("each", [False, True])
def test_no_line_is_longer_than_the_terminal_and_what_is_left_out_is_said(
    tmp_path: Path, width: int, each: bool
) -> None:
    sweep(tmp_path)
    table = compare(read_runs([tmp_path]), each=each)
    lines = printed(table, width, each=each)
    # A path is not broken, so that it can be copied.
    assert all(len(line) <= width or str(tmp_path) in line for line in lines)
    assert all(len(line) <= width for line in lines if " %" in line)
    text = " ".join(" ".join(lines).split())
    for name in table.metrics:
        assert name in text, "as a column or as left out"
    assert "0.01" in text
    assert "val/loss" in text
    if width == 60 and not each:
        assert "0.020 ± 0.025 *" in text


@pytest.mark.parametrize("depth", [0, 3])
def test_80_columns_keep_the_ranking_score_a_test_score_and_the_run(tmp_path: Path, depth: int) -> None:
    folder = tmp_path.joinpath(*(f"a-folder-with-a-long-name-{level}" for level in range(depth)))
    names = ("accuracy", "average_precision", "auroc", "f1", "precision", "recall", "loss")
    for number, lr in enumerate((0.004903618401148253, 0.01)):
        metrics = {f"{stage}/{name}": 0.5 + number / 10 for stage in ("val", "test") for name in names}
        best = {"monitor": "val/average_precision", "value": 0.6, "epoch": 1}
        words = (f"optimizer.lr={lr}", f"data.split.time=column{number}")
        place = folder / "digits/sweeps/2026-11-28-07-40-06" / str(number)
        directions = dict.fromkeys(metrics, "max")
        make_run(place, *words, metrics=metrics, best=best, directions=directions)
    make_run(folder / "other/2026-11-28/07-40-06", metrics=metrics, best=best, directions=directions)
    for each in (True, False):
        screen = io.StringIO()
        table = compare(read_runs([tmp_path]), each=each)
        print_comparison(Console(file=screen, width=80, force_terminal=True, no_color=True), table, each=each)
        lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen.getvalue().splitlines()]
        header = next(line.split() for line in lines if "val/average_precision" in line.split())
        assert {"val/average_precision", "test/average_precision"} <= set(header)
        assert "time" not in header
        assert not re.search(r"\d{9}", "".join(lines[1:6]))
        of_runs = [line for line in lines if re.search(r"\d\d %", line)]
        assert len(of_runs) == 3
        assert all(len(line.rstrip()) <= 80 for line in [*of_runs, " ".join(header)])
        if each:
            assert sorted(line.split("/")[-1].strip() for line in of_runs) == ["0", "07-40-06", "1"]
        assert "".join(lines).count("NAME") == 1


def test_hostile_text_is_printed_as_text(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    for each in (False, True):
        text = "\n".join(printed(table, None, each=each))
        assert "\x1b" not in text
        assert r"\x1b]0;owned" in text
        assert "[red]x[/red]" in text
    assert len(table.rows) == len(TEXTS)


def test_every_digit_comes_back(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(
            tmp_path / str(seed), f"seed={seed}", "optimizer.lr=-0.1", metrics={"val/loss": 0.1 + seed / 3}
        )
    make_run(tmp_path / "other", "optimizer.lr=0.2", metrics={"val/loss": 9.0}, status="pruned")
    table = compare(read_runs([tmp_path]))
    frame = pd.read_csv(io.StringIO(to_csv(table)))
    score = table.rows[0].scores["val/loss"]
    row = frame.iloc[0]
    assert [row[f"val/loss{end}"] for end in ("", " std", " low", " high", " n")] == [
        *(score.mean, score.std, score.low, score.high, 2)
    ]
    assert row["optimizer.lr"] == -0.1, "a negative number is not a formula"
    assert frame["best"].tolist() == [1, 0]
    assert frame["status"].tolist() == ["finished", "pruned"]
    assert row["runs"].split("\n") == [str(tmp_path / "0"), str(tmp_path / "1")]


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = to_csv(hostile(tmp_path))
    assert "\x1b" not in text
    frame = pd.read_csv(io.StringIO(text))
    assert len(frame) == len(TEXTS) + 1
    assert "'=cmd()" in frame["tag.text"].tolist()
    assert not [one for one in frame["tag.text"].dropna() if one[0] in "=+@"]
    assert frame["status"].iloc[-1].startswith("broken")


OURS = {
    *("begin", "end", "centering", "hline", "textbf", "caption", "ensuremath", "pm"),
    *("textbackslash", "textasciitilde", "textasciicircum"),
}


def test_only_commands_of_ours_and_every_brace_closed(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    text = to_latex(table)
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= OURS
    bare = re.sub(r"\\[^A-Za-z]", "", text)
    assert bare.count("{") == bare.count("}")
    assert not set("#$^~_%") & set(bare)
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert len(rows) == 1 + len(TEXTS)
    columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert columns is not None
    cells = {len(re.findall(r"(?<!\\)&", line)) + 1 for line in rows}
    assert cells == {len(columns[1])}
    assert not [line for line in rows if line.startswith(("*", "["))], "both are arguments of the line before"
    assert r"\textbf{" in text


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_it_compiles_as_it_is(tmp_path: Path) -> None:
    body = to_latex(hostile(tmp_path / "runs"))
    document = f"\\documentclass{{article}}\\begin{{document}}\n{body}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(document, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_rows_scores_and_broken_runs(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    document = Document()
    document.say("compare", to_document(table))
    text = document.to_json()
    assert text.isascii()
    assert "\x1b" not in text
    plain = json.loads(text)
    assert (plain["kind"], plain["metric"], plain["direction"]) == ("compare", "val/loss", "min")
    assert [row["config"]["tag.text"] for row in plain["rows"]] == list(TEXTS)
    first = plain["rows"][0]
    assert first["best"]
    assert first["scores"]["val/loss"] == {
        "mean": 0.0,
        "std": None,
        "low": None,
        "high": None,
        "n": 1,
        "values": [0.0],
        "folds": [],
    }
    assert (first["runs"][0]["run"], first["runs"][0]["status"]) == (str(tmp_path / "0"), "finished")
    assert len(plain["broken"]) == 1
