"""Importances of columns against scikit-learn's, of the same model on the same raw rows."""

from __future__ import annotations

import functools
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]  # it has no stubs
from sklearn.inspection import permutation_importance  # type: ignore[import-untyped]  # it has no stubs
from sklearn.metrics import (  # type: ignore[import-untyped]  # it has no stubs
    accuracy_score,
    average_precision_score,
    r2_score,
)
from tests.conftest import unchanged_process

import assay
from assay_analysis.importances import Importances, draw_importances, read_importances
from assay_analysis.statistics import mean_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

COLUMNS = ["strong", "a, weak one", "noise", "town", "gappy", "day"]
"""`gappy` tells by where it is missing, `day` by its weekday."""
ROWS = 1500
REPEATS = 9  # of the reference


@functools.cache
def make_table() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    strong, weak, noise, gappy = draw.normal(size=(4, ROWS))
    town = draw.integers(0, 4, ROWS)
    is_missing = draw.random(ROWS) < 0.4
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.integers(0, 600, ROWS), unit="D")
    value = 3 * strong + 0.6 * weak + np.array([0, 1, 2, -2])[town] + 1.5 * is_missing
    value = value + 1.2 * (days.day_of_week.to_numpy() >= 5) + draw.normal(0, 0.3, ROWS)
    columns = [
        strong,
        weak,
        noise,
        np.array(["Rome", "Oslo", "Bonn", "Nice"])[town],
        gappy,
        days.strftime("%Y-%m-%d"),
    ]
    frame = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True))).round(4)
    frame.loc[is_missing, "gappy"] = np.nan
    frame["value"] = value.round(4)
    frame["sign"] = np.where(value > 0, "plus", "minus")
    frame["size"] = pd.cut(value, [-99, -2, 2, 99], labels=["small", "middle", "large"]).astype(str)
    frame["tags"] = np.where(strong > 0, "up", "down") + np.where(weak > 0, ";left", ";right")
    return frame


def write_table(folder: Path) -> pd.DataFrame:
    make_table().to_csv(folder / "table.csv", index=False)
    return make_table()


def train(folder: Path, target: str, *overrides: str) -> Any:
    others = {"value", "sign", "size", "tags"} - set(target.strip("[]").split(","))
    typed = [f"data.source.target={target}", f"data.source.exclude=[{','.join(sorted(others))}]", *overrides]
    quiet = ["device=cpu", "callbacks.progress_bar=null"]
    short = ["trainer.max_epochs=8", "model.members=1", "model.hidden=[64]", *quiet]
    with chdir(folder), unchanged_process():
        words = ["data=table", "data.source.path=table.csv", f"hydra.run.dir={folder}/run"]
        return assay.train([*words, "data.batch_size=32", *short, *typed])


class Ready(BaseEstimator):  # type: ignore[misc]  # it has no stubs
    """For scikit-learn, which asks for `fit`."""

    def fit(self) -> None:
        raise NotImplementedError


def check_against_sklearn(
    result: Any, frame: pd.DataFrame, target: Any, score: Callable[[Any, pd.DataFrame, Any], float]
) -> None:
    found = read_importances(result.run_dir)
    assert found is not None
    assert set(found.columns) == set(COLUMNS)
    tested = frame.iloc[result.trainer.datamodule.splits.rows["test"]].reset_index(drop=True)
    assert (found.num_rows, found.num_test) == (len(tested), len(tested))
    predictor = assay.load(result.run_dir)
    inputs = tested[COLUMNS]
    assert found.value == pytest.approx(score(predictor, inputs, tested[target]), abs=1e-4)
    reference = permutation_importance(
        Ready(),
        inputs,
        tested[target],
        scoring=lambda _, rows, targets: score(predictor, rows, targets),
        n_repeats=REPEATS,
        random_state=0,
    )
    means = {name: mean_of(values) for name, values in found.columns.items()}
    for name, mean, deviation in zip(
        COLUMNS, reference.importances_mean, reference.importances_std, strict=True
    ):
        ours = means[name]
        assert ours is not None
        assert ours.half_width is not None
        assert abs(ours.mean - mean) <= ours.half_width + 2 * deviation / np.sqrt(REPEATS) + 1e-6, name
    clear = [name for name in COLUMNS if name != "noise"]
    order = sorted(clear, key=lambda name: -float(np.mean(found.columns[name])))
    assert order[0] == "strong"
    theirs = dict(zip(COLUMNS, reference.importances_mean, strict=True))
    ranked = sorted(clear, key=lambda name: -theirs[name])
    apart = 2 * max(reference.importances_std)
    for place, name in enumerate(order):
        assert abs(theirs[name] - theirs[ranked[place]]) <= apart
    assert abs(float(np.mean(found.columns["noise"]))) < 0.02


def test_numbers_gaps_categories_and_dates_of_a_regression(tmp_path: Path) -> None:
    frame = write_table(tmp_path)
    result = train(tmp_path, "value", "baseline=mean")

    def score(predictor: Any, rows: pd.DataFrame, targets: Any) -> float:
        return float(r2_score(targets, predictor(rows).values.reshape(-1)))

    check_against_sklearn(result, frame, "value", score)
    found = read_importances(result.run_dir)
    assert found is not None
    assert found.score == "r2"
    for name in ("gappy", "town", "day"):
        assert min(found.columns[name]) > 0.01, name


@pytest.mark.always("sign-average_precision")
@pytest.mark.parametrize(("target", "name"), [("sign", "average_precision"), ("size", "accuracy")])
def test_classes(tmp_path: Path, target: str, name: str) -> None:
    frame = write_table(tmp_path)
    result = train(tmp_path, target, "baseline=majority")

    def score(predictor: Any, rows: pd.DataFrame, targets: Any) -> float:
        predicted = predictor(rows)
        if name == "accuracy":
            labels = np.array(predicted.class_names)[predicted.probabilities.argmax(1)]
            return float(accuracy_score(targets, labels))
        return float(average_precision_score(targets == "plus", predicted.probabilities[:, 1]))

    check_against_sklearn(result, frame, target, score)
    found = read_importances(result.run_dir)
    assert found is not None
    assert found.score == name


@pytest.mark.parametrize(
    ("target", "overrides", "first"),
    [
        ("tags", ['data.source.label_separator=";"', "baseline=majority"], {"strong", "a, weak one"}),
        ("[value,size]", [], {"strong"}),
    ],
)
def test_several_labels_and_several_targets(
    tmp_path: Path, target: str, overrides: Sequence[str], first: set[str]
) -> None:
    write_table(tmp_path)
    result = train(tmp_path, target, *overrides)
    found = read_importances(result.run_dir)
    assert found is not None
    order = sorted(found.columns, key=lambda name: -float(np.mean(found.columns[name])))
    assert set(order[: len(first)]) == first
    assert found.value > 0.6


def test_columns_of_a_source_without_an_encoder(tmp_path: Path) -> None:
    with chdir(tmp_path), unchanged_process():
        words = ["data=diabetes", "model=linear", "trainer.max_epochs=2", "device=cpu"]
        result = assay.train(
            [*words, "baseline=mean", f"hydra.run.dir={tmp_path}/run", "callbacks.progress_bar=null"]
        )
    found = read_importances(result.run_dir)
    assert found is not None
    assert {"bmi", "bp", "s5"} <= set(found.columns)


def test_pictures_have_none(tmp_path: Path) -> None:
    """Nor has a run without a baseline or predictions: tests/run/test_baseline.py."""
    with chdir(tmp_path), unchanged_process():
        short = ["trainer.max_epochs=1", "device=cpu", "callbacks.progress_bar=null", "baseline=majority"]
        result = assay.train(["data=synthetic", "model=linear", *short, f"hydra.run.dir={tmp_path}/run"])
    assert read_importances(result.run_dir) is None
    assert not [note for note in result.notes if "importances" in note]


def test_the_figure_has_the_most_important_first_and_says_what_it_left_out() -> None:
    columns = {f"column {number}": [number + 0.1, number - 0.1] for number in range(30)}
    figure = draw_importances(Importances("r2", 0.9, 2000, 5000, columns))
    assert figure is not None
    (bars,) = figure.marks
    assert bars.labels[0] == "column 29"  # type: ignore[union-attr]  # bars
    assert len(bars.labels) == 20  # type: ignore[union-attr]  # bars
    assert "2,000 of 5,000 test rows" in figure.caption
    assert "20 most important of 30 columns" in figure.caption
