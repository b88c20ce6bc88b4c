"""What every task promises, built-in ones and those of the examples."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn
from torchmetrics import MetricCollection

from assay.paths import CONF_DIR
from assay.task.task_of import TASKS
from assay.testing import check_task

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = Path(__file__).parents[2] / "examples"
HEADS = ["kind=a", "kind=b", "size"]
NEEDS: dict[str, dict[str, Any]] = {
    "multiclass": {},
    "binary": {},
    "multilabel": {},
    "regression": {"size": 2, "class_names": ["price", "days"]},
    "segmentation": {"input_shape": (3, 6, 8)},
    "multitask": {"size": 2, "class_names": HEADS},
    "language_modelling": {"size": 11, "input_shape": (8,)},
    "reconstruction": {"input_shape": (1, 4, 4), "size": 16, "class_names": [*map(str, range(16))]},
    "self_supervised": {},
}
"""The data of each task, as `check_task` takes it."""
SPEC = {
    "num_classes": 3,
    "class_counts": [12, 12],
    "num_train": 24,
    "num_outputs": 3,
    "num_targets": 2,
    "target_names": ["price", "days"],
    "target_mean": [0.0, 0.0],
    "target_std": [1.0, 1.0],
    "class_names": HEADS,
    "ignore_index": 255,
    "token_bytes": "0 1*10",
}


def option(group: str, name: str, spec: Mapping[str, Any]) -> Any:
    """What an option of conf builds."""
    text = (CONF_DIR / group / f"{name}.yaml").read_text("utf-8")
    root = OmegaConf.create({"spec": {**SPEC, **spec}, group: OmegaConf.create(text)})
    node = root[group].eval if group == "metrics" else root[group]
    OmegaConf.resolve(root)
    return instantiate(node, _convert_="all")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_keeps_its_promises_with_the_loss_and_metrics_that_it_names(name: str) -> None:
    words = dict(word.split("=") for word in TASKS[name].suits.split())
    spec = {"task": name, "num_classes": TASKS[name].num_classes or 3}
    check_task(
        TASKS[name],
        option("loss", words["loss"], spec),
        option("metrics", words["metrics"], spec),
        **NEEDS[name],
    )


def test_a_task_of_two_classes_takes_two_logits_as_well() -> None:
    check_task(TASKS["binary"], nn.CrossEntropyLoss(), MetricCollection({}))


def test_the_tasks_of_the_examples_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "my_project"))
    monkeypatch.syspath_prepend(str(EXAMPLES / "digit_gan"))
    ordinal: Any = importlib.import_module("my_project.ordinal")
    metrics = MetricCollection({"grade_error": ordinal.GradeError()})
    check_task(ordinal.Ordinal(), ordinal.ContinuationRatio(), metrics, size=4)
    gan: Any = importlib.import_module("digit_gan")
    check_task(gan.Generation(), nn.MSELoss(), MetricCollection({}), size=64, input_shape=(8, 1, 1))
