"""Baselines and thresholds against scikit-learn's own on the same rows, and where there is none."""

from __future__ import annotations

from contextlib import chdir
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf
from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]  # it has no stubs
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]  # it has no stubs
from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
    f1_score,
    precision_score,
    recall_score,
)
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]  # it has no stubs
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # it has no stubs
from tests.conftest import unchanged_process
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]  # it has no stubs

import assay
from assay.record.run_record import RunRecord
from assay_analysis import predictions_file
from assay_analysis.importances import read_importances
from assay_lab import baseline
from assay_lab.baseline import advise
from assay_serve.threshold import best_threshold

if TYPE_CHECKING:
    from pathlib import Path


SHORT = ("device=cpu", "trainer.max_epochs=1", "hydra.run.dir=run", "callbacks.progress_bar=null")


def trained(folder: Path, *overrides: str) -> Any:
    with chdir(folder), unchanged_process():
        return assay.train([*SHORT, *overrides])


def test_it_is_scikit_learns_on_the_same_rows(tmp_path: Path) -> None:
    result = trained(tmp_path, "data=iris", "model=linear", "baseline=linear")
    data = result.trainer.datamodule
    parts = {name: data.splits.rows[name] for name in ("train", "test")}
    inputs, targets = data.splits.data["train"].inputs.numpy(), data.splits.data["train"].targets.numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=200))
    model.fit(inputs[parts["train"]], targets[parts["train"]])
    accuracy = model.score(inputs[parts["test"]], targets[parts["test"]])
    assert result.baseline["value"] == pytest.approx(accuracy) == result.metrics["baseline/accuracy"]
    own = result.metrics["test/accuracy"]
    assert result.baseline["run"] == pytest.approx(own)
    assert result.baseline["difference"] == pytest.approx(own - accuracy)


def test_it_is_fitted_by_one_thread_of_each_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    fit = HistGradientBoostingRegressor.fit

    def watched(*arguments: Any) -> Any:
        seen.extend(threadpool_info())
        return fit(*arguments)

    monkeypatch.setattr(HistGradientBoostingRegressor, "fit", watched)
    with threadpool_limits(2):
        trained(tmp_path, "data=diabetes", "baseline=gradient_boosting")
        after = {pool["num_threads"] for pool in threadpool_info()}
    assert {pool["num_threads"] for pool in seen} == {1}
    assert 2 in after


@pytest.mark.always("overrides0-name0-r2")
@pytest.mark.parametrize(
    ("overrides", "name", "score"),
    [
        (("data=diabetes",), {"gradient_boosting", "linear", "mean"}, "r2"),
        (("data=breast_cancer",), {"gradient_boosting", "linear"}, "average_precision"),
        (("data=digits", "model=linear"), {"linear"}, "accuracy"),
        (("data=iris", "baseline=majority"), {"majority"}, "accuracy"),
    ],
)
def test_the_data_decides(tmp_path: Path, overrides: tuple[str, ...], name: set[str], score: str) -> None:
    found = trained(tmp_path, *overrides).baseline
    assert found["name"] in name
    assert found["score"] == score
    assert RunRecord.load(tmp_path / "run").baseline == found


def test_texts_without_spaces_between_words_are_learned_from(tmp_path: Path) -> None:
    rows = [
        f"{'的了在是我'[i % 5] * (i % 9)}{word}{'他们一个人'[i % 7 % 5]},{word}\n"
        for i in range(60)
        for word in "球饭"
    ]
    path = tmp_path / "texts.csv"
    path.write_text("text,topic\n" + "".join(rows), encoding="utf-8")
    data = f"data=text_table data.source.path={path} data.source.text=text data.source.target=topic"
    result = trained(tmp_path, *data.split(), "trainer.max_epochs=20")
    assert result.metrics["test/accuracy"] == 1
    assert (result.baseline["name"], result.baseline["value"]) == ("tfidf", 1)


@pytest.mark.parametrize(
    ("config", "baseline", "advice"),
    [
        ({"trainer": {"max_epochs": 20}, "optimizer": {"lr": 0.3}}, "accuracy linear 2", "optimizer.lr=0.1"),
        ({"trainer": {"max_epochs": 20}}, "accuracy linear 20", "trainer.max_epochs=40"),
        ({"optimizer": {"lr": 0.3}}, "accuracy linear", "optimizer.lr=0.1,0.3,0.9"),
        ({"optimizer": {"lr": 0.3}, "typed": ["optimizer.lr=0.3"]}, "accuracy linear", ""),
    ],
)
def test_a_run_that_is_behind_says_what_to_type(config: dict[str, Any], baseline: str, advice: str) -> None:
    score, name, *best = baseline.split()
    record: Any = SimpleNamespace(
        baseline={"score": score, "name": name},
        best={"epoch": int(best[0])} if best else {},
        overrides=config.get("typed", []),
        config_dir="",
    )
    base = {"spec": {"input_shape": [4]}, "data": {}, "model": {}, "trainer": {}, "optimizer": {}}
    merged: Any = OmegaConf.merge(base, config)
    told = advise(merged, record)
    assert advice in told if advice else told == ""


@pytest.mark.parametrize(
    "overrides", [("baseline=none",), ("predictions.max_megabytes=0",), ("data.split.test=0",)]
)
def test_there_may_be_none(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    result = trained(tmp_path, "data=iris", *overrides)
    assert result.baseline == {}
    assert not [name for name in result.metrics if name.startswith("baseline/")]
    assert read_importances(result.run_dir) is None
    assert not [note for note in result.notes if "importances" in note]


def test_one_that_fails_is_said_on_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("two test samples have the same name")

    monkeypatch.setattr(baseline, "_compare", fail)
    result = trained(tmp_path, "data=iris")
    note = "could not score baseline: ValueError: two test samples have the same name"
    assert result.baseline == {}
    assert [one for one in result.notes if one.startswith(note)]
    assert note in capsys.readouterr().out


def test_training_is_the_same_without_it(tmp_path: Path) -> None:
    hashes = set()
    for name in ("none", "gradient_boosting"):
        trained(tmp_path, "data=iris", f"baseline={name}", f"hydra.run.dir={name}")
        hashes.add(RunRecord.load(tmp_path / name).weights_sha256)
    assert len(hashes) == 1


@pytest.mark.always
@pytest.mark.parametrize("seed", range(20))
def test_its_f1_is_nearly_the_highest_and_none_such_is_nearer_to_one_half(seed: int) -> None:
    draw = np.random.default_rng(seed)
    right = draw.random(300) < 0.3
    probabilities = (draw.normal(0.3, 0.15, 300) + 0.2 * right).clip(0, 1).round(draw.integers(1, 4))
    found = best_threshold(probabilities, right)
    assert found is not None
    edges = np.append(np.unique(probabilities), 0.0)
    scores = {edge: f1_score(right, probabilities >= edge) for edge in edges}
    highest = max(scores.values())
    own = f1_score(right, probabilities >= found)
    assert own >= 0.95 * highest - 1e-12
    middles = (edges[1:-1] + edges[:-2]) / 2
    nearer = [edge for edge in middles if abs(edge - 0.5) < abs(found - 0.5) - 1e-6]
    assert all(f1_score(right, probabilities >= edge) < 0.95 * highest for edge in nearer)


def test_few_samples_tell_nothing() -> None:
    assert best_threshold(np.linspace(0, 1, 40), np.arange(40) >= 21) is None
    assert best_threshold(np.linspace(0, 1, 200), np.arange(200) >= 100) is None  # as many of either class
    assert best_threshold(np.linspace(0, 1, 200), np.arange(200) >= 150) is not None


def table(folder: Path, count: int) -> list[str]:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(count, 3)).round(3)
    chance = 1 / (1 + np.exp(-(1.5 * inputs[:, 0] - inputs[:, 1] - 1.5)))
    frame = pd.DataFrame(inputs, columns=list("abc"))
    frame.assign(left=np.where(draw.random(count) < chance, "yes", "no")).to_csv(
        folder / "t.csv", index=False
    )
    source = ["data=table", "data.source.path=t.csv", "data.source.target=left", "hydra.run.dir=run"]
    return [*source, "device=cpu", "trainer.max_epochs=5", "baseline=none", "callbacks.progress_bar=null"]


def test_predict_uses_what_validation_has_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chdir(tmp_path), unchanged_process():
        result: Any = assay.train(table(tmp_path, 1500))
        threshold = result.threshold["value"]
        assert RunRecord.load(tmp_path / "run").threshold == result.threshold
        assert result.metrics["test/average_precision"] > 0.5
        kept = predictions_file.read(tmp_path / "run" / predictions_file.FILE)
        said, right = kept.outputs[:, 1] >= threshold, kept.targets == 1
        assert result.threshold["class"] == "yes"
        assert result.threshold["precision"] == pytest.approx(precision_score(right, said))
        assert result.threshold["recall"] == pytest.approx(recall_score(right, said))
        data = result.trainer.datamodule
        rows = data.splits.rows["val"]
        validation = pd.read_csv("t.csv").iloc[rows]
        predicted = result.predictor(validation.drop(columns="left"))
        scores = predicted.probabilities[:, 1]
        assert threshold == best_threshold(scores, (validation["left"] == "yes").to_numpy())
        assert predicted.labels == np.where(scores >= threshold, "yes", "no").tolist()
        assert threshold != 0.5
        frame = predicted.to_frame()
        assert frame["prediction"].tolist() == predicted.labels
        assert [predicted[at].label for at in range(5)] == predicted.labels[:5]
        assert any(scores[at] < 0.5 for at in np.flatnonzero(np.array(predicted.labels) == "yes"))
