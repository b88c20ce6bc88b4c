"""A predictor says of raw input what the run's own test said of the same samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_breast_cancer, load_digits  # type: ignore[import-untyped]  # ships no types
from tests.run.predict.conftest import rows_of_test, said_in_test, two_columns

import assay
from assay.errors import DataError
from assay.task.prediction.prediction_batch import (
    ClassPredictions,
    EmbeddingPredictions,
    LabelPredictions,
    ValuePredictions,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained

    from assay.run.predict.predictor import Predictor


def loaded(run: Trained) -> Predictor:
    return assay.load(run.run_dir, map_location="cpu")


def files_of_test(run: Trained, root: Path) -> list[str]:
    files = run.datamodule.source._list_subset("all", root)
    return [files[row].path for row in rows_of_test(run)]


@pytest.mark.parametrize("name", ["photo_run", "cropped_run"])
def test_files_of_pictures(name: str, photos: Path, request: pytest.FixtureRequest) -> None:
    """Grey, transparent, with a palette, of 16 bits, turned, of several sizes: as the run has read them."""
    run: Trained = request.getfixturevalue(name)
    predictor, files = loaded(run), files_of_test(run, photos)
    expected = two_columns(said_in_test(run))
    assert len(files) == 10
    found = predictor(files)
    assert isinstance(found, ClassPredictions)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    assert found.labels == [("<b>cat", "dög")[index] for index in expected.argmax(1)]
    for file, row in zip(files, expected, strict=True):
        with Image.open(file) as picture:
            before = picture.size, picture.getexif().get(0x0112)
            one = predictor(picture)
            assert before == (picture.size, picture.getexif().get(0x0112)), "the user's stays as it is"
        assert isinstance(one, ClassPredictions)
        np.testing.assert_allclose(one.probabilities, row, atol=1e-6)
        np.testing.assert_allclose(predictor(file).probabilities, row, atol=1e-6)
    whole = predictor(photos)
    assert len(whole) == 48


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_rows_of_a_table(kind_run: Trained, table: Path, form: str) -> None:
    predictor, rows, expected = loaded(kind_run), rows_of_test(kind_run), said_in_test(kind_run)
    frame = pd.read_csv(table / "rows.csv") if form == "csv" else pd.read_parquet(table / "rows.parquet")
    found = predictor(table / f"rows.{form}")
    np.testing.assert_allclose(found.probabilities[rows], expected, atol=1e-6)
    shuffled = frame.iloc[rows][frame.columns[::-1]].drop(columns=["kind", "price", "customer_id"])
    np.testing.assert_allclose(predictor(shuffled).probabilities, expected, atol=1e-6)
    one = predictor(frame.iloc[rows[3]])
    assert isinstance(one, ClassPredictions)
    np.testing.assert_allclose(one.probabilities, expected[3], atol=1e-6)
    again = predictor(frame.iloc[rows[3]].to_dict())
    assert (again.label, again.top_k(1)[0][0]) == (one.label, one.label)
    with pytest.raises(DataError, match="no column 'rooms', which the model was trained on"):
        predictor(frame.drop(columns="rooms"))


def test_values_in_their_own_unit(price_run: Trained, table: Path) -> None:
    predictor, rows, expected = loaded(price_run), rows_of_test(price_run), said_in_test(price_run)
    found = predictor(pd.read_parquet(table / "rows.parquet").iloc[rows])
    assert isinstance(found, ValuePredictions)
    np.testing.assert_allclose(found.values, expected, rtol=1e-6)
    assert found.names == ("price", "rooms")
    assert expected[:, 0].mean() > 100_000
    one = found[0]
    assert isinstance(one, ValuePredictions)
    assert str(one) == f"price {expected[0, 0]:,.0f}, rooms {expected[0, 1]:.6g}"
    with pytest.raises(ValueError, match="size 1"):
        one.value  # noqa: B018 - the point
    assert list(found.to_frame().columns) == ["prediction_price", "prediction_rooms"]


def test_labels_of_arrays_with_channels_last(label_run: Trained, arrays: Path) -> None:
    predictor, rows, expected = loaded(label_run), rows_of_test(label_run), said_in_test(label_run)
    pixels = np.load(arrays / "inputs.npy")
    found = predictor(pixels[rows])
    assert isinstance(found, LabelPredictions)
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    np.testing.assert_allclose(predictor(arrays / "inputs.npy").probabilities[rows], expected, atol=1e-6)
    one = predictor(pixels[rows[0]])
    assert isinstance(one, LabelPredictions)
    names = np.array(["odd", "large", "threes"])
    assert one.labels == tuple(names[expected[0] > 0.5])
    np.testing.assert_allclose(
        predictor([pixels[rows[1]], pixels[rows[2]]]).probabilities, expected[1:3], atol=1e-6
    )
    picture = predictor(Image.fromarray(pixels[rows[0]]))
    np.testing.assert_allclose(picture.probabilities, expected[0], atol=1e-6)
    with pytest.raises(DataError, match="has 9×8 pixels; the model was trained on pictures of 8×8"):
        predictor(Image.new("RGB", (8, 9)))


def test_one_logit_is_two_probabilities(yes_no_run: Trained) -> None:
    predictor, rows, expected = loaded(yes_no_run), rows_of_test(yes_no_run), said_in_test(yes_no_run)
    inputs = load_breast_cancer().data
    found = predictor(inputs[rows])
    np.testing.assert_allclose(found.probabilities[:, 1], expected, atol=1e-6)
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-6)
    threshold = predictor.threshold
    assert found.labels == [("malignant", "benign")[int(share >= threshold)] for share in expected]
    assert predictor(inputs[rows[0]].tolist()).label == found[0].label == found.labels[0]


def test_embeddings(embedding_run: Trained) -> None:
    predictor, rows, expected = (
        loaded(embedding_run), rows_of_test(embedding_run), said_in_test(embedding_run),
    )  # fmt: skip
    images = torch.from_numpy(load_digits().images).float()[:, None]
    found = predictor(images[torch.as_tensor(rows)])
    assert isinstance(found, EmbeddingPredictions)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    one = predictor(images[0])
    assert isinstance(one, EmbeddingPredictions)
    assert one.vector.shape == (4,)
    with pytest.raises(DataError, match="not trained on files of pictures"):
        predictor(Image.new("L", (8, 8)))


def test_the_three_steps_are_the_whole(photo_run: Trained, photos: Path) -> None:
    predictor, files = loaded(photo_run), files_of_test(photo_run, photos)
    assert predictor.preprocess is not None
    with torch.no_grad():
        outputs = predictor.postprocess(predictor.model(predictor.preprocess(files)))
    np.testing.assert_allclose(outputs.numpy(), predictor(files).probabilities, atol=1e-7)
    predictor.batch_size = 3
    np.testing.assert_allclose(outputs.numpy(), predictor(files).probabilities, atol=1e-6)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("nowhere.png", "No such file"),
        (np.zeros((3, 5, 5), np.uint8), r"shape \(1, 3, 5, 5\); the model was trained on \[B, 3, 12, 10\]"),
        (pd.DataFrame({"a": [1]}), "not trained on named columns"),
        (object(), "cannot become a tensor"),
        ([], "shape"),
    ],
    ids=("a missing file", "a shape", "a frame", "an object", "nothing"),
)
def test_what_is_something_else_is_refused(photo_run: Trained, raw: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        loaded(photo_run)(raw)


def test_what_is_not_finite_is_not_a_class(yes_no_run: Trained) -> None:
    inputs = load_breast_cancer().data[:4].copy()
    inputs[2, 5] = np.nan
    with pytest.raises(DataError, match="output for sample 2 is not finite"):
        loaded(yes_no_run)(inputs)
