"""One node of a config becomes an object, or one message that names the key."""

from __future__ import annotations

import copy
import functools
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torchmetrics
from lightning.pytorch.utilities.exceptions import MisconfigurationException  # type: ignore[attr-defined]  # it is there
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import Metric, MetricCollection
from torchmetrics.wrappers import ClasswiseWrapper

from assay.assemble.node import (
    NOT_ARGUMENTS,
    build,
    build_error,
    directions,
    mode_argument,
    score_shares,
)
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.metrics.recall_at_k import RecallAtK
from assay_analysis.objective import read_objectives
from assay_prove.prove import Prover

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tests.conftest import Train


def config(model: Any, **rest: Any) -> DictConfig:
    return OmegaConf.create({"model": model, "spec": {"num_features": 4}, **rest})


def test_values_come_from_the_rest_of_the_config_which_stays_as_it_is() -> None:
    job = config(
        {"_target_": "torch.nn.Linear", "in_features": "${spec.num_features}", "out_features": "${n}"}, n=2
    )
    OmegaConf.set_readonly(job, True)
    before = OmegaConf.to_container(job)
    assert build(job, "model").weight.shape == (2, 4)
    assert OmegaConf.to_container(job) == before


def test_what_assay_reads_itself_is_no_argument() -> None:
    said = {"_target_": "torch.optim.lr_scheduler.StepLR", "_partial_": True, "step_size": 3}
    job = config({}, scheduler={**said, **dict.fromkeys(NOT_ARGUMENTS["scheduler"], "x")})
    made = build(job, "scheduler")
    assert type(made) is functools.partial
    assert made.keywords == {"step_size": 3}


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"_target_": "torch.nn.Dropout", "p": 5}, "model: dropout"),
        (
            {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "torch.nn.Dropout", "p": 5}]},
            "model._args_[0]: dropout",
        ),
        (
            {"_target_": "torch.nn.Linear", "in_features": "${spec.width}"},
            "model.in_features: the data has no",
        ),
        ({"_target_": "torch.nn.Linear", "in_features": "${n}"}, "model.in_features: "),
        ({"_target_": "os.getcwd"}, "model._target_: "),
        ("torch.nn.ReLU", "model: expected a mapping"),
        ("${n.m}", "model: "),
    ],
)
def test_what_cannot_be_built_names_its_key(model: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build(config(model), "model")
    assert caught.value.message.startswith(says)


# -- the error of a constructor


def broken() -> DictConfig:
    return OmegaConf.create(
        {
            "optimizer": {"_target_": "torch.optim.AdamW", "lr": -1, "eps": 1e-8, "betas": [0.9, 0.999]},
            "data": {
                "_target_": "assay.data.core.data_module.DataModule",
                "batch_size": 0,
                "split": {"val": 0.1, "typo": 1},
            },
            "metrics": {"train": {"_target_": "torchmetrics.MeanMetric"}},
            "callbacks": {"ema": {"_target_": "lightning.pytorch.callbacks.EMAWeightAveraging", "decay": 2}},
            "logger": {"wandb": {"_target_": "lightning.pytorch.loggers.WandbLogger"}},
            "model": {"_target_": "torch.nn.Flatten", "start_dim": "${spec.num_class}"},
            "spec": {"task": "regression", "num_classes": 3},
        }
    )


@pytest.mark.parametrize(
    ("error", "key", "says"),
    [
        (ValueError("Invalid learning rate: -1"), "optimizer", "optimizer.lr: Invalid learning rate: -1"),
        (ValueError("`eps` is too small"), "optimizer", "optimizer.eps: `eps` is too small"),
        (ValueError("expected more start_dim, not 2"), "model", "model: expected more start_dim, not 2"),
        (ValueError("`val` is too much"), "data", "data.split.val: `val` is too much"),
        (ValueError("data.batch_size=0: too few"), "data", "data.batch_size=0: too few"),
        (MisconfigurationException("`batch_size` is odd"), "data", "data.batch_size: `batch_size` is odd"),
        (TypeError("unexpected argument 'typo'"), "data", "data.split.typo: unexpected argument 'typo'"),
        (RuntimeError("no"), "optimizer", "optimizer: cannot be built with these values: RuntimeError: no"),
        (KeyError(), "optimizer", "optimizer: cannot be built with these values: KeyError"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_value_at_fault_is_named(error: Exception, key: str, says: str) -> None:
    assert build_error(error, broken(), key).message == says


@pytest.mark.parametrize(
    ("key", "refused"),
    [("optimizer.lr", 0.001), ("optimizer.betas", [0.9, 0.999]), ("optimizer.amsgrad", False)],
)
def test_the_value_that_was_refused_is_no_way_out(key: str, refused: object) -> None:
    """What a class takes by default can be wrong beside the rest of a job."""
    job = broken()
    OmegaConf.update(job, key, refused)
    assert build_error(ValueError("no"), job, key).hint == ""


def test_an_error_of_custom_code_has_its_kind_and_place() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        1 / 0  # noqa: B018 - it raises
    told = build_error(caught.value, broken(), "model").message
    assert re.fullmatch(
        r"model: cannot be built with these values: ZeroDivisionError: .* \(.*test_node\.py:\d+, in \w+\)",
        told,
    )


def test_an_interpolation_that_the_data_does_not_answer() -> None:
    with pytest.raises(OmegaConfBaseException) as caught:
        broken().model.start_dim  # noqa: B018 - it is looked up
    found = build_error(caught.value, broken(), "model")
    assert found.message.startswith("model.start_dim: the data has no 'spec.num_class'")
    assert "did you mean 'spec.num_classes'?" in found.message


CALLBACK = "lightning.pytorch.callbacks.ModelCheckpoint"
QUICK = ("data=iris", "model=linear", "device=cpu")
KNOWN: Any = {"val/accuracy": "max", "val/mae": "min"}


class Silent(Metric):
    """Says nothing of which way it is better."""

    def update(self, predictions: torch.Tensor, targets: torch.Tensor) -> None: ...

    def compute(self) -> torch.Tensor:
        return torch.tensor(0.0)


class Bounded(Silent):
    """A custom metric that is a share."""

    plot_lower_bound = 0.0
    plot_upper_bound = 1.0


def test_a_share_is_what_has_the_bounds_0_and_1() -> None:
    metrics: dict[str, Metric] = {
        "seldom": torchmetrics.Specificity("multiclass", num_classes=3),
        "top5_accuracy": torchmetrics.Accuracy("multiclass", num_classes=9, top_k=5),
        "accuracy_in_ms": torchmetrics.MeanAbsoluteError(),
        "correlation": torchmetrics.PearsonCorrCoef(),
        "phi": torchmetrics.MatthewsCorrCoef("binary"),
        "kappa": torchmetrics.CohenKappa("binary"),
        "hinge": torchmetrics.HingeLoss("binary"),
        "silent": Silent(),
        "mine": Bounded(),
        "neighbours": RecallAtK(1),
    }
    found = score_shares({"eval": MetricCollection(dict(metrics), prefix="val/")})
    shares = {"seldom", "top5_accuracy", "mine", "neighbours"}
    assert found == {name: name in shares for name in metrics if name != "silent"}


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
        ({"objective": "val/mae", "direction": None}, {}, ""),
        ({"objective": "val/accuracy", "direction": "min"}, {}, "looks for the worst"),
        ({"objective": ["val/loss", "val/accuracy"], "direction": "maximize"}, {}, "looks for the worst"),
        ({"objective": "val/unknown"}, {}, "is not known; state it"),
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
            aim.check(known, aims)
        return
    with pytest.raises(ConfigError, match=error) as caught:
        aims[0].check(known, aims)
    assert caught.value.key == "hydra.sweeper.direction"
