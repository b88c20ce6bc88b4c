"""What `assay.load` gives back says of raw input what the run's own test said of the same samples."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image
from sklearn.datasets import load_breast_cancer  # type: ignore[import-untyped]  # ships no types
from tests.run.predict.conftest import SHORT, rows_of_test, said_in_test, two_columns

import assay
from assay.data.preprocess import Preprocess, to_training_dtype
from assay.errors import AssayError, ConfigError, DataError
from assay.task.predictions import ClassPredictions
from assay_serve.predict import predict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay.run.predictor import Predictor


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


def test_a_value_that_stands_for_a_missing_one(train: Train, table: Path, tmp_path: Path) -> None:
    gaps = pd.read_parquet(table / "rows.parquet")
    marked = gaps.assign(size=gaps["size"].fillna(-999.0), district=gaps["district"].fillna("n/k"))
    runs = []
    for name, frame, more in (("gaps", gaps, []), ("marked", marked, ["data.source.na_values=[-999,n/k]"])):
        path = tmp_path / f"{name}.csv"
        frame.to_csv(path, index=False)
        words = ("data=table", f"data.source.path={path}", "data.source.target=kind", *more)
        runs.append(train(*words, "data.source.exclude=[price]", *SHORT))
    expected = loaded(runs[0])(gaps).probabilities
    predictor = loaded(runs[1])
    for rows in (marked, marked.to_dict("records")):
        np.testing.assert_array_equal(predictor(rows).probabilities, expected)
    found = pd.DataFrame(predict(predictor, runs[1].run_dir, [path]).rows)
    np.testing.assert_array_equal(found.filter(like="probability ").to_numpy(np.float32), expected)
    assert not found[["warning", "error"]].any(axis=None)


def test_rows_of_a_table(kind_run: Trained, table: Path) -> None:
    predictor, rows, expected = loaded(kind_run), rows_of_test(kind_run), said_in_test(kind_run)
    frame = pd.read_csv(table / "rows.csv").iloc[rows]
    shuffled = frame[frame.columns[::-1]].drop(columns=["kind", "price", "customer_id"])
    for raw in (shuffled, shuffled.to_dict("records")):
        np.testing.assert_allclose(predictor(raw).probabilities, expected, atol=1e-6)
    for one in (frame.iloc[3], frame.iloc[3].to_dict()):
        np.testing.assert_allclose(predictor(one).probabilities, expected[3], atol=1e-6)
    with pytest.warns(UserWarning, match="'district' is 'Mars', which no training row has"):
        predictor(frame.assign(district="Mars"))
    with pytest.raises(DataError, match="no column 'rooms', which the model was trained on"):
        predictor(frame.drop(columns="rooms"))
    with pytest.raises(DataError, match="did you mean 'Rooms'") as caught:
        predictor(frame.rename(columns={"rooms": "Rooms"}))
    assert "Rooms" in caught.value.hint
    with pytest.raises(DataError) as caught:
        predictor("rows.csv")
    assert "pandas.read_csv" in caught.value.hint
    with pytest.raises(DataError, match=r"row 0 .*'rooms' is 'many', not a number"):
        predictor(frame.assign(rooms="many"))


def test_labels_of_arrays_with_channels_last(label_run: Trained, arrays: Path) -> None:
    predictor, rows, expected = loaded(label_run), rows_of_test(label_run), said_in_test(label_run)
    pixels = np.load(arrays / "inputs.npy")
    found = predictor(pixels[rows])
    np.testing.assert_allclose(found.probabilities, expected, atol=1e-6)
    names = np.array(["odd", "large", "threes"])
    assert predictor(pixels[rows[0]]).labels == tuple(names[expected[0] > 0.5])
    np.testing.assert_allclose(
        predictor([pixels[rows[1]], pixels[rows[2]]]).probabilities, expected[1:3], atol=1e-6
    )
    picture = predictor(Image.fromarray(pixels[rows[0]]))
    np.testing.assert_allclose(picture.probabilities, expected[0], atol=1e-6)
    with pytest.raises(DataError, match="the input has shape"):
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


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("nowhere.png", "No such file"),
        (np.zeros((3, 5, 5), np.uint8), r"shape \(1, 3, 5, 5\); the model was trained on \[B, 3, 12, 10\]"),
        (np.zeros((1, 12, 10, 3), np.uint8), "shape"),
        (pd.DataFrame({"a": [1]}), "not trained on named columns"),
        (object(), "cannot become a tensor"),
        ([[1], [2, 3]], "cannot become an array"),
        ([], "shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_something_else_is_refused(photo_run: Trained, raw: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        loaded(photo_run)(raw)


BYTES = {"input_shape": [3, 4, 5], "input_dtype": "uint8", "mean": [0.5] * 3, "std": [0.25] * 3}


def test_the_same_numbers_in_every_type_that_keeps_them() -> None:
    preprocess = Preprocess(BYTES)
    pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    expected = torch.from_numpy(((pixels / 255 - 0.5) / 0.25).astype(np.float32))
    for same in (pixels, pixels.astype(np.int64), pixels.astype(">u2"), pixels / 255, torch.tensor(pixels)):
        torch.testing.assert_close(preprocess(same), expected)
    torch.testing.assert_close(preprocess(list(pixels)), expected)
    torch.testing.assert_close(preprocess(pixels[0]), expected[:1])
    assert preprocess.samples(pixels[0])[1]
    assert not preprocess.samples(pixels[:1])[1]


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        (torch.tensor([1, 2], dtype=torch.int64), "float32", torch.float32),
        (torch.tensor([1, 2], dtype=torch.uint8), "float32", None),
        (torch.tensor([0.0, 1.0]), "uint8", torch.float32),
        (torch.tensor([0.0, 255.0]), "uint8", None),
        (torch.tensor([0, 256]), "uint8", None),
        (torch.tensor([-1]), "uint8", None),
        (torch.tensor([0, 2]), "bool", None),
        (torch.tensor([3.5]), "int64", None),
    ],
)
def test_a_type_changes_where_no_value_means_something_else(
    given: torch.Tensor, name: str, expected: torch.dtype | None
) -> None:
    if expected is None:
        with pytest.raises(DataError, match=f"the model was trained on torch.{name}"):
            to_training_dtype(given, name)
        return
    found = to_training_dtype(given, name)
    assert found.dtype == expected
    assert found.tolist() == given.tolist()


def test_a_checkpoint_that_was_kept_and_is_gone_is_not_another_one(wine_run: Trained, tmp_path: Path) -> None:
    run_dir = shutil.copytree(wine_run.run_dir, tmp_path / "run")
    with pytest.raises(AssayError, match=r"there is no checkpoint .*bset"):
        assay.load(run_dir, checkpoint="bset")  # type: ignore[call-overload]  # the point
    (run_dir / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(AssayError, match=r"there is no checkpoint .*best\.ckpt") as caught:
        assay.load(run_dir)
    assert "--checkpoint last" in caught.value.hint
    assert assay.load(run_dir, checkpoint="last")


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"a": 1}, "model"),
        ({"_target_": "torch.nn.Linear", "_partial_": True}, "model"),
        (None, "model"),
        ({"_target_": "torch.nn.Linear", "_args_": "ab"}, "model._args_"),
    ],
    ids=str,
)
def test_a_config_of_somebody_elses_that_describes_no_model(
    wine_run: Trained, tmp_path: Path, model: Any, key: str
) -> None:
    shutil.copytree(wine_run.run_dir, tmp_path / "run")
    config = OmegaConf.load(wine_run.run_dir / "config.yaml")
    config.model = model
    OmegaConf.save(config, tmp_path / "run" / "config.yaml")
    with pytest.raises(ConfigError, match=r"config\.yaml") as caught:
        assay.load(tmp_path / "run")
    assert caught.value.key == key


@pytest.fixture(scope="module")
def wine_run(train: Train) -> Trained:
    return train("data=wine", "callbacks=[default]", "trainer.max_epochs=5", "optimizer.lr=0.01")


def test_a_config_gets_the_model_alone(wine_run: Trained, train: Train, tmp_path: Path) -> None:
    """Fine-tuning: the data of the new run normalises by itself."""
    (tmp_path / "model").mkdir()
    node = f"# Another run's model.\n_target_: assay.load\nrun: '{wine_run.run_dir}'\n"
    (tmp_path / "model" / "trained.yaml").write_text(node, encoding="utf-8")
    short = ("trainer.limit_train_batches=1", "optimizer.lr=1e-9", "callbacks=[default]")
    again = train("data=wine", "model=trained", *short, config_dir=tmp_path)
    assert again.record["metrics"]["test/accuracy"] == wine_run.record["metrics"]["test/accuracy"]
