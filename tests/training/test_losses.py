"""Every loss with every kind of data: trained where it suits, refused by name where not; and prices."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LinearRegression  # type: ignore[import-untyped]  # ships no types
from tests.suited_losses import SUITED_LOSSES

import assay
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay_explain.listing import list_options
from assay_prove.prove import Prover
from assay_report.page import Cards
from assay_report.run_page import run_page

if TYPE_CHECKING:
    from tests.conftest import Train, Trained


PROJECT = Path(__file__).parent / "project"


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Multilabel arrays whose labels are signs of linear functions of the inputs."""
    path = tmp_path_factory.mktemp("labels") / "labels.npz"
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((240, 12)).astype(np.float32)
    targets = (inputs @ draw.standard_normal((12, 4)) > 0.5).astype(np.int64)
    np.savez(path, inputs=inputs, targets=targets)
    return path


@pytest.fixture(scope="module")
def data(labels: Path) -> dict[str, list[str]]:
    return {
        "multiclass": ["data=iris"],
        "binary": ["data=breast_cancer"],
        "multilabel": ["data=arrays", f"data.source.root={labels}", "data.batch_size=32"],
        "regression": ["data=diabetes"],
    }


def test_every_option_is_trained() -> None:
    # tests/loss, tests/task
    elsewhere = {"dice", "dice_cross_entropy", "dice_nnunet", "multitask", "nt_xent"}
    assert {option.name for option in list_options("loss")} - elsewhere == set().union(
        *SUITED_LOSSES.values()
    )
    assert {option.name for option in list_options("metrics")} == {
        *(m for suits in SUITED_LOSSES.values() for m in suits.values()),
        *("language_modelling", "multitask", "segmentation"),
        # Of tasks without targets: test_from_inputs.py
        *("reconstruction", "image_reconstruction", "none"),
    }


@pytest.mark.always(
    "multiclass-focal", "multilabel-bce_with_logits", "regression-huber", "multiclass-triplet"
)
@pytest.mark.parametrize(
    ("task", "loss"), [(task, loss) for task, suited in SUITED_LOSSES.items() for loss in suited]
)
def test_task_and_loss(train: Train, data: dict[str, list[str]], task: str, loss: str) -> None:
    """The other pairs are refused: `tests/assemble/test_model.py`."""
    model = {"triplet": "mlp"}.get(loss, "mlp" if task == "regression" else "linear")
    lr = 0.003 if loss == "ldam" else 0.03  # ldam scales the logits by 30
    overrides = [*data[task], f"loss={loss}", f"model={model}", "scheduler=none", f"optimizer.lr={lr}"]
    metrics = SUITED_LOSSES[task][loss]
    epochs, keeps = "trainer.max_epochs=3", "callbacks=[last_checkpoint]"
    run = train(*overrides, f"metrics={metrics}", epochs, keeps, config_dir=PROJECT / "conf")
    assert run.moved()
    check_loaded(run)
    losses = run.column("train/loss")
    assert losses[-1] < 0.97 * losses[0], losses
    named = set(run.config.metrics.eval.metrics) - {"confusion_matrix"}
    assert {name for name in run.result.metrics if name.startswith("test/")} == {
        f"test/{n}" for n in {"loss", *named}
    }
    assert all(math.isfinite(value) for value in run.result.metrics.values())
    if "confusion_matrix" in run.config.metrics.eval.metrics:
        matrix = np.array(run.record["matrices"]["test/confusion_matrix"])
        labels = run.config.spec.num_classes if task == "multilabel" else 1
        assert matrix.sum() == run.config.spec.num_test * labels


def check_loaded(run: Trained) -> None:
    """A predictor has the run's loss, whatever that has learnt, and makes of outputs what the run made."""
    with torch.no_grad():
        for value in run.module.loss.state_dict().values():
            value.add_(0.25)
    kept = torch.load(path := run.run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    kept["state_dict"] = run.module.state_dict()
    torch.save(kept, path)
    path.with_name("last.ckpt.sha256").unlink()
    predictor = assay.load(run.run_dir, checkpoint="last", map_location="cpu")
    [(inputs, targets), *_] = run.datamodule.test_dataloader()
    module = run.module.eval()
    with torch.no_grad():
        expected = module.test_step((inputs, targets), 0)["predictions"]
        found = predictor.postprocess(predictor.model(inputs))
    found = found[:, 1] if expected.ndim < found.ndim else found
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_balanced_weights_of_the_data_reach_the_loss(train: Train) -> None:
    run = train("data=breast_cancer", "loss.pos_weight=balanced", "trainer.limit_train_batches=1")
    negatives, positives = run.config.spec.class_counts
    weight = run.module.loss.pos_weight
    assert float(weight) == pytest.approx(negatives / positives)


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory) -> str:
    """1,000 houses: prices around 300,000, and a yearly yield around 0.04."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": draw.gamma(9, 13, 1000).round(1),
            "rooms": draw.integers(1, 9, 1000),
            "year": draw.integers(1900, 2024, 1000),
            "garden": draw.random(1000) > 0.5,
        }
    )
    value = 2_100 * frame["size"] + 9_000 * frame["rooms"] + 600 * (frame["year"] - 1960)
    frame["price"] = value + 25_000 * frame["garden"] + 50_000.5 + draw.normal(0, 9_000, 1000).round()
    frame["rent"] = (0.04 + 0.01 * (frame["size"] - 117) / 39 + draw.normal(0, 0.002, 1000)).round(6)
    path = tmp_path_factory.mktemp("houses") / "houses.csv"
    frame.to_csv(path, index=False)
    return str(path)


def data_of(path: str, target: str) -> list[str]:
    return ["data=table", f"data.source.path='{path}'", f"data.source.target={target}", "callbacks=[default]"]


def linear_r2(path: str, target: str, train: Any) -> float:
    """Of a linear regression on the run's own split."""
    rows, frame = train.datamodule.splits.rows, pd.read_csv(path)
    inputs, prices = frame.drop(columns=["price", "rent"]), frame[target]
    fitted = LinearRegression().fit(inputs.iloc[rows["train"]], prices[rows["train"]])
    return float(fitted.score(inputs.iloc[rows["test"]], prices[rows["test"]]))


@pytest.mark.always("huber")
@pytest.mark.parametrize("loss", ["huber", "mse", "l1"])
def test_prices_with_default_settings(train: Train, houses: str, loss: str) -> None:
    """It ended at R² -7 when the loss saw the prices themselves."""
    run = train(
        *data_of(houses, "price"), f"loss={loss}", "metrics=regression", "trainer.max_epochs=10",
        "data.source.exclude=[rent]",
    )  # fmt: skip
    metrics = run.record["metrics"]
    assert metrics["test/r2"] > linear_r2(houses, "price", run) - 0.02
    assert 5_000 < metrics["test/mae"] < 12_000  # in the price's unit
    assert metrics["test/loss"] < 0.2  # in deviations
    prices = pd.read_csv(houses)["price"][run.datamodule.splits.rows["train"]]
    assert run.config.spec.target_mean[0] == pytest.approx(prices.mean(), rel=1e-6)
    assert run.config.spec.target_std[0] == pytest.approx(prices.std(ddof=0), rel=1e-6)


@pytest.mark.long
def test_targets_of_very_different_units(train: Train, houses: str) -> None:
    """Without scaling, the price alone would rule the loss."""
    run = train(
        *data_of(houses, "[price,rent]"), "loss=mse", "metrics=regression", "trainer.max_epochs=30"
    )  # fmt: skip
    data: Any = run.datamodule
    frame = pd.read_csv(houses).iloc[data.splits.rows["test"]]
    found = assay.load(run.run_dir, map_location="cpu")(frame).values
    for column, target in enumerate(("price", "rent")):
        error = ((found[:, column] - frame[target]) ** 2).mean() / frame[target].var(ddof=0)
        assert 1 - error > linear_r2(houses, target, run) - 0.06, target
        mae = np.abs(found[:, column] - frame[target]).mean()
        assert run.record["metrics"][f"test/{target}/mae"] == pytest.approx(mae, rel=1e-4)
    assert {name for name in run.record["metrics"] if name.startswith("test/")} == {
        *(f"test/{target}/{name}" for target in ("price", "rent") for name in ("mae", "mse", "rmse")),
        *("test/loss", "test/r2"),
    }, "no mean over targets of different units"
    page = run_page(run.run_dir)
    labels = {figure.x_label for figure in page.figures} | {figure.y_label for figure in page.figures}
    assert {"true price", "predicted rent", "price/mae"} <= labels
    cards = next(block for section in page.sections for block in section.blocks if isinstance(block, Cards))
    assert {"r2 (mean)", "mae of price", "rmse of rent"} <= {name for name, _, _ in cards.cards}


# -- the check -----------------------------------------------------------------------------------------------


def proved(*overrides: str) -> Any:
    config = job_config(compose([*overrides, "device=cpu"]))
    return Prover().prove(config, overrides).report


def test_a_loss_that_needs_the_targets_own_unit_is_refused() -> None:
    told = ["data=diabetes", "loss=mse", "loss._target_=torch.nn.PoissonNLLLoss"]
    with pytest.raises(ConfigError, match="PoissonNLLLoss compares with the targets themselves") as caught:
        proved(*told)
    assert "data.standardize_targets=false" in str(caught.value)
    proved(*told, "data.standardize_targets=false")


def test_a_loss_of_classes_is_not_taken_for_numbers() -> None:
    """Of one output its soft form is 0, whatever the model does."""
    with pytest.raises(
        ConfigError, match="CrossEntropyLoss compares classes, but the data has 1 real-valued"
    ):
        proved("data=diabetes", "loss._target_=torch.nn.CrossEntropyLoss")
