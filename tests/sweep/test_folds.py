"""A sweep over folds from what is typed to its table, its page, and the evaluation of one of its runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest
from sklearn.metrics import accuracy_score  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.analysis.out_of_fold import FILE
from assay.report.report import report
from assay.run.evaluate import evaluate
from assay.sweep.session import go_on, start

if TYPE_CHECKING:
    from pathlib import Path

TYPED = (
    *(
        "data=iris",
        "model=linear",
        "device=cpu",
        "trainer.max_epochs=1",
        "data.split.folds=3",
        "callbacks=[]",
    ),
    *("hydra/launcher=serial", "hydra.sweep.dir=sweep"),
)


def test_folds_are_one_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = tmp_path / "sweep"
    start([*TYPED, "fold=0,1"])
    said = capsys.readouterr().out
    assert "fold 2 of 3 is missing" in said
    assert len(pd.read_parquet(sweep / FILE)) == 100

    result = go_on(sweep, ["fold=range(3)"])
    assert [job.status for job in result.jobs] == ["finished"] * 3
    said = capsys.readouterr().out
    assert "3 of 3" in said
    assert "is missing" not in said
    table = pd.read_parquet(sweep / FILE)
    assert sorted(table.key.astype(int)) == list(range(150))
    assert table.groupby("fold").run.agg(["nunique", "size"]).to_numpy().tolist() == [[1, 50]] * 3
    accuracy = accuracy_score(table.target, table.prediction)
    assert f"accuracy {100 * accuracy:.2f} %" in said
    for job in result.jobs:
        assert job.outcome is not None
        tested = evaluate(sweep / str(job.number))  # the fold's own test subset, by the run's config alone
        own = table[table.run == str(job.number)]
        assert tested.metrics["test/accuracy"] == pytest.approx(job.outcome.metrics["test/accuracy"])
        assert tested.metrics["test/accuracy"] == pytest.approx(accuracy_score(own.target, own.prediction))
        assert tested.num_samples == 50

    before = (sweep / FILE).read_bytes()
    (sweep / FILE).unlink()
    go_on(sweep)
    assert (sweep / FILE).read_bytes() == before

    page = report([sweep]).page.read_text(encoding="utf-8")
    assert "Each sample is tested once, by the run that has not trained on it." in page
    assert f"{100 * accuracy:.2f} %" in page
    groups = pd.read_csv(sweep / "groups.csv")
    assert groups[["finished", "of", "test/accuracy n"]].to_numpy().tolist() == [[3, 3, 3]]


@pytest.mark.long
def test_inner_folds_choose_and_outer_folds_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped after its inner jobs of the first fold, it comes to the same as a sweep that was not."""
    monkeypatch.chdir(tmp_path)
    typed = [*(word for word in TYPED if not word.startswith("data.split")), "data.split.folds=2"]
    nested = ["data.split.inner_folds=2", "inner_fold=range(2)", "optimizer.lr=1e-6,0.1"]
    start([*typed, *nested, "fold=0"])
    assert "fold 1 of 2 is missing" in capsys.readouterr().out
    result = go_on(tmp_path / "sweep", ["fold=0,1"])
    assert [job.status for job in result.jobs] == ["finished"] * 10
    said = capsys.readouterr().out
    assert [f"fold {fold}, seed 0: optimizer.lr=0.1  (finished)" in said for fold in (0, 1)] == [True, True]
    assert "over 2 outer folds" in said
    table = pd.read_parquet(tmp_path / "sweep" / FILE)
    assert sorted(table.key.astype(int)) == list(range(150))
    page = report([tmp_path / "sweep"]).page.read_text(encoding="utf-8")
    assert "What the inner folds of each fold have chosen" in page
