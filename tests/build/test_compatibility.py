from __future__ import annotations

from typing import Any

import pytest
import torch
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from assay.build.model import check_fit, num_outputs
from assay.compose.listing import list_options
from assay.errors import ConfigError
from assay.task.task_of import TASKS

SPECS: dict[str, dict[str, Any]] = {
    "multiclass": {"task": "multiclass", "num_classes": 10, "num_targets": 0},
    "binary": {"task": "binary", "num_classes": 2, "num_targets": 0},
    "multilabel": {"task": "multilabel", "num_classes": 5, "num_targets": 0},
    "regression": {"task": "regression", "num_classes": 0, "num_targets": 3},
    "language_modelling": {"task": "language_modelling", "vocab_size": 7},
    "multitask": {"task": "multitask", "num_classes": 0, "num_targets": 2},
    "segmentation": {"task": "segmentation", "num_classes": 3, "input_shape": [1, 2, 2]},
    "reconstruction": {"task": "reconstruction", "num_classes": 2, "input_shape": [1, 2, 2]},
    "self_supervised": {"task": "self_supervised", "num_classes": 2, "input_shape": [1, 2, 2]},
}
GOES = {
    "multiclass": {"cross_entropy", "dice", "dice_cross_entropy", "focal", "ldam", "kl_div", "triplet"},
    "multilabel": {"bce_with_logits"},
    "regression": {"mse", "l1", "huber"},
    "language_modelling": {"cross_entropy", "dice", "dice_cross_entropy", "focal", "ldam", "kl_div"},
    "multitask": {"multitask"},
    "segmentation": {"cross_entropy", "focal", "dice", "dice_cross_entropy", "ldam", "kl_div"},
    "reconstruction": {"mse", "l1", "huber"},
    "self_supervised": {"nt_xent"},
}
GOES["binary"] = GOES["multiclass"] | {"bce_with_logits"}
"""By what a loss says of itself; that of masks alone is refused for classes when it is tried."""
LOSSES = {
    option.name: str(OmegaConf.select(OmegaConf.load(option.path), "_target_"))
    for option in list_options("loss")
}


def job(task: str) -> DictConfig:
    return OmegaConf.create({"spec": SPECS[task], "model": {}})


def test_every_loss_is_in_the_table() -> None:
    assert set().union(*GOES.values()) == set(LOSSES)
    assert set(GOES) == set(SPECS) == set(TASKS)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("task", SPECS)
def test_every_loss_with_every_task(task: str, loss: str) -> None:
    if loss in GOES[task]:
        check_fit(job(task), get_class(LOSSES[loss]))
        return
    assert TASKS[task].suits.partition("loss=")[2].split()[0] in GOES[task], "what is recommended goes"
    with pytest.raises(ConfigError) as caught:
        check_fit(job(task), get_class(LOSSES[loss]))
    assert caught.value.key == "loss"
    assert caught.value.hint == TASKS[task].suits


@pytest.mark.parametrize(
    ("task", "kind", "outputs"),
    [
        ("multiclass", "multiclass", 10),
        ("binary", "multiclass", 2),
        ("binary", "binary", 1),
        ("multilabel", "binary", 5),
        ("regression", None, 3),
    ],
)
def test_num_outputs(task: str, kind: str | None, outputs: int) -> None:
    loss = torch.nn.Module()
    loss.kind = kind  # type: ignore[assignment]  # what our losses have as a class attribute
    assert num_outputs(job(task), loss) == outputs
