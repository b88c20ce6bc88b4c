"""Every option of `loss` builds from its YAML and trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from assay.loss.bce_with_logits import BCEWithLogits
from assay.loss.cross_entropy import CrossEntropy

CONF = Path(__file__).parents[2] / "conf" / "loss"
BATCH = {
    "multiclass": (torch.randn(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])),
    "binary": (torch.rand(6, 1), torch.tensor([0, 1, 1, 0, 1, 0])),
    "views": (torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])),
    "embedding": (torch.randn(6, 2), torch.tensor([0, 1, 1, 0, 1, 0])),
    "multitask": (torch.randn(6, 3), torch.tensor([[0, 0.1], [1, 0.2]] * 3)),
    None: (torch.randn(6, 2), torch.randn(6, 2)),
}

MASKS = (torch.randn(2, 3, 4, 4), torch.arange(32).view(2, 4, 4) % 3)


def load(option: str, spec: dict[str, Any] | None = None, **overrides: object) -> Any:
    """Build an option as a run does: below a node `spec` that knows the data."""
    config = OmegaConf.load(CONF / f"{option}.yaml")
    known = {"task": "multiclass", "num_classes": 3, "class_counts": [20, 5, 10], "num_train": 35}
    known |= {"class_names": ["kind=a", "kind=b", "size"], "target_mean": [], "target_std": []}
    known |= {"ignore_index": -100}
    root = OmegaConf.create({"spec": known | (spec or {}), "loss": OmegaConf.merge(config, overrides)})
    return instantiate(root.loss)


def test_the_options_are_these() -> None:
    assert {path.stem for path in CONF.glob("*.yaml")} == {
        *("cross_entropy", "focal", "ldam", "kl_div", "triplet", "nt_xent"),
        *("bce", "bce_with_logits", "mse", "l1", "huber", "multitask", "dice"),
        "dice_cross_entropy",
    }


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_option_builds_and_gives_a_slope(path: Path) -> None:
    loss = load(path.stem)
    outputs, targets = MASKS if path.stem.startswith("dice") else BATCH[getattr(loss, "kind", None)]
    outputs = outputs.clone().requires_grad_()
    value = loss(outputs, targets)
    (slope,) = torch.autograd.grad(value, outputs)
    assert value.shape == ()
    assert slope.abs().sum() > 0


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_option_says_what_it_is_in_its_first_line(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith(".")


@pytest.mark.parametrize("option", ["cross_entropy", "focal", "ldam"])
def test_class_weight_is_typed_on_the_command_line(option: str) -> None:
    balanced = load(option, class_weight="balanced").class_weight.value
    torch.testing.assert_close(balanced, torch.tensor([35 / 60, 35 / 15, 35 / 30]))
    assert load(option, class_weight=[1, 2, 3]).class_weight.value.tolist() == [1, 2, 3]


def test_pos_weight_is_typed_on_the_command_line() -> None:
    binary = {"task": "binary", "num_classes": 2, "class_counts": [30, 10], "num_train": 40}
    several = {"task": "multilabel", "num_classes": 2, "class_counts": [30, 10], "num_train": 40}
    assert load("bce_with_logits", binary, pos_weight="balanced").pos_weight.tolist() == [3.0]
    expected = torch.tensor([1 / 3, 3.0])
    torch.testing.assert_close(load("bce_with_logits", several, pos_weight="balanced").pos_weight, expected)
    assert load("bce_with_logits", several, pos_weight=[1, 2]).pos_weight.tolist() == [1.0, 2.0]
    assert load("bce_with_logits", several, pos_weight=2).pos_weight.tolist() == [2.0]


def test_nothing_is_weighted_unless_told() -> None:
    assert isinstance(load("cross_entropy"), CrossEntropy)
    assert load("cross_entropy").class_weight.of(torch.zeros(2, 3)) is None
    assert isinstance(load("bce_with_logits"), BCEWithLogits)
    assert not load("bce_with_logits").weighted
