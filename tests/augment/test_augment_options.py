"""The YAMLs that name torchvision's own classes, used as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from assay.augment.flip_crop import FlipCrop

CONF = Path(__file__).parents[2] / "conf" / "augment"


def option(name: str, **values: Any) -> Any:
    node = OmegaConf.merge(OmegaConf.load(CONF / f"{name}.yaml"), values)
    config = OmegaConf.create({"spec": {"num_classes": 4}, "augment": node})
    return instantiate(config).augment


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(8, 3, 10, 12), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])


def test_none_is_empty() -> None:
    assert not OmegaConf.load(CONF / "none.yaml")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_begins_with_its_description(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith("# ")
    assert len(first) > 20


def test_mixup_blends_each_sample_with_the_one_before() -> None:
    torch.manual_seed(0)
    inputs, targets = batch()
    mixed, soft = option("mixup")(inputs.clone(), targets)
    # Sample 0 is of class 0 and so is the one before it; sample 1 shows the share.
    share = float(soft[1, 1])
    assert 0.0 < share < 1.0
    onehot = torch.eye(4)[targets]
    expected_inputs = share * inputs + (1 - share) * inputs.roll(1, 0)
    torch.testing.assert_close(mixed, expected_inputs)
    torch.testing.assert_close(soft, share * onehot + (1 - share) * onehot.roll(1, 0))


def test_cutmix_mixes_labels_by_area() -> None:
    torch.manual_seed(0)
    inputs, targets = batch()
    mixed, soft = option("cutmix")(inputs.clone(), targets)
    pasted = (mixed == inputs.roll(1, 0)) & (mixed != inputs)
    assert 0 < int(pasted[1].sum()) < inputs[1].numel()
    share = 1.0 - float(pasted[1, 0].float().mean())
    onehot = torch.eye(4)[targets]
    torch.testing.assert_close(soft, share * onehot + (1 - share) * onehot.roll(1, 0))
    assert torch.equal(mixed[~pasted], inputs[~pasted])


def test_mixup_or_cutmix_is_each_about_as_often() -> None:
    torch.manual_seed(0)
    inputs, targets = batch()
    augment = option("mixup_or_cutmix")
    pasted = 0
    for _ in range(200):
        mixed, soft = augment(inputs.clone(), targets)
        assert torch.allclose(soft.sum(1), torch.ones(8))
        # CutMix takes every pixel from one of two images; mixup from both.
        pasted += int(((mixed == inputs) | (mixed == inputs.roll(1, 0))).all())
    assert 70 < pasted < 130


def test_flip_crop_takes_what_its_yaml_says() -> None:
    augment = option("flip_crop", padding=2, flip=0.0)
    assert isinstance(augment, FlipCrop)
    assert (augment.padding, augment.flip) == (2, 0.0)


def test_flip_crop_then_mixup_is_the_two_in_turn() -> None:
    inputs, targets = batch()
    torch.manual_seed(7)
    mixed, soft = option("flip_crop_mixup")(inputs.clone(), targets)
    torch.manual_seed(7)
    expected = option("mixup")(*option("flip_crop")(inputs.clone(), targets))
    assert torch.equal(mixed, expected[0])
    assert torch.equal(soft, expected[1])
    assert soft.shape == (8, 4)


@pytest.mark.parametrize("name", ["flip_crop", "mixup", "cutmix", "mixup_or_cutmix", "flip_crop_mixup"])
def test_refuses_tables(name: str) -> None:
    with pytest.raises(ValueError, match=r"takes images|batched input with 4 dims"):
        option(name)(torch.rand(8, 13), batch()[1])


def test_teacher_asks_for_its_run() -> None:
    node = OmegaConf.load(CONF / "teacher.yaml")
    assert OmegaConf.is_missing(node.model, "run")
    assert node.model._target_ == "assay.load"
    assert node._target_ == "assay.augment.teacher.Teacher"
