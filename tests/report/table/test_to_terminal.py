"""A comparison on screens of many widths, and in a pipe."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from tests.making_runs import make_run
from tests.report.table.hostile import TEXTS, hostile

from assay.analysis.comparison import Comparison, compare
from assay.analysis.read_runs import read_runs
from assay.report.comparison_formats import best_run, print_comparison
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path


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
    assert [line for line in lines if line.startswith("test") and "Welch" in line]
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
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for name in table.metrics:
        assert name in text, "as a column or as left out"
    assert "0.01" in text
    assert "val/loss" in text
    if width == 60 and not each:
        assert "0.020 ± 0.025 *" in text


def test_a_narrow_screen_is_not_filled_with_what_a_run_has_not(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "data=wine", "data.width=7", metrics={"val/loss": 0.1})
    make_run(tmp_path / "b", "data=digits", metrics={"val/loss": 0.2})
    table = compare(read_runs([tmp_path]))
    assert "–" in "".join(printed(table, None))
    lines = printed(table, 24)
    assert "width=7" in "".join(lines)
    assert "–" not in "".join(lines)


def test_hostile_text_is_printed_as_text(tmp_path: Path) -> None:
    table = hostile(tmp_path)
    for each in (False, True):
        text = "\n".join(printed(table, None, each=each))
        assert "\x1b" not in text
        assert r"\x1b]0;owned" in text
        assert "[red]x[/red]" in text
    assert len(table.rows) == len(TEXTS)


def test_the_best_run_is_of_the_best_configuration(tmp_path: Path) -> None:
    scores = {"0.1": (0.0, 1.0), "0.2": (0.4, 0.45)}
    for lr, both in scores.items():
        for seed, score in enumerate(both):
            make_run(
                tmp_path / f"{lr}-{seed}", f"optimizer.lr={lr}", f"seed={seed}", metrics={"val/loss": score}
            )
    assert best_run(compare(read_runs([tmp_path]))) == tmp_path / "0.2-0", "not that of the one lucky seed"


def test_runs_of_several_projects_share_a_screen(tmp_path: Path) -> None:
    for project in ("fish", "fowl", "flesh"):
        own = {f"test/{project}{number}": 0.5 for number in range(4)}
        for seed in range(2):
            keys = [f"{project}.key{number}={number + seed}" for number in range(5)]
            metrics = {"val/loss": 0.5, "test/loss": 0.5, **own}
            make_run(
                tmp_path / f"{project}{seed}",
                f"data={project}",
                f"seed={seed}",
                "optimizer.lr=0.5",
                *keys,
                metrics=metrics,
            )
    table = compare(read_runs([tmp_path]), each=True)
    assert len(table.columns) + len(table.metrics) > 24
    lines = printed(table, None, each=True)
    header = lines[1].split()
    assert len(header) <= 15
    assert {"data", "val/loss", "test/loss", "run"} <= set(header)
    for name in (*table.columns, *table.metrics):
        assert name.rpartition(".")[2] in " ".join(lines), "as a column or as one that is left out"
    asked = compare(read_runs([tmp_path]), each=True, metrics=table.metrics)
    shown = printed(asked, None, each=True, asked=True)[1].split()
    assert set(table.metrics) <= set(shown)
