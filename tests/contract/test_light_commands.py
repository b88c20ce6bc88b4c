"""What must answer at once imports no torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from assay.paths import CONF_DIR

PROBE = """
import sys
from assay.cli.app import main
sys.argv = ["assay", *sys.argv[1:]]
try:
    main()
except SystemExit as error:
    code = error.code
else:
    code = 0
heavy = sorted({"torch", "lightning", "torchvision", "torchmetrics", "sklearn", "pandas"} & set(sys.modules))
print(f"code={code} heavy={heavy}", file=sys.stderr)
"""

COMPOSE = """
import sys, hydra, rich.console, typer
with hydra.initialize_config_dir(sys.argv[1], version_base="1.3"):
    hydra.compose("train")
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 0),
        (["--help"], 0),
        (["--version"], 0),
        (["train", "--help"], 0),
        (["configs"], 0),
        (["configs", "optimzer"], 2),
        (["-sc", "query=bash"], 0),
        (["train", "optimizer=sdg"], 2),
        (["train", "optimizer.lrr=1"], 2),
        (["train", "seed=x"], 2),
        (["train", "data=table"], 2),
        (["train", "--cfg"], 0),
        (["explain", "optimizer.lr", "experiment=digits_image"], 0),
        (["explain", "optimizer.lrr"], 2),
        (["diff", "", "optimizer=sgd"], 0),
        (["diff", "nowhere", ""], 1),
        (["reproduce", "nowhere"], 1),
        (["train", "-m", "optimizer=sgd,sdg"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_without_torch(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        env={**os.environ, "COMP_LINE": "assay train optimizer.l"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.splitlines()[-1] == f"code={code} heavy=[]", done.stderr
    assert "Traceback" not in done.stderr


def seconds(code: str, *arguments: str) -> float:
    """Processor time, so that other work on this machine hardly counts."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, check=False, timeout=60)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_answers_about_as_fast_as_hydra_composes() -> None:
    commands = (["--help"], ["train", "optimzer=sgd"], ["explain", "optimizer.lr"])
    least = min(seconds(COMPOSE, str(CONF_DIR)) for _ in range(3))
    for arguments in commands:
        assert min(seconds(PROBE, *arguments) for _ in range(3)) < 4 * least, arguments
