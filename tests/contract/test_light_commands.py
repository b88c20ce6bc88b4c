"""What must answer at once imports no torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROBE = """
import sys
from assay.cli import main
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


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "optimzer=sgd"], ["explain", "optimizer.lr"]], ids=" ".join
)
def test_answers_within_a_second(arguments: list[str]) -> None:
    def seconds() -> float:
        before = os.times()
        subprocess.run(
            [sys.executable, "-c", PROBE, *arguments], capture_output=True, check=False, timeout=60
        )
        after = os.times()
        # Processor time, so that other work on this machine does not count.
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 1.0
