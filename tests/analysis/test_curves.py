"""metrics.csv of a run, while it grows, damaged, and of a real run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from assay.analysis.read_runs import read_curves
from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_a_real_run_as_pandas_reads_it(digits_run: Trained) -> None:
    table = pd.read_csv(digits_run.run_dir / "metrics.csv")
    curves = read_curves(digits_run.run_dir)
    assert set(curves) == set(table.columns) - {"epoch", "step"}
    for name, curve in curves.items():
        rows = table[table[name].notna()]
        assert curve.values == rows[name].tolist()
        assert curve.steps == rows["step"].tolist()


def test_a_line_that_is_being_written_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text("epoch,step,a\n1,5,0.5\n,6,nan\n2,7,0.2")
    curve = read_curves(tmp_path)["a"]
    assert curve.steps == [5, 6]
    assert curve.epochs == [1, None]
    assert str(curve.values) == "[0.5, nan]"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", "metrics.csv:1 is damaged"),
        ("a,b\n1,2\n", "metrics.csv:1 is damaged"),
        ("epoch,step,a,a\n1,2,3,4\n", "metrics.csv:1 is damaged"),
        ("epoch,step,a\n1,2,3\n1,2\n", "metrics.csv:3 is damaged: 2 cells, and 3 were expected"),
        ("epoch,step,a\n1,2,x\n", "metrics.csv:2 is damaged"),
        ("epoch,step,a\nx,2,1\n", "metrics.csv:2 is damaged"),
        ('epoch,step,a\n"1,2,1\n', "damaged"),
        ("epoch,step,a\n1,2,\x00\n", "damaged"),
        (f"epoch,step,a\n1,{2**63},1\n", "metrics.csv:2 is damaged"),
        (f"epoch,step,a\n-{2**63},1,1\n", "metrics.csv:2 is damaged"),
    ],
)
def test_damage_is_named_with_its_line(tmp_path: Path, content: str, place: str) -> None:
    (tmp_path / "metrics.csv").write_bytes(content.encode())
    with pytest.raises(AssayError, match=place):
        read_curves(tmp_path)


def test_none(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"has no metrics\.csv"):
        read_curves(tmp_path)
    (tmp_path / "metrics.csv").mkdir()
    with pytest.raises(AssayError, match="cannot be read"):
        read_curves(tmp_path)
