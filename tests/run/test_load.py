"""assay.load gives back the model that was trained, behind what its data did to raw input."""

from __future__ import annotations

import io
import os
import shlex
import shutil
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from omegaconf import OmegaConf
from sklearn.datasets import load_digits, load_wine  # type: ignore[import-untyped]  # ships no types
from sklearn.linear_model import LinearRegression  # type: ignore[import-untyped]  # ships no types
from sklearn.metrics import r2_score  # type: ignore[import-untyped]  # ships no types
from typer.testing import CliRunner

import assay
from assay.cli.app import app
from assay.errors import AssayError, ConfigError, DataError
from assay.run.result import say_run
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay.run.predict.predictor import Predictor


def accuracy_by_hand(run: Trained, model: Predictor) -> float:
    """On the raw digits, with the rows of the run's split."""
    images, targets = load_digits(return_X_y=True)
    data: Any = run.datamodule
    rows = data.splits.rows["test"]
    inputs = torch.from_numpy(images[rows]).float().reshape(-1, 1, 8, 8)
    return float((model(inputs).indices == targets[rows]).mean())


def test_same_accuracy_as_on_record(digits_run: Trained, tmp_path: Path) -> None:
    with chdir(tmp_path):
        model = assay.load(digits_run.run_dir)
    assert not any(module.training for module in model.modules())
    assert {p.device.type for p in model.parameters()} == {
        "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    }
    accuracy = accuracy_by_hand(digits_run, model)
    assert accuracy == pytest.approx(digits_run.record["metrics"]["test/accuracy"], abs=1e-7)
    assert accuracy > 0.8


def test_relative_to_where_the_run_was_made(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=digits", "model=linear", "callbacks=[checkpoint]", "trainer.limit_train_batches=2"),
        "hydra.run.dir=outputs/mine",
        cwd=tmp_path,
    )
    assert os.fspath(run.run_dir) == "outputs/mine"
    moved = (tmp_path / "outputs" / "mine").rename(tmp_path / "elsewhere")
    model = assay.load(moved, map_location="cpu")
    assert all(torch.equal(value, run.weights[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("where", ["cpu", torch.device("cpu")])
def test_map_location(digits_run: Trained, where: str | torch.device) -> None:
    model = assay.load(digits_run.run_dir, map_location=where)
    assert {p.device for p in model.parameters()} == {torch.device("cpu")}


def test_best_or_last(digits_run: Trained) -> None:
    for role in ("best", "last"):
        model = assay.load(digits_run.run_dir, checkpoint=role, map_location="cpu")
        saved = digits_run.checkpoint(role)["state_dict"]
        assert list(model.state_dict()) == list(saved)
        assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_what_is_no_run_is_refused(train: Train, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="is not a run directory"):
        assay.load(tmp_path)
    run = train("data=digits", "model=linear", "trainer.limit_train_batches=1")
    with pytest.raises(AssayError, match="holds no checkpoint"):
        assay.load(run.run_dir)


def test_a_checkpoint_that_was_kept_and_is_gone_is_not_another_one(train: Train, tmp_path: Path) -> None:
    run = train("data=wine", "callbacks=[default]", f"hydra.run.dir={tmp_path / 'run'}")
    with pytest.raises(AssayError, match="checkpoint='bset': 'best' or 'last' was expected"):
        assay.load(run.run_dir, checkpoint="bset")  # type: ignore[call-overload]  # the point
    (run.run_dir / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(AssayError, match=r"best\.ckpt is not there, and the run kept it") as caught:
        assay.load(run.run_dir)
    assert caught.value.hint.endswith("checkpoint='last'")
    assert assay.load(run.run_dir, checkpoint="last")


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"a": 1}, "model"),
        ({"_target_": "torch.nn.Linear", "_partial_": True}, "model"),
        ([{"_target_": "torch.nn.Flatten"}], "model"),
        ("torch.nn.Flatten", "model"),
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


def test_arrays_that_cannot_be_written_are_taken_without_a_word(wine_run: Trained) -> None:
    rows = load_wine().data
    rows.flags.writeable = False
    assert assay.load(wine_run.run_dir, map_location="cpu")(rows).probabilities.shape == (178, 3)


# -- raw input -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wine_run(train: Train) -> Trained:
    return train("data=wine", "callbacks=[default]", "trainer.max_epochs=5", "optimizer.lr=0.01")


@pytest.fixture(scope="module")
def houses() -> pd.DataFrame:
    """Prices as houses have them, that depend on numbers, categories and yes or no."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": draw.gamma(9, 13, 600).round(1),
            "rooms": draw.integers(1, 9, 600),
            "district": draw.choice(["Nord", "Süd", "West"], 600),
            "garden": draw.random(600) > 0.5,
        }
    )
    district = frame["district"].map({"Nord": -20_000.0, "Süd": 60_000.0, "West": 0.0})
    exact = 90_000 + 2_100 * frame["size"] + 9_000 * frame["rooms"] + district + 25_000 * frame["garden"]
    frame["price"] = (exact + draw.normal(0, 9_000, 600)).round(2)
    frame.insert(0, "house_id", range(5000, 5600))
    return frame


@pytest.fixture(scope="module")
def house_run(train: Train, houses: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = tmp_path_factory.mktemp("houses") / "houses.csv"
    houses.assign(size=houses["size"].mask(houses.index % 50 == 7)).to_csv(path, index=False)
    return train(
        *("data=table", f"data.source.path='{path}'", "data.source.target=price", "loss=huber"),
        *("metrics=regression", "callbacks=[default]", "trainer.max_epochs=30", "optimizer.lr=0.003"),
        "data.source.missing=impute",
    )


def rows_of_the_test_part(run: Trained) -> Any:
    data: Any = run.datamodule
    return data.splits.rows["test"]


def test_raw_rows_of_wine_score_what_the_run_scored(wine_run: Trained) -> None:
    rows = rows_of_the_test_part(wine_run)
    inputs, targets = load_wine(return_X_y=True)
    model = assay.load(wine_run.run_dir, map_location="cpu")
    right = (model(inputs[rows]).indices == targets[rows]).mean()
    assert right == pytest.approx(wine_run.record["metrics"]["test/accuracy"], abs=1e-7)
    assert right > 0.9
    assert "input: float32 [B, 13]" in repr(model)


def test_raw_rows_of_a_table_give_prices(house_run: Trained, houses: pd.DataFrame) -> None:
    """The score is a linear regression's or better, in the target's own unit, from the file's own columns."""
    rows = rows_of_the_test_part(house_run)
    model = assay.load(house_run.run_dir, map_location="cpu")
    raw = houses.assign(size=houses["size"].mask(houses.index % 50 == 7)).iloc[rows]
    prices = model(raw[raw.columns[::-1]]).values[:, 0]
    metrics = house_run.record["metrics"]
    assert r2_score(raw["price"], prices) == pytest.approx(metrics["test/r2"], abs=1e-5)
    assert np.abs(prices - raw["price"]).mean() == pytest.approx(metrics["test/mae"], rel=1e-4)
    encoded = pd.get_dummies(raw.drop(columns=["price", "house_id"]).fillna(raw["size"].median()))
    linear = LinearRegression().fit(encoded, raw["price"]).score(encoded, raw["price"])
    assert metrics["test/r2"] > linear - 0.03
    records = raw.head(3).to_dict("records")
    np.testing.assert_array_equal(model(records).values, model(raw.head(3)).values)
    with pytest.warns(UserWarning, match="'district' is 'Mars', which no training row has"):
        assert np.isfinite(model(raw.assign(district="Mars")).values).all()
    with pytest.raises(DataError, match="no column 'rooms', which the model was trained on"):
        model(raw.drop(columns="rooms"))
    with pytest.raises(DataError, match=r"row 0 .*'rooms' is 'many', not a number"):
        model(raw.assign(rooms="many"))


def test_the_command_that_a_run_ends_with_is_right(house_run: Trained, houses: pd.DataFrame) -> None:
    screen = io.StringIO()
    say_run(Console(file=screen, width=1000), house_run.result)
    (command,) = (line for line in screen.getvalue().splitlines() if "assay predict" in line)
    rows = house_run.run_dir / "new.csv"
    houses.head(3).drop(columns="price").to_csv(rows, index=False)
    _, *words = shlex.split(command.replace("NEW_ROWS.csv", str(rows)))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:, :5], r"shape \(178, 5\)"),
        (lambda rows: rows.astype(np.uint8), "is torch.uint8 from 0 to 25"),
        (lambda rows: rows.astype(complex), "complex128 that cannot become a tensor"),
        (pd.DataFrame, "not trained on named columns"),
        (lambda rows: rows.astype(str), "cannot become a tensor"),
        (lambda _: "wine.csv", "not trained on files of pictures"),
    ],
)
def test_input_of_another_kind_is_refused(wine_run: Trained, change: Any, message: str) -> None:
    model = assay.load(wine_run.run_dir, map_location="cpu")
    with pytest.raises(DataError, match=message):
        model(change(load_wine().data))


def test_another_unit_is_noticed(wine_run: Trained) -> None:
    model = assay.load(wine_run.run_dir, map_location="cpu")
    with pytest.warns(UserWarning, match="standard deviations from the training data"):
        model(load_wine().data * 1000)


def test_pictures(train: Train) -> None:
    """Trained on bytes that the evaluation resizes: bytes and floats from 0 to 1 are the same picture."""
    run = train(
        *("data=synthetic", "data.source.num_samples=200", "data.source.input_shape=[3,12,12]"),
        *("data/transform=resize", "data.transform.size=[8,8]", "callbacks=[default]"),
    )
    model = assay.load(run.run_dir, map_location="cpu")
    data: Any = run.datamodule
    pictures = data.source.read()["all"].inputs[torch.as_tensor(rows_of_the_test_part(run))]
    targets = data.source.read()["all"].targets[torch.as_tensor(rows_of_the_test_part(run))]
    outputs = model(pictures)
    np.testing.assert_allclose(model(pictures / 255).scores, outputs.scores, atol=0.05, rtol=0.05)
    right = (outputs.indices == targets.numpy()).mean()
    assert float(right) == pytest.approx(run.record["metrics"]["test/accuracy"], abs=1e-7)
    with pytest.raises(DataError, match=r"float32 from .*; the model was trained on torch\.uint8"):
        model(pictures.float())
    with pytest.raises(DataError, match=r"trained on \[B, 3, 8, 8\]"):
        model(pictures.permute(0, 2, 3, 1))


def test_a_config_gets_the_model_alone(wine_run: Trained, train: Train, tmp_path: Path) -> None:
    """Fine-tuning: the data of the new run normalises by itself."""
    (tmp_path / "model").mkdir()
    node = f"# Another run's model.\n_target_: assay.load\nrun: '{wine_run.run_dir}'\n"
    (tmp_path / "model" / "trained.yaml").write_text(node, encoding="utf-8")
    again = train(
        *("data=wine", "model=trained", "trainer.limit_train_batches=1", "optimizer.lr=1e-9"),
        "callbacks=[default]",
        config_dir=tmp_path,
    )
    assert type(again.module.model).__name__ == "MLP"
    before, after = wine_run.record["metrics"], again.record["metrics"]
    assert after["test/accuracy"] == before["test/accuracy"]
    assert assay.load(wine_run.run_dir, raw_input=False).state_dict().keys() == {
        name.removeprefix("model.") for name in wine_run.checkpoint("best")["state_dict"]
    }


def test_a_changed_encoder_is_noticed(house_run: Trained) -> None:
    path = house_run.run_dir / "encoder.json"
    whole = path.read_text(encoding="utf-8")
    try:
        path.write_text(whole.replace("Nord", "Sued"), encoding="utf-8")
        with pytest.raises(AssayError, match=r"encoder\.json is damaged or was changed"):
            assay.load(house_run.run_dir)
    finally:
        path.write_text(whole, encoding="utf-8")
