"""The table of folds: what each tested, and what inner folds chose for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay.analysis.jobs import Job
from assay.analysis.objective import Objective
from assay.record import predictions_file
from assay.record.outcome import Outcome
from assay.report.page import Cell, Note, Table
from assay.report.read_sweep import Contents, ranked
from assay.report.sweep_page import fold_blocks
from assay.task.prediction.predictions import Predictions

if TYPE_CHECKING:
    from pathlib import Path

INNER = "data.split.inner_folds"


def job(folder: Path, name: int, fold: int, **values: str) -> Job:
    """Fold f has ten samples, f of which are wrong."""
    run_dir = folder / str(name)
    run_dir.mkdir()
    (run_dir / "config.yaml").write_text("data: {split: {folds: 3}}\n")
    right = np.arange(10) >= fold
    outputs = np.stack([right, ~right], axis=1).astype(np.float32)
    keys = tuple(f"{fold}-{row}" for row in range(10))
    said = Predictions("multiclass", "probabilities", keys, outputs, np.zeros(10, np.int64), ("a", "b"))
    predictions_file.write(run_dir / predictions_file.FILE, said)
    outcome = Outcome("finished", metrics={"test/accuracy": 1 - fold / 10, "val/loss": 0.5})
    return Job(str(name), values, "0", "finished", outcome, run_dir, fold=fold)


def tables(*jobs: Job) -> tuple[list[Table], list[str]]:
    contents = Contents("sweep", "sweep", jobs, (Objective("val/loss", "minimize"),))
    blocks = fold_blocks(contents, ranked(contents))
    notes = [block.text for block in blocks if isinstance(block, Note)]
    return [block for block in blocks if isinstance(block, Table)], notes


def texts(row: object) -> list[str]:
    return [cell.text if isinstance(cell, Cell) else cell for cell in row]  # type: ignore[attr-defined]  # a row


def test_each_fold_their_mean_and_all_samples_at_once(tmp_path: Path) -> None:
    [folds, out_of_fold], notes = tables(*(job(tmp_path, fold, fold) for fold in range(3)))
    assert [texts(row) for row in folds.rows[:3]] == [
        [str(fold), str(fold), f"{100 - 10 * fold:.2f} %"] for fold in range(3)
    ]
    assert texts(folds.rows[3])[2] == "90 ± 25 %"  # scipy.stats.t.interval(0.95, 2, 0.9, 0.1 / 3**0.5)
    assert texts(out_of_fold.rows[0])[:2] == ["30", "90.00 %"]
    assert not notes


def test_a_missing_fold_is_said(tmp_path: Path) -> None:
    _, notes = tables(job(tmp_path, 0, 0), job(tmp_path, 1, 2))
    assert notes == ["Fold 1 of 3 is missing."]


def test_what_inner_folds_chose_is_one_procedure(tmp_path: Path) -> None:
    inner = [job(tmp_path, 10 + fold, fold, lr="9", **{INNER: "2"}) for fold in range(3)]
    outer = [job(tmp_path, fold, fold, lr=str(fold), **{INNER: "null"}) for fold in range(3)]
    [folds, out_of_fold], _ = tables(*inner, *outer)
    assert [texts(row)[:3] for row in folds.rows[:3]] == [[str(f), str(f), f"lr={f}"] for f in range(3)]
    assert len(out_of_fold.rows) == 1


def test_runs_without_folds_have_no_table(tmp_path: Path) -> None:
    alone = job(tmp_path, 0, 0)
    assert tables(Job(alone.name, {}, "0", "finished", alone.outcome, alone.run_dir)) == ([], [])
