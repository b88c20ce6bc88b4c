"""Which epoch is kept when a metric is followed: against torchmetrics' own word, and in real runs."""

from __future__ import annotations

import copy
import functools
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torchmetrics
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import Metric, MetricCollection
from torchmetrics.wrappers import ClasswiseWrapper

from assay.analysis.objective import read_objectives
from assay.build.monitor_mode import directions, mode_argument
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tests.conftest import Train

CALLBACK = "lightning.pytorch.callbacks.ModelCheckpoint"
QUICK = ("data=iris", "model=linear", "device=cpu")
KNOWN: Any = {"val/accuracy": "max", "val/mae": "min"}


class Silent(Metric):
    """Says nothing of which way it is better."""

    def update(self, predictions: torch.Tensor, targets: torch.Tensor) -> None: ...

    def compute(self) -> torch.Tensor:
        return torch.tensor(0.0)


def test_the_direction_is_torchmetrics_own() -> None:
    metrics: dict[str, Metric] = {
        "accuracy": torchmetrics.Accuracy("multiclass", num_classes=3),
        "mae": torchmetrics.MeanAbsoluteError(),
        "r2": torchmetrics.R2Score(),
        "hamming": torchmetrics.HammingDistance("multiclass", num_classes=3),
        "silent": Silent(),
    }
    found = directions(MetricCollection(dict(metrics), prefix="own_", postfix="_x"), "val")
    expected: dict[str, str] = {"val/loss": "min"}
    for name, metric in metrics.items():
        if metric.higher_is_better is not None:
            expected[f"val/{name}_x"] = "max" if metric.higher_is_better else "min"
    assert found == expected
    assert "val/silent_x" not in found
    wrapped = ClasswiseWrapper(torchmetrics.HammingDistance("multiclass", num_classes=3, average=None))
    assert directions(MetricCollection({"wrapped": wrapped}), "val")["val/wrapped"] == "min"


@functools.cache
def plateau() -> DictConfig:
    return job_config(compose([*QUICK, "scheduler=plateau"]))


@pytest.mark.parametrize(
    ("monitor", "mode", "comes_to", "says"),
    [
        ("val/loss", "auto", "min", ""),
        ("val/accuracy", "auto", "max", ""),
        ("val/accuracy", None, "max", ""),
        ("val/accuracy", "force_min", "min", ""),
        ("val/loss", "force_max", "max", ""),
        ("val/unknown", "max", "max", ""),
        ("val/accuracy", "min", "", "force_min"),
        ("val/loss", "max", "", "force_max"),
        ("val/unknown", "auto", "", "it is not known whether"),
        ("val/accuracy", "best", "", "expected one of auto, min, max"),
    ],
)
@pytest.mark.parametrize("key", ["callbacks.checkpoint", "scheduler"])
def test_a_mode(key: str, monitor: str, mode: str | None, comes_to: str, says: str) -> None:
    config = copy.deepcopy(plateau())
    node = config.scheduler if key == "scheduler" else config.callbacks.checkpoint
    node.monitor, node.mode = monitor, mode
    if not says:
        assert mode_argument(config, key, lambda _: KNOWN) == ({"mode": comes_to} if comes_to else {})
        return
    with pytest.raises(ConfigError, match=says) as caught:
        mode_argument(config, key, lambda _: KNOWN)
    assert caught.value.key == f"{key}.mode"


def test_each_shipped_metric_says_which_way_or_is_no_scalar() -> None:
    prover = Prover()
    for typed in (["data=iris"], ["data=breast_cancer"], ["data=diabetes"], ["experiment=digits_embedding"]):
        config = job_config(compose([*typed, "device=cpu"]))
        report = prover.prove(config).report
        assert set(report.scores) <= set(report.directions), typed
        assert report.directions["val/loss"] == "min"


def test_the_best_epoch_by_accuracy_is_kept(train: Train) -> None:
    job = (
        "callbacks=[checkpoint,early_stopping]",
        "callbacks.early_stopping.patience=50",
        "trainer.max_epochs=6",
    )
    follow = [f"callbacks.{name}.monitor=val/accuracy" for name in ("checkpoint", "early_stopping")]
    run = train(
        "data=wine", "model=mlp", *job, *follow, "scheduler=plateau", "scheduler.monitor=val/accuracy"
    )
    accuracies = run.column("val/accuracy")
    assert max(accuracies) > min(accuracies)
    assert run.record["best"]["value"] == max(accuracies)
    assert run.record["best"]["epoch"] == 1 + accuracies.index(max(accuracies))
    (config,) = run.trainer.lr_scheduler_configs
    assert isinstance(config.scheduler, ReduceLROnPlateau)
    assert config.scheduler.mode == "max"
    stopping = run.trainer.early_stopping_callback
    assert stopping is not None
    assert stopping.mode == "max"


@pytest.mark.parametrize(
    ("sweeper", "checkpoint", "error"),
    [
        ({}, {"monitor": "val/accuracy", "mode": "auto"}, ""),
        ({}, {"monitor": "val/accuracy", "mode": "force_min"}, ""),
        ({"objective": "val/mae", "direction": None}, {}, ""),
        ({"objective": "val/accuracy", "direction": "min"}, {}, "force_minimize"),
        ({"objective": ["val/loss", "val/accuracy"], "direction": "maximize"}, {}, "looks for the worst"),
        ({"objective": "val/accuracy", "direction": "force_minimize"}, {}, ""),
        ({"objective": "val/unknown"}, {}, "has to be stated"),
    ],
)
def test_an_objective_has_the_direction_of_its_metric(
    sweeper: dict[str, Any], checkpoint: dict[str, Any], error: str
) -> None:
    job = {"callbacks": {"checkpoint": {"_target_": CALLBACK} | checkpoint}}
    aims = read_objectives(sweeper, job)
    known = {**KNOWN, "val/loss": "min"}
    if not error:
        for aim in aims:
            aim.check(known)
        return
    with pytest.raises(ConfigError, match=error) as caught:
        aims[0].check(known)
    assert caught.value.key == "hydra.sweeper.direction"
