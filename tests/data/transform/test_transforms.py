from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.transforms import Transforms, stack
from assay.errors import DataError

IMAGES = torch.randint(0, 256, (6, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
KEYS = torch.arange(6)


def test_each_sample_of_a_batch_gets_a_draw_of_its_own() -> None:
    same = IMAGES[:1].expand(64, -1, -1, -1)
    flipped = Transforms([v2.RandomHorizontalFlip(0.5)]).batch(same, 0, 0, torch.arange(64))
    is_flipped = [(one != IMAGES[0]).any().item() for one in flipped]
    assert 10 < sum(is_flipped) < 54


def test_the_draw_depends_on_seed_epoch_and_sample_alone() -> None:
    chain = Transforms([v2.RandomCrop(8, padding=4), v2.ColorJitter(0.5)])
    whole = chain.batch(IMAGES, seed=1, epoch=2, keys=KEYS)
    order = torch.tensor([4, 1])
    torch.manual_seed(123)
    np.random.seed(5)
    random.seed(7)
    assert torch.equal(chain.batch(IMAGES[order], 1, 2, KEYS[order]), whole[order])
    assert torch.equal(chain.sample(IMAGES[3], (1, 2, 3)), whole[3])
    assert not torch.equal(chain.batch(IMAGES, 1, 3, KEYS), whole)
    assert not torch.equal(chain.batch(IMAGES, 2, 2, KEYS), whole)


def test_numpy_and_random_are_seeded_too() -> None:
    chain = Transforms([lambda image: image + np.random.randint(99) + random.randint(0, 99)])
    first, again = (chain.sample(torch.zeros(1), (0, 0, 5)) for _ in range(2))
    assert torch.equal(first, again)


def test_deterministic_chains_run_on_the_batch() -> None:
    chain = Transforms([v2.Resize([4, 4]), v2.CenterCrop(2)])
    expected = torch.stack([v2.CenterCrop(2)(v2.Resize([4, 4])(image)) for image in IMAGES])
    assert torch.equal(chain.batch(IMAGES, 0, 0, KEYS), expected)
    assert chain.deterministic
    assert not Transforms([v2.Resize(4), v2.RandomCrop(2)]).deterministic


def test_a_chain_is_divided_at_its_first_random_member() -> None:
    resize, crop, pad = v2.Resize(4), v2.RandomCrop(2), v2.Pad(1)
    head, tail = Transforms([v2.Compose([resize, crop]), pad]).divide()
    assert (head.transforms, tail.transforms) == ((resize,), (crop, pad))


def test_an_empty_chain_gives_back_the_batch() -> None:
    assert Transforms().batch(IMAGES, 0, 0, KEYS) is IMAGES
    assert not Transforms()


def test_an_input_that_a_transform_cannot_take() -> None:
    with pytest.raises(DataError, match=r"RandomCrop cannot take an input of shape \(3, 8, 8\)"):
        Transforms([v2.RandomCrop(32)]).sample(IMAGES[0], (0,))


def test_samples_of_several_shapes() -> None:
    with pytest.raises(DataError, match=r"\(3, 8, 8\), \(3, 4, 4\)") as caught:
        stack([IMAGES[0], IMAGES[0, :, :4, :4]])
    assert "data/transform=resize" in caught.value.hint
