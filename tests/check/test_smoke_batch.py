"""Losses, metrics and augmentations are tried together on a made-up batch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from assay.assemble.model import num_outputs
from assay.assemble.node import build
from assay.errors import AssayError, ConfigError, DataError
from assay_explain.listing import list_options
from assay_prove.smoke_batch import try_parts

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
BCE = "bce_with_logits"
LOSS_OF = {"multiclass": "cross_entropy", "binary": BCE, "multilabel": BCE, "regression": "mse"}
IMAGE, TABLE = [3, 8, 8], [5]
OF_IMAGES = ("mixup", "cutmix", "flip_crop", "mixup_or_cutmix", "flip_crop_mixup")


def job(
    task: str = "multiclass",
    shape: list[int] = TABLE,
    loss: str = "cross_entropy",
    metrics: str = "multiclass",
    augment: str = "none",
) -> DictConfig:
    spec = {"task": task, "input_shape": shape, "num_train": 60, "ignore_index": -100, "target_names": []}
    chosen = {"loss": loss, "metrics": metrics, "augment": augment}
    nodes = {group: OPTIONS[group][name] or None for group, name in chosen.items()}
    return OmegaConf.create({"spec": {**spec, **SPECS[task], "num_features": int(np.prod(shape))}, **nodes})


def attempt(config: DictConfig, **parts: Any) -> dict[str, list[str]]:
    """Try the parts of a job, some of them replaced."""
    loss = parts.get("loss") or build(config, "loss")
    config.spec.num_outputs = num_outputs(config, build(config, "loss"))
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    augment = parts.get("augment") or build(config, "augment")
    return try_parts(config, loss, metrics | parts.get("metrics", {}), augment).names


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
    each = [f"val/target_{at}/{name}" for at in range(2) for name in ("mae", "mse", "rmse")]
    assert names["train"] == ["train/loss", "train/target_0/mae", "train/target_1/mae"]
    assert names["val"] == ["val/loss", "val/r2", *each]


@pytest.mark.parametrize("loss", ["cross_entropy", "focal", "ldam", "kl_div"])
@pytest.mark.parametrize("augment", OF_IMAGES)
def test_classification_losses_go_with_every_augmentation_of_images(loss: str, augment: str) -> None:
    attempt(job("multiclass", IMAGE, loss, "multiclass", augment))


@pytest.mark.parametrize("augment", OF_IMAGES)
def test_augmentation_of_images_does_not_go_with_tables(augment: str) -> None:
    with pytest.raises(ConfigError, match=r"takes pictures \[channels, height, width\], .*\[5\]") as caught:
        attempt(job(augment=augment))
    assert caught.value.hint == "augment=none"


@pytest.mark.parametrize("augment", ["mixup", "cutmix", "mixup_or_cutmix"])
@pytest.mark.parametrize("shape", [TABLE, IMAGE])
def test_mixing_needs_classes(augment: str, shape: list[int]) -> None:
    with pytest.raises(ConfigError, match="mixes classes, and the data has 2 real-valued targets"):
        attempt(job("regression", shape, "mse", "regression", augment))


@pytest.mark.parametrize("task", SPECS)
def test_numbers_of_samples_are_no_targets(task: str) -> None:
    """Of few samples they would pass for classes, and the first real batch would end the run."""
    with pytest.raises(
        ConfigError, match="augment: TwoViews labels its outputs by the sample that they come from"
    ):
        attempt(job(task, IMAGE, LOSS_OF[task], task, "two_views"))


def test_a_loss_of_pairs() -> None:
    triplet = ("multiclass", IMAGE, "triplet", "retrieval")
    assert attempt(job(*triplet, "two_views"))["train"] == ["train/loss"]
    attempt(job(*triplet, "flip_crop"))
    with pytest.raises(ConfigError, match=r"^augment: Triplet cannot take the targets it makes"):
        attempt(job(*triplet, "mixup"))


class SoftLoss(nn.Module):
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        soft = targets if targets.is_floating_point() else nn.functional.one_hot(targets, 3)
        return -(outputs.log_softmax(1) * soft).sum(1).mean()


def test_custom_parts() -> None:
    names = attempt(job(shape=IMAGE, augment="mixup"), loss=SoftLoss())
    assert "train/accuracy" in names["train"], "metrics see hard classes"
    with pytest.raises(ConfigError, match=r"^(loss|metrics\.eval)"):
        attempt(job(), loss=nn.PoissonNLLLoss(reduction="none"))

    def refuse(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        raise DataError("the teacher knows other classes", hint="another teacher")

    with pytest.raises(DataError, match="other classes"):
        attempt(job(), augment=refuse)


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
def test_a_custom_metric_that_computes_no_number_is_named_with_its_file(value: Any, kind: str) -> None:
    with pytest.raises(ConfigError, match=rf"Verdict cannot score .* computes a .*{kind}, which") as caught:
        attempt(job(), metrics={"eval": MetricCollection({"mine": Verdict(value)})})
    line = Verdict.compute.__code__.co_firstlineno
    assert caught.value.message.endswith(f"(tests/check/test_smoke_batch.py:{line})")
    assert caught.value.hint == "~metrics.eval leaves it out"


class Hits(Metric):
    """A share of right answers that counts in attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.right = 0
        self.total = 0

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        self.right += int((predictions.argmax(1) == targets).sum())
        self.total += len(targets)

    def compute(self) -> Tensor:
        return torch.tensor(self.right / self.total)


class ClearedHits(Hits):
    def reset(self) -> None:
        super().reset()
        self.right = self.total = 0


def test_a_metric_that_adds_up_over_epochs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"its reset\(\) does not clear .* self\.add_state") as caught:
        attempt(job(), metrics={"eval": MetricCollection({"mine": Hits()})})
    assert str(caught.value.key).startswith("metrics.eval")
    attempt(job(), metrics={"eval": MetricCollection({"mine": ClearedHits(), "same": Verdict(0.5)})})


@pytest.mark.parametrize("num_classes", [2, 16, 17, 1000])
def test_any_number_of_classes(num_classes: int) -> None:
    config = job("multiclass", IMAGE, "ldam", "multiclass", "mixup")
    config.spec.num_classes, config.spec.class_counts = num_classes, [5] * num_classes
    assert "val/auroc" in attempt(config)["val"]


def test_leaves_no_trace() -> None:
    config = job(shape=IMAGE, augment="mixup")
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    augment = build(config, "augment")
    torch.manual_seed(7)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # the legacy tuple
    config.spec.num_outputs = 3
    try_parts(config, build(config, "loss"), metrics, augment)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index]  # the legacy tuple
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert not [metric for metric in metrics["eval"].values() if metric.update_called]


def test_a_batch_of_large_pictures_is_small() -> None:
    seen: list[int] = []

    def augment(inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(inputs.numel())
        return inputs, targets

    config = job(shape=[3, 2000, 4000])
    attempt(config, augment=augment)
    assert seen
    assert max(seen) <= 1 << 26


def test_samples_that_memory_has_no_room_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay_prove.smoke_batch.free_memory", lambda: 1_000_000)
    attempt(job(shape=IMAGE))
    with pytest.raises(ConfigError, match=r"samples as large as \[3, 300, 300\]") as caught:
        attempt(job(shape=[3, 300, 300]))
    assert "data/transform=random_crop" in caught.value.hint
