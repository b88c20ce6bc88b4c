from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from assay.build.compatibility import num_outputs
from assay.build.node import build
from assay.check.smoke_batch import try_parts
from assay.compose.listing import list_options
from assay.errors import AssayError, ConfigError, DataError

OPTIONS = {
    group: {option.name: OmegaConf.load(option.path) for option in list_options(group)}
    for group in ("loss", "metrics", "augment")
}
SPECS: dict[str, dict[str, Any]] = {
    "multiclass": {"num_classes": 3, "num_targets": 0, "class_counts": [30, 20, 10]},
    "binary": {"num_classes": 2, "num_targets": 0, "class_counts": [30, 20]},
    "multilabel": {"num_classes": 4, "num_targets": 0, "class_counts": [30, 20, 10, 5]},
    "regression": {"num_classes": 0, "num_targets": 2, "class_counts": []},
}
LOSS_OF = {
    "multiclass": "cross_entropy",
    "binary": "bce_with_logits",
    "multilabel": "bce_with_logits",
    "regression": "mse",
}
IMAGE, TABLE = [3, 8, 8], [5]


def job(task: str, shape: list[int], loss: str, metrics: str, augment: str | None = None) -> DictConfig:
    spec = {"task": task, "input_shape": shape, "num_train": 60, "ignore_index": -100, "target_names": []}
    return OmegaConf.create(
        {
            "spec": {**spec, **SPECS[task], "num_features": int(np.prod(shape))},
            "loss": OPTIONS["loss"][loss],
            "metrics": OPTIONS["metrics"][metrics],
            "augment": OPTIONS["augment"][augment] if augment else None,
        }
    )


def attempt(config: DictConfig) -> dict[str, list[str]]:
    loss = build(config, "loss")
    config.spec.num_outputs = num_outputs(config, loss)
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    return try_parts(config, loss, metrics, build(config, "augment")).names


@pytest.mark.parametrize("task", SPECS)
@pytest.mark.parametrize("metrics", ["binary", "multiclass", "multilabel", "regression"])
def test_metrics_go_with_their_own_task(task: str, metrics: str) -> None:
    config = job(task, TABLE, LOSS_OF[task], metrics)
    over_all_labels = (metrics, task) == ("binary", "multilabel")
    if metrics == task or over_all_labels:
        names = attempt(config)
        assert "val/loss" in names["val"]
        assert "train/loss" in names["train"]
        assert not [name for name in names["val"] if "confusion" in name], "only scalars can be monitored"
        return
    with pytest.raises(AssayError) as caught:
        attempt(config)
    assert caught.value.message.startswith("metrics.")
    assert caught.value.hint.endswith(f"metrics={task}")


def test_names_are_those_that_a_run_logs() -> None:
    names = attempt(job("regression", TABLE, "mse", "regression"))
    assert names == {
        "train": ["train/loss", "train/target_0/mae", "train/target_1/mae"],
        "val": [
            "val/loss",
            "val/r2",
            *(f"val/target_{at}/{name}" for at in range(2) for name in ("mae", "mse", "rmse")),
        ],
    }


@pytest.mark.parametrize("loss", ["cross_entropy", "focal", "ldam", "kl_div"])
@pytest.mark.parametrize(
    "augment", ["none", "mixup", "cutmix", "flip_crop", "mixup_or_cutmix", "flip_crop_mixup"]
)
def test_classification_losses_go_with_every_augmentation_of_images(loss: str, augment: str) -> None:
    attempt(job("multiclass", IMAGE, loss, "multiclass", augment))


@pytest.mark.parametrize("augment", ["mixup", "cutmix", "flip_crop", "mixup_or_cutmix", "flip_crop_mixup"])
def test_augmentation_of_images_does_not_go_with_tables(augment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        attempt(job("multiclass", TABLE, "cross_entropy", "multiclass", augment))
    assert caught.value.key.partition(".transforms[")[0] == "augment"
    assert "[5]" in caught.value.message
    assert caught.value.hint == "augment=none"


@pytest.mark.parametrize("task", SPECS)
def test_numbers_of_samples_are_no_targets(task: str) -> None:
    """Of few samples they would pass for classes, and the first real batch would end the run."""
    with pytest.raises(ConfigError, match="TwoViews says of what it makes which sample it is of") as caught:
        attempt(job(task, IMAGE, LOSS_OF[task], task, "two_views"))
    assert (caught.value.key, caught.value.hint) == ("augment", "augment=none")


def test_a_loss_of_pairs_takes_numbers_of_samples() -> None:
    assert attempt(job("multiclass", IMAGE, "triplet", "retrieval", "two_views"))["train"] == ["train/loss"]


def test_soft_targets_do_not_go_with_triplets() -> None:
    attempt(job("multiclass", IMAGE, "triplet", "retrieval", "flip_crop"))
    with pytest.raises(ConfigError, match="Triplet cannot take the targets it makes") as caught:
        attempt(job("multiclass", IMAGE, "triplet", "retrieval", "mixup"))
    assert caught.value.key == "augment"


def test_a_loss_of_ones_own_that_cannot_take_the_targets() -> None:
    config = job("multiclass", TABLE, "cross_entropy", "multiclass")
    config.spec.num_outputs = 3
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    with pytest.raises(ConfigError) as caught:
        try_parts(config, nn.PoissonNLLLoss(reduction="none"), metrics, None)
    assert caught.value.key in ("loss", "metrics.eval")


def test_metrics_see_hard_classes_whatever_the_loss_takes() -> None:
    class Own(nn.Module):
        def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
            soft = targets if targets.is_floating_point() else nn.functional.one_hot(targets, 3)
            return -(outputs.log_softmax(1) * soft).sum(1).mean()

    config = job("multiclass", IMAGE, "cross_entropy", "multiclass", "mixup")
    config.spec.num_outputs = 3
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    assert "train/accuracy" in try_parts(config, Own(), metrics, build(config, "augment")).names["train"]


def test_an_error_that_says_what_to_do_is_passed_on() -> None:
    def refuse(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        raise DataError("the teacher knows other classes", hint="another teacher")

    config = job("multiclass", TABLE, "cross_entropy", "multiclass")
    config.spec.num_outputs = 3
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    with pytest.raises(DataError, match="other classes"):
        try_parts(config, build(config, "loss"), metrics, refuse)


class Verdict(Metric):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Nothing is kept."""

    def compute(self) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("value", "kind"), [("good", "str"), (None, "NoneType"), (torch.tensor(1j), "complex64")]
)
def test_a_metric_of_ones_own_that_computes_no_number_is_named_with_its_file(value: Any, kind: str) -> None:
    config = job("multiclass", TABLE, "cross_entropy", "multiclass")
    config.spec.num_outputs = 3
    metrics = {"train": build(config, "metrics.train"), "eval": MetricCollection({"mine": Verdict(value)})}
    with pytest.raises(ConfigError, match=rf"Verdict cannot score .* computes a .*{kind}, which") as caught:
        try_parts(config, build(config, "loss"), metrics, None)
    line = Verdict.compute.__code__.co_firstlineno
    assert caught.value.message.endswith(f"(tests/check/proof/test_smoke_batch.py:{line})")
    assert caught.value.hint == "~metrics.eval leaves it out"


@pytest.mark.parametrize("num_classes", [2, 4, 15, 16, 17, 100, 1000])
def test_any_number_of_classes(num_classes: int) -> None:
    config = job("multiclass", IMAGE, "ldam", "multiclass", "mixup")
    config.spec.num_classes, config.spec.class_counts = num_classes, [5] * num_classes
    assert "val/auroc" in attempt(config)["val"]


def test_leaves_no_trace() -> None:
    config = job("multiclass", IMAGE, "cross_entropy", "multiclass", "mixup")
    loss = build(config, "loss")
    config.spec.num_outputs = num_outputs(config, loss)
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    augment = build(config, "augment")
    torch.manual_seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # the legacy tuple
    try_parts(config, loss, metrics, augment)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # the legacy tuple
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert not [metric for metric in metrics["eval"].values() if metric.update_called]
