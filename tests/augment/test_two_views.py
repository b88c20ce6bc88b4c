"""Two views of each sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # it has no stubs

from assay.augment.two_views import TwoViews

CONF = Path(__file__).parents[2] / "conf" / "augment" / "two_views.yaml"


def shipped() -> Any:
    return instantiate(OmegaConf.load(CONF))


def test_every_sample_and_view_is_drawn_by_itself() -> None:
    torch.manual_seed(0)
    picture = torch.randn(1, 1, 8, 8)
    views, samples = shipped()(picture.expand(5, 1, 8, 8), torch.zeros(5))
    assert views.shape == (10, 1, 8, 8)
    assert samples.tolist() == [0, 1, 2, 3, 4] * 2
    assert len({tuple(view.flatten().tolist()) for view in views}) == 10


def test_the_same_seed_draws_the_same() -> None:
    pictures, views = torch.randn(4, 3, 8, 8), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        views.append(shipped()(pictures, torch.zeros(4))[0])
    assert torch.equal(views[0], views[1])
    assert not torch.equal(views[0], views[2])


def test_a_view_is_made_of_its_own_sample() -> None:
    values = torch.arange(6.0)[:, None].expand(6, 3)
    for one_by_one in (True, False):
        add = TwoViews([v2.GaussianNoise(sigma=1e-4, clip=False)], one_by_one=one_by_one)
        torch.manual_seed(0)
        views, samples = add(values[:, None], torch.zeros(6))
        torch.testing.assert_close(views[:, 0, 0].round(), samples.float())


def test_no_transforms_make_no_two_views() -> None:
    with pytest.raises(ValueError, match=r"augment\.transforms is empty"):
        TwoViews([])


def test_transforms_of_modules_are_kept_in_order() -> None:
    views, _ = TwoViews([nn.Threshold(0.5, 0.0), nn.Threshold(-1, 0)], one_by_one=False)(
        torch.tensor([[0.4], [0.6]]), torch.zeros(2)
    )
    torch.testing.assert_close(views[:, 0], torch.tensor([0.0, 0.6, 0.0, 0.6]))
