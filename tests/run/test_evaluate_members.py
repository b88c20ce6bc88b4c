"""The mean of several runs is tested on what none of them was trained on, against scikit-learn."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes  # type: ignore[import-untyped]  # no types
from sklearn.metrics import (  # type: ignore[import-untyped]  # ships no types
    accuracy_score,
    log_loss,
    r2_score,
    recall_score,
)
from tests.command import documented, typed
from tests.conftest import train_each

import assay
from assay.errors import AssayError, ConfigError
from assay.record.run_record import RunRecord
from assay_analysis import predictions_file
from assay_serve.evaluate_members import MembersEvaluation, evaluate_members
from assay_serve.members import find_members

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train

SHORT = ("model=mlp", "callbacks=[checkpoint]", "trainer.max_epochs=4", "optimizer.lr=0.02")


def evaluate(folder: Path, *overrides: str, **options: Any) -> MembersEvaluation:
    members = find_members(folder)
    assert members is not None
    return evaluate_members(members, overrides, **options)


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = load_breast_cancer(as_frame=True)
    frame: pd.DataFrame = data.data.iloc[:, :8].copy()
    frame["ill"] = np.where(data.target == 1, "no", "yes")
    frame = frame.sample(frac=1, random_state=0)
    folder = tmp_path_factory.mktemp("patients of a clinic")
    frame[:400].to_csv(folder / "train.csv", index=False)
    frame[400:].to_csv(folder / "test.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def folds(train: Train, patients: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folds of a table whose test rows are a file of their own."""
    return train_each(
        train,
        tmp_path_factory.mktemp("folds"),
        ("fold=0", "fold=1", "fold=2"),
        *("data=table", f"data.source.path='{patients / 'train.csv'}'", "data.source.target=ill"),
        *(f"data.source.test_path='{patients / 'test.csv'}'", "data.split.folds=3", *SHORT),
    )


def test_folds_are_tested_on_the_sealed_rows_beside_their_scores_out_of_fold(
    folds: Path, patients: Path
) -> None:
    rows = pd.read_csv(patients / "test.csv")
    members = [assay.load(folds / str(n), map_location="cpu")(rows).probabilities for n in range(3)]
    mean = np.mean(members, 0)
    ill = (rows["ill"] == "yes").to_numpy()
    found = evaluate(folds)
    assert (found.subset, found.num_samples, found.same_data) == ("test", len(rows), True)
    assert found.metrics["accuracy"] == accuracy_score(ill, mean.argmax(1))
    assert found.metrics["log loss"] == pytest.approx(log_loss(ill, mean), rel=1e-5)
    assert found.metrics["recall of yes"] == pytest.approx(recall_score(ill, mean.argmax(1)))
    own = [accuracy_score(ill, one.argmax(1)) for one in members]
    assert found.member_metrics["accuracy"] == pytest.approx(np.mean(own))
    assert found.metrics["log loss"] < found.member_metrics["log loss"]  # by Jensen's inequality
    kept = [predictions_file.read(folds / str(n) / predictions_file.FILE) for n in range(3)]
    truth = np.concatenate([one.targets for one in kept if one.targets is not None])
    said = np.concatenate([one.outputs for one in kept]).argmax(1)
    assert len(truth) == 400
    assert found.out_of_fold["accuracy"] == accuracy_score(truth, said)
    assert found.out_of_fold.keys() == found.metrics.keys()


def test_the_threshold_counts_as_for_a_run(folds: Path, patients: Path) -> None:
    rows = pd.read_csv(patients / "test.csv")
    ill = (rows["ill"] == "yes").to_numpy()
    found = evaluate(folds, threshold="0.1")
    predictor = assay.load(folds, map_location="cpu")
    above = predictor(rows).probabilities[:, 1] >= np.float32(0.1)
    assert found.threshold["recall"] == pytest.approx(recall_score(ill, above))
    assert found.metrics == evaluate(folds).metrics


def test_the_command_prints_all_three(folds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = typed("eval", folds)
    words = done.output.splitlines()[0].split()
    assert words == ["test", "mean", "of", "3", "runs", "a", "run", "(mean)", "out", "of", "fold"]
    code, document = documented("eval", folds)
    assert (code, document["kind"], document["run_dir"]) == (0, "eval_sweep", str(folds))
    assert document["members"] == [str(folds / str(n)) for n in range(3)]
    assert not (folds / "evaluations").exists()
    monkeypatch.setattr("assay_serve.evaluate_members.mean_scores", lambda _: {"accuracy": 0.5})
    assert "undefined" in typed("eval", folds).output


def test_folds_without_test_rows_of_their_own_are_refused(train: Train, tmp_path: Path) -> None:
    words = ("data=wine", "data.split.folds=3", *SHORT)
    folder = train_each(train, tmp_path / "runs", ("fold=0", "fold=1"), *words)
    with pytest.raises(AssayError, match=r"no test samples: some run was trained on each") as caught:
        evaluate(folder)
    assert f"assay report {folder}" in caught.value.hint
    with pytest.raises(ConfigError, match="the val samples of each fold are others"):
        evaluate(folder, split="val")


def test_seeds_are_tested_on_their_common_test(train: Train, tmp_path: Path) -> None:
    words = ("data=diabetes", *SHORT)
    folder = train_each(train, tmp_path / "runs", ("seed=0", "seed=1"), *words)
    kept = [predictions_file.read(folder / str(n) / predictions_file.FILE) for n in range(2)]
    truth: Any = kept[0].targets
    mean = np.mean([one.outputs for one in kept], 0)
    found = evaluate(folder)
    assert found.metrics["r2"] == pytest.approx(r2_score(truth, mean), rel=1e-4)
    own = [RunRecord.load(folder / str(n)).metrics["test/r2"] for n in range(2)]
    assert found.member_metrics["r2"] == pytest.approx(np.mean(own), rel=1e-4)
    assert found.metrics["r2"] > found.member_metrics["r2"]
    assert found.out_of_fold == {}
    assert evaluate(folder, split="train").num_samples > evaluate(folder, split="val").num_samples


def test_masks_are_those_of_the_mean(train: Train, tmp_path: Path) -> None:
    words = (
        *("data=digits_segmentation", "model.widths=[8,16]", "callbacks=[checkpoint]"),
        *("trainer.limit_train_batches=4", "predictions.num_samples=0"),
    )
    folder = tmp_path / "runs"
    runs = [train(*words, f"seed={n}", f"hydra.run.dir={folder / str(n)}") for n in range(2)]
    data = runs[0].datamodule
    rows = data.splits.rows["test"]
    pictures = data.splits.data["test"].inputs[rows]
    masks = data.splits.data["test"].targets[rows].numpy()
    mean = np.mean([assay.load(run.run_dir)(pictures.numpy()).scores for run in runs], 0)
    together = assay.load(folder, map_location="cpu")(pictures.numpy())
    np.testing.assert_allclose(together.scores, mean, atol=1e-6)
    np.testing.assert_array_equal(together.masks, mean.argmax(1))
    found = evaluate(folder)
    expected = accuracy_score(masks.ravel(), mean.argmax(1).ravel())
    assert found.metrics["pixel accuracy"] == pytest.approx(expected)
    assert found.member_metrics["pixel accuracy"] != found.metrics["pixel accuracy"]


def test_runs_that_divide_the_data_differently_are_refused(train: Train, tmp_path: Path) -> None:
    words = ("data=wine", "data.split.seed=${seed}", *SHORT)
    folder = train_each(train, tmp_path / "runs", ("seed=0", "seed=1"), *words)
    for number in range(2):  # as a sweep over seeds has them, whose config is not resolved
        record = RunRecord.load(folder / str(number))
        record.config_fingerprint = "one"
        record.save(folder / str(number))
    with pytest.raises(AssayError) as caught:
        evaluate(folder)
    assert caught.value.message.startswith(f"{folder / '0'} and {folder / '1'} divide the data differently")


def test_changed_and_other_data(train: Train, tmp_path: Path) -> None:
    data = load_diabetes(as_frame=True)
    frame = data.frame.round(4)
    frame[:300].to_csv(tmp_path / "a.csv", index=False)
    gap = pd.DataFrame({"age": [0.1]})
    pd.concat([frame[300:], gap]).to_csv(tmp_path / "b.csv", index=False)
    words = ("data=table", f"data.source.path={tmp_path / 'a.csv'}", "data.source.target=target", *SHORT)
    folder = train_each(train, tmp_path / "runs", ("seed=0", "seed=1"), *words)
    found = evaluate(folder, f"data.source.path={tmp_path / 'b.csv'}", "device=cpu")
    rows = pd.read_csv(tmp_path / "b.csv")[:-1]
    assert any("1 row of 143 without a target is left out" in note for note in found.notes)
    mean = np.mean([assay.load(folder / str(n))(rows).values for n in range(2)], 0)
    assert (found.subset, found.num_samples, found.same_data) == ("all", 142, False)
    assert found.metrics["r2"] == pytest.approx(r2_score(rows["target"], mean[:, 0]), rel=1e-5)
    assert any("not known whether the runs were trained on" in note for note in found.notes)
    frame[1:300].to_csv(tmp_path / "a.csv", index=False)
    with chdir(tmp_path), pytest.raises(AssayError, match=r"not what .* was trained on"):
        evaluate(folder)
