"""What `assay check` prints and draws."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from assay.check.report import Memory, Report, Step
from assay.cli.app import app
from assay.terminal import Console
from assay_prove.show import show_job, show_sweep

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

STEP = Step((8, 3), 2_000_000, Memory(1 << 20, 1 << 20, 2 << 20, 4 << 20))
SPEC = {
    "task": "multiclass",
    "input_shape": [3, 8, 8],
    "num_classes": 3,
    "num_targets": 0,
    "num_train": 1200,
    "num_val": 100,
    "num_test": 200,
    "steps_per_epoch": 150,
    "total_steps": 1500,
}


def report(overrides: tuple[str, ...] = (), unproven: str = "") -> Report:
    return Report(
        overrides,
        "mine",
        SPEC,
        targets={"model": "Net", "loss": "Loss", "optimizer": "SGD"},
        batch_size=8,
        parameters=1234567,
        trainable=1000,
        step=None if unproven else STEP,
        unproven=unproven,
        lr=[0.1] * 10 + [0.05] * 10,
    )


def printed(width: int = 100) -> Console:
    return Console(file=io.StringIO(), width=width, highlight=False, soft_wrap=True)


def said(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_job_is_told_in_words_and_numbers() -> None:
    console = printed()
    show_job(console, report(unproven="layer 'x[0]' decides by values"))
    assert "unproven: layer 'x[0]' decides by values; the run will show" in said(console)
    show_job(console, report(("optimizer=[x]",)))
    text = said(console)
    for part in (
        "mine  optimizer=[x]",
        "multiclass, 3×8×8, 3 classes; 1,200 + 100 + 200 samples",
        "Net, 1,234,567 parameters, 1,000 of them trained",
        "2 MFLOP for a batch of 8",
        "about 8 MiB at its peak: weights 1 MiB, gradients 1 MiB, optimizer 2 MiB, activations 4 MiB",
        "150 per epoch, 1,500 in all",
        "at the end; --plot FILE draws it",
        "nothing was run or written",
    ):
        assert part in text
    assert "\x1b" not in text


def test_a_sweep_is_a_row_a_job() -> None:
    console = printed()
    show_sweep(console, [report(("data=iris", f"optimizer.lr={lr}", "tags=[a]")) for lr in (0.1, 0.2)])
    lines = said(console).splitlines()
    assert lines[0].split() == ["job", "overrides", "parameters", "a", "step", "memory", "steps"]
    assert lines[1].split() == ["0", "optimizer.lr=0.1", "1,234,567", "2", "MFLOP", "8", "MiB", "1,500"]
    assert lines[2].split()[:2] == ["1", "optimizer.lr=0.2"]
    assert lines[3] == "all with data=iris tags=[a]"
    assert lines[4].startswith("ready: 2 jobs, checked in ")


def test_the_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["check", "data=iris", "device=cpu", "--plot", "lr.png"])
    assert result.exit_code == 0, result.output
    assert "MLP, 67,843 parameters" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["lr.png"]
    result = CliRunner().invoke(app, ["check", "-m", "data=iris", "device=cpu", "seed=1,2"])
    assert result.exit_code == 0, result.output
    assert "ready: 2 jobs, checked" in result.output
    result = CliRunner().invoke(app, ["check", "-m", "seed=1,2", "--plot", "lr.png"])
    assert result.exit_code == 2
    assert "leave out -m" in result.stderr
