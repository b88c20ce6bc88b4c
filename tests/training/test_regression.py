"""A regression learns in the target's own unit, whatever that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression  # type: ignore[import-untyped]  # ships no types

import assay
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.report.page import Cards
from assay.report.run_page import run_page

if TYPE_CHECKING:
    from tests.conftest import Train


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
        *data_of(houses, "price"), f"loss={loss}", "metrics=regression", "trainer.max_epochs=30",
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
