"""What must answer at once imports no torch."""

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
        (["--help"], 0),
        (["train", "--help"], 0),
        (["configs"], 0),
        (["configs", "optimizer"], 0),
        (["configs", "optimzer"], 2),
        (["train", "optimzer=sgd"], 2),
        (["train", "optimizer=sdg"], 2),
        (["train", "optimizer.lrr=1"], 2),
        (["train", "--cfg"], 0),
        (["train", "-m", "optimizer=sgd,sdg"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_without_torch(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr.splitlines()[-1] == f"code={code} heavy=[]", done.stderr
    assert "Traceback" not in done.stderr
