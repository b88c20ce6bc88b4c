"""Targets of each task, several at once too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine  # type: ignore[import-untyped]  # no types
from sklearn.linear_model import LogisticRegression, Ridge  # type: ignore[import-untyped]
from sklearn.metrics import accuracy_score, r2_score  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import nn
from torchmetrics.functional.classification import multilabel_accuracy, multilabel_f1_score
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import DataError
from assay.model.autoencoder import Autoencoder
from assay.model.mlp import MLP
from assay.run.train import train
from assay.task.predictions import StoredPredictions
from assay.task.reconstruction import Reconstruction, SelfSupervised
from assay.task.segmentation import IGNORED
from assay.task.task_of import task_of
from assay_analysis import predictions_file

if TYPE_CHECKING:
    from pathlib import Path


MULTICLASS, BINARY, MULTILABEL, REGRESSION, MASKS = map(
    task_of, ("multiclass", "binary", "multilabel", "regression", "segmentation")
)


@pytest.mark.parametrize("name", ["clustering", "auto", ""])
def test_no_such_task(name: str) -> None:
    with pytest.raises(ValueError, match=f"task='{name}': expected one of multiclass, binary, multilabel"):
        task_of(name)


# -- classes -------------------------------------------------------------------------------------------------


def test_what_metrics_see_of_soft_targets() -> None:
    torch.manual_seed(0)
    labels = torch.from_numpy(load_wine().target)
    _, soft = v2.MixUp(num_classes=3)(torch.rand(len(labels), 1, 2, 2), labels)
    assert MULTICLASS.hard_targets(soft).tolist() == np.argmax(soft.numpy(), axis=1).tolist()
    chances = torch.tensor([0.9, 0.2, 0.5])
    for soft in (chances, chances[:, None], torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.4, 0.6]])):
        assert BINARY.hard_targets(soft).tolist() == [1, 0, 1]


def test_what_are_not_classes() -> None:
    with pytest.raises(DataError, match=r"type torch\.float32; a multiclass task has one class index"):
        MULTICLASS.check("all", MULTICLASS.as_targets(torch.tensor([0.0, 1.5])), ["a", "b"])
    with pytest.raises(DataError, match="from -1 to 3; indices of the 3 classes go from 0 to 2"):
        MULTICLASS.check("all", torch.tensor([-1, 3]), "abc")
    with pytest.raises(DataError, match="go up to 4,000,000,000, but there are only 3 samples") as caught:
        MULTICLASS.number_classes([torch.tensor([0, 4_000_000_000]), torch.tensor([1])])
    assert "data.source.task=regression" in caught.value.hint
    with pytest.raises(DataError, match="a binary task has 2 classes, this data has 3"):
        BINARY.check("all", torch.tensor([0, 1]), "abc")


@pytest.mark.parametrize(
    ("train", "test", "names", "message"),
    [
        ([0, 0], [0], "a", "a single class, a"),
        ([0, 0, 2], [1], "abcd", "the test or validation subset has classes that training lacks: b"),
        ([0, 0, 2], [2], "abcd", "no training sample of class: b, d"),
        ([0], [], "abcdefgh", "no training sample of class: b, c, d, e, f and 2 more"),
        (
            [0, 2, 5],
            [2],
            "012345",
            r"class: 1, 3, 4\n  → .*numpy\.unique\(targets, return_inverse=True\)\[1\]",
        ),
    ],
)
def test_nothing_to_learn(train: list[int], test: list[int], names: str, message: str) -> None:
    subsets = {"train": torch.tensor(train), "test": torch.tensor(test, dtype=torch.int64)}
    with pytest.raises(DataError, match=message) as caught:
        MULTICLASS.check_subsets(subsets, names)
    assert ("(data.source)" in caught.value.hint) == (names != "012345")


# -- labels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.float32])
def test_labels_of_any_type(dtype: torch.dtype) -> None:
    labels = np.random.default_rng(0).integers(0, 2, (100, 4))
    targets = MULTILABEL.as_targets(torch.from_numpy(labels).to(dtype))
    MULTILABEL.check("all", targets, "abcd")
    assert MULTILABEL.sizes(targets, "abcd")["class_counts"] == tuple(labels.sum(0).tolist())
    assert MULTILABEL.hard_targets(targets).tolist() == labels.tolist()
    with pytest.raises(DataError, match="from 0 to 2; multi-hot targets go from 0 to 1"):
        MULTILABEL.check("all", torch.tensor([[0, 2], [1, 0]]), "ab")


def test_a_label_is_on_where_torchmetrics_says_so() -> None:
    """Exactly at 0.5, too: in predictions, in what an export is compared by, in scores and in figures."""
    generator, half = np.random.default_rng(0), np.float32(0.5)
    around = [0, np.nextafter(half, np.float32(0)), half, np.nextafter(half, np.float32(1)), 1]
    outputs = generator.choice(np.array(around, np.float32), (40, 3))
    targets = generator.integers(0, 2, (40, 3)).astype(np.int8)
    names, keys = ("a", "b", "c"), tuple(map(str, range(40)))
    said, right = torch.from_numpy(outputs), torch.from_numpy(targets).int()
    predictions = StoredPredictions("multilabel", "probabilities", keys, outputs, targets, names)
    scores = {score.name: score.value for score in MULTILABEL.scores(predictions)}
    assert scores["accuracy"] == pytest.approx(float(multilabel_accuracy(said, right, 3)))
    assert scores["f1 (macro)"] == pytest.approx(float(multilabel_f1_score(said, right, 3)))
    on = [tuple(np.array(names)[row]) for row in outputs > 0.5]
    typed: Any = MULTILABEL.typed(outputs, "probabilities", names)
    assert typed.labels == on
    found = [MULTILABEL.predicted_label(predictions, at).partition(";")[0] for at in range(40)]
    assert found == [" + ".join(one) or "none" for one in on]
    np.testing.assert_array_equal(MULTILABEL.is_right(predictions), ((outputs > 0.5) == targets).all(1))


# -- numbers -------------------------------------------------------------------------------------------------


def test_a_target_that_never_varies() -> None:
    targets = torch.rand(9, 2)
    REGRESSION.check_subsets({"train": targets, "val": torch.zeros(9, 2)}, ())
    targets[:, 1] = 2.5
    with pytest.raises(DataError, match=r"the target number 1 is 2\.5 in all training samples"):
        REGRESSION.check_subsets({"train": targets}, ())


def test_the_most_wrong_of_targets_of_other_units_is_measured_in_deviations() -> None:
    targets = np.stack([np.linspace(1e5, 9e5, 9), np.linspace(1, 9, 9)], 1).astype(np.float32)
    outputs = targets.copy()
    outputs[2, 0] += 1e4  # a small part of a price
    outputs[5, 1] += 5  # days off
    keys = tuple(map(str, range(9)))
    predictions = StoredPredictions("regression", "values", keys, outputs, targets, ("price", "days"))
    errors = REGRESSION.error_scores(predictions)
    assert errors.argmax() == 5
    assert errors[5] == pytest.approx(5 / targets[:, 1].std())
    assert REGRESSION.predicted_label(predictions, 5) == "price 600,000 (is 600,000); days 11 (is 6)"
    one = StoredPredictions("regression", "values", keys, outputs[:, :1], targets[:, :1], ("price",))
    assert REGRESSION.error_scores(one)[2] == pytest.approx(1e4), "of one target in its own unit"


# -- masks ---------------------------------------------------------------------------------------------------


def masks() -> torch.Tensor:
    drawn = torch.randint(4, (5, 6, 7), generator=torch.Generator().manual_seed(0))
    drawn[:, 0] = IGNORED
    return drawn


def test_what_is_not_a_mask_is_refused() -> None:
    with pytest.raises(DataError, match="has the value 4; classes go from 0 to 3, and 255 is ignored"):
        MASKS.check("val", masks().clamp(max=4), "abcd")
    with pytest.raises(DataError, match="single class, a"):
        MASKS.check_subsets({"train": torch.zeros(3, 4, 4, dtype=torch.uint8)}, "abcd")
    with pytest.raises(DataError, match="classes that training lacks: d"):
        MASKS.check_subsets({"train": masks() % 3, "val": masks()}, "abcd")


# -- no targets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reconstruction", "self_supervised"])
def test_classes_stay_as_labels_and_anything_else_is_left_out(name: str) -> None:
    task = task_of(name)
    assert task.as_targets(torch.tensor([[2], [0]], dtype=torch.uint8)).tolist() == [2, 0]
    for values in (torch.rand(3), torch.rand(3, 2), torch.zeros(3, 4).long(), torch.zeros(3, 0).long()):
        assert task.as_targets(values).shape == (3, 0)
    assert task.sizes(torch.tensor([0, 1]), ("a", "b")) == {"num_classes": 2}
    assert task.sizes(torch.zeros(2, 0), ()) == {"num_classes": 0}
    with pytest.raises(DataError, match="from 0 to 5"):
        task.check("train", torch.tensor([0, 5]), ("a", "b"))


def test_features_are_judged_by_labels_where_there_are_some() -> None:
    task, keys = SelfSupervised(), ("a", "b", "c", "d")
    points = np.array([[0.0, 0], [0, 1], [9, 9], [9, 8]], np.float32)
    labelled = StoredPredictions("self_supervised", "embeddings", keys, points, np.array([0, 0, 1, 0]), ())
    (score,) = task.scores(labelled)
    assert (score.name, score.value) == ("recall@1", 0.5)
    np.testing.assert_array_equal(task.is_right(labelled), [True, True, False, False])
    without = StoredPredictions("self_supervised", "embeddings", keys, points, None, ())
    assert task.scores(without) == []
    assert [one.name for one in task.figures(without)] == ["embeddings"]
    assert task.predicted_label(without, 0) == ""
    assert np.isnan(task.error_scores(without)).all()


TASK = Reconstruction()


def test_error_and_latent_vector() -> None:
    model, inputs = Autoencoder([4], 2, hidden=[3]), torch.randn(5, 4)
    outputs = model(inputs).detach()
    found = TASK.described(model, inputs, outputs).detach()
    error = ((outputs.numpy() - inputs.numpy()) ** 2).mean(1)
    np.testing.assert_allclose(found[:, 0].numpy(), error, rtol=1e-6)
    torch.testing.assert_close(found[:, 1:], model.encode(inputs).detach())
    assert TASK.described(nn.Identity(), inputs, inputs).tolist() == [[0.0]] * 5


def test_a_model_without_a_latent_vector() -> None:
    assert TASK.model_problem(MLP([4], 4)) is not None
    assert TASK.model_problem(Autoencoder([4], 2)) is None
    assert TASK.model_problem(nn.Linear(4, 4)) is None, "who names torch's own knows what they do"


def test_mixed_targets_choose_their_task_and_beat_scikit_learn(tmp_path: Path) -> None:
    """The named baselines: logistic and ridge regression, one for each target, on the same rows."""
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(grower=wine.target.map({0: "Abel", 1: "Berta", 2: "Carl"}))
    frame.to_csv(path := tmp_path / "wines of three.csv", index=False)
    run = train(
        [
            *("data=table", f"data.source.path='{path}'", "data.source.target=[grower,alcohol]", "model=mlp"),
            *("optimizer.lr=0.01", "data.batch_size=16", "trainer.max_epochs=8", "device=cpu", "seed=1"),
            f"hydra.run.dir={tmp_path / 'run'}",
        ]
    )
    kept = predictions_file.read(run.run_dir / predictions_file.FILE)
    names = ("grower=Abel", "grower=Berta", "grower=Carl", "alcohol")
    assert (kept.task, kept.class_names) == ("multitask", names)
    rows = [int(key) for key in kept.keys]
    others, right, fit = frame.drop(columns=["grower", "alcohol"]), frame.iloc[rows], frame.drop(index=rows)
    grower = make_pipeline(StandardScaler(), LogisticRegression()).fit(others.loc[fit.index], fit["grower"])
    alcohol = make_pipeline(StandardScaler(), Ridge()).fit(others.loc[fit.index], fit["alcohol"])
    accuracy = accuracy_score(right["grower"], grower.predict(others.iloc[rows]))
    assert run.metrics["test/grower/accuracy"] >= accuracy - 1e-6
    assert run.metrics["test/alcohol/r2"] > r2_score(right["alcohol"], alcohol.predict(others.iloc[rows]))
    assert np.allclose(right["alcohol"], kept.targets[:, 1])  # type: ignore[index]  # they are there


def test_a_column_whose_name_would_be_taken_for_a_class(tmp_path: Path) -> None:
    from assay.data.table.table import Table

    frame: Any = pd.DataFrame({"a=b": ["u", "v"] * 20, "y": np.linspace(0.1, 1, 40), "x": np.arange(40) / 7})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="'a=b' holds '='"):
        Table(str(tmp_path / "t.csv"), ["a=b", "y"]).read()
