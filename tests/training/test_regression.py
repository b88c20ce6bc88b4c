"""A regression learns in the target's own unit, whatever that is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_diabetes  # type: ignore[import-untyped]  # scikit-learn ships no types
from sklearn.linear_model import LinearRegression  # type: ignore[import-untyped]  # ships no types
from torch import nn
from torchmetrics import MetricCollection

import assay
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.data.normalize import TargetScale
from assay.errors import ConfigError
from assay.module import Module
from assay.report.page import Cards
from assay.report.run_page import run_page
from assay.run.resume import resume
from assay.task.task_of import task_of

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


@pytest.mark.always("bf16_true")
@pytest.mark.parametrize("precision", ["bf16_true", "fp64"])
def test_other_precisions_keep_the_unit(train: Train, houses: str, precision: str) -> None:
    run = train(
        *data_of(houses, "price"), f"precision={precision}", "loss=huber", "metrics=regression",
        "trainer.max_epochs=15", "optimizer.lr=0.003", "data.source.exclude=[rent]",
    )  # fmt: skip
    assert run.record["metrics"]["test/r2"] > 0.9


def test_the_loss_sees_standardised_targets_and_the_metrics_do_not() -> None:
    class Spy(nn.Module):
        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.seen = outputs, targets
            return ((outputs - targets) ** 2).mean()

    model, loss = nn.Linear(2, 1), Spy()
    metrics = {"train": MetricCollection({}), "eval": MetricCollection({})}
    module = Module(
        model=model, task=task_of("regression"), loss=loss, optimizer=torch.optim.SGD, metrics=metrics,
        target_scale=TargetScale([3e5], [1e5]),
    )  # fmt: skip
    inputs, targets = torch.randn(4, 2), torch.tensor([[1e5], [2e5], [3e5], [4e5]])
    module.training_step((inputs, targets), 0)
    assert loss.seen[1].flatten().tolist() == [-2, -1, 0, 1]
    observed = module._step.observed
    assert observed is not None
    torch.testing.assert_close(module.scored(observed), 3e5 + 1e5 * model(inputs).detach())
    assert torch.equal(observed[2], targets)


@pytest.fixture(scope="module")
def diabetes() -> list[str]:
    return ["data=diabetes", "callbacks=[default]", "device=cpu", "optimizer.lr=0.003"]


def test_a_resumed_regression_is_the_same_to_the_bit(train: Train, diabetes: list[str]) -> None:
    whole = train(*diabetes, "trainer.max_epochs=4", "scheduler=none")
    part = train(*diabetes, "trainer.max_epochs=2", "scheduler=none")
    resume(part.run_dir, ["trainer.max_epochs=4"])
    saved = torch.load(part.run_dir / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    last = whole.checkpoint("last")["state_dict"]
    assert all(torch.equal(value, saved[name]) for name, value in last.items())
    loaded = [assay.load(run.run_dir, map_location="cpu") for run in (whole, part)]
    inputs = load_diabetes().data
    assert np.array_equal(loaded[0](inputs).values, loaded[1](inputs).values)


# -- the check -----------------------------------------------------------------------------------------------


def proved(*overrides: str) -> Any:
    config = job_config(compose([*overrides, "device=cpu"]))
    return Prover().prove(config, overrides).report


def test_the_check_warns_of_targets_far_from_the_first_outputs(houses: str) -> None:
    told = [*data_of(houses, "price"), "loss=mse", "metrics=regression", "data.source.exclude=[rent]"]
    before = proved(*told).notes
    assert not [note for note in before if "lie around" in note]
    (note,) = (one for one in proved(*told, "data.standardize_targets=false").notes if one not in before)
    assert "the targets lie around 3." in note
    assert note.endswith("data.standardize_targets=true")


def test_the_run_says_it_too(train: Train, diabetes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    train(*diabetes, "data.standardize_targets=false", "trainer.max_epochs=1")
    assert "note   the targets lie around 148" in capsys.readouterr().out
    train(*diabetes, "trainer.max_epochs=1")
    assert "lie around" not in capsys.readouterr().out


def test_a_loss_that_needs_the_targets_own_unit_is_refused() -> None:
    told = ["data=diabetes", "loss=mse", "loss._target_=torch.nn.PoissonNLLLoss"]
    with pytest.raises(ConfigError, match="PoissonNLLLoss compares with the targets themselves") as caught:
        proved(*told)
    assert "data.standardize_targets=false" in str(caught.value)
    proved(*told, "data.standardize_targets=false")
