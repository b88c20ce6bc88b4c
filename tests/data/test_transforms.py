"""Transforms, and the statistics that inputs are normalized by."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]  # scikit-learn ships no types
from torchvision import tv_tensors  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.loaders import input_statistics, target_statistics
from assay.data.core.normalize import IMAGENET_MEAN, IMAGENET_STD, Normalize, TargetScale, statistics
from assay.data.core.samples import Samples
from assay.data.core.split import Split
from assay.data.core.splits import read_splits
from assay.data.core.subset import Subset
from assay.data.core.transforms import (
    Transforms,
    chain_of,
    configured_scale,
    pretrained_scale,
    seed_generators,
)
from assay.errors import DataError
from assay.task.segmentation import IGNORED

IMAGES = torch.randint(0, 256, (6, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
KEYS = torch.arange(6)


def transformed(
    chain: Transforms, inputs: torch.Tensor, seed: int = 0, epoch: int = 0, keys: torch.Tensor | None = None
) -> torch.Tensor:
    keys = torch.arange(len(inputs)) if keys is None else keys
    return chain.pairs(inputs, torch.zeros(len(inputs)), seed, epoch, keys)[0]


def test_each_sample_of_a_batch_gets_a_draw_of_its_own() -> None:
    same = IMAGES[:1].expand(64, -1, -1, -1)
    flipped = transformed(Transforms([v2.RandomHorizontalFlip(0.5)]), same)
    is_flipped = [(one != IMAGES[0]).any().item() for one in flipped]
    assert 10 < sum(is_flipped) < 54


def test_the_draw_depends_on_seed_epoch_and_sample_alone() -> None:
    chain = Transforms([v2.RandomCrop(8, padding=4), v2.ColorJitter(0.5)])
    whole = transformed(chain, IMAGES, 1, 2)
    order = torch.tensor([4, 1])
    torch.manual_seed(123)
    np.random.seed(5)
    random.seed(7)
    assert torch.equal(transformed(chain, IMAGES[order], 1, 2, KEYS[order]), whole[order])
    assert torch.equal(chain.pair(IMAGES[3], 0, (1, 2, 3))[0], whole[3])
    assert not torch.equal(transformed(chain, IMAGES, 1, 3), whole)
    assert not torch.equal(transformed(chain, IMAGES, 2, 2), whole)


def test_numpy_and_random_are_seeded_too() -> None:
    chain = Transforms([lambda image: image + np.random.randint(99) + random.randint(0, 99)])
    first, again = (chain.pair(torch.zeros(1), 0, (0, 0, 5))[0] for _ in range(2))
    assert torch.equal(first, again)


def test_deterministic_chains_run_on_the_batch() -> None:
    chain = Transforms([v2.Resize([4, 4]), v2.CenterCrop(2)])
    expected = torch.stack([v2.CenterCrop(2)(v2.Resize([4, 4])(image)) for image in IMAGES])
    assert torch.equal(transformed(chain, IMAGES), expected)
    assert chain.deterministic
    assert not Transforms([v2.Resize(4), v2.RandomCrop(2)]).deterministic


def test_an_input_that_a_transform_cannot_take() -> None:
    with pytest.raises(DataError, match=r"RandomCrop cannot take an input of shape \(3, 8, 8\)"):
        Transforms([v2.RandomCrop(32)]).pair(IMAGES[0], 0, (0,))


class _OfTwo(torch.nn.Module):
    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return inputs + targets


class _Failing(torch.nn.Module):
    def forward(self, _: torch.Tensor) -> torch.Tensor:
        raise TypeError("mine")


def test_a_custom_transform_that_is_called_with_an_argument_too_few() -> None:
    chain = Transforms([_OfTwo()], ["data.transform.train[0]"])
    message = r"data.transform.train\[0\]: _OfTwo cannot take .*missing 1 required positional argument"
    with pytest.raises(DataError, match=message):
        chain.pair(IMAGES[0], 0, (0,))
    with pytest.raises(TypeError, match="mine"):  # an error of its own code, whose line is shown
        Transforms([_Failing()]).pair(IMAGES[0], 0, (0,))


GENERATOR = torch.Generator().manual_seed(0)
PICTURES = torch.randint(0, 256, (3, 3, 12, 16), dtype=torch.uint8, generator=GENERATOR)
MASKS = torch.randint(0, 5, (3, 12, 16), dtype=torch.uint8, generator=GENERATOR)
FILLED = {tv_tensors.Image: 7, tv_tensors.Mask: IGNORED}

PAIRS: dict[str, tuple[Any, Any]] = {
    "flip": (v2.RandomHorizontalFlip(), v2.RandomHorizontalFlip()),
    "resized crop": (v2.RandomResizedCrop((8, 8)), v2.RandomResizedCrop((8, 8))),
    "padded crop": (v2.RandomCrop(12, padding=4, fill=7), v2.RandomCrop(12, padding=4, fill=FILLED)),
    "rotation": (v2.RandomRotation(90, fill=7), v2.RandomRotation(90, fill=FILLED)),
    "resize": (v2.Resize((5, 7)), v2.Resize((5, 7))),
}


@pytest.mark.parametrize("name", PAIRS)
def test_as_torchvision_has_it(name: str) -> None:
    ours, theirs = PAIRS[name]
    inputs, masks = Transforms([ours], masks=True).pairs(PICTURES, MASKS, 1, 2, torch.arange(3))
    for at in range(3):
        seed_generators((1, 2, at))
        picture, mask = theirs(tv_tensors.Image(PICTURES[at]), tv_tensors.Mask(MASKS[at]))
        assert torch.equal(inputs[at], picture.as_subclass(torch.Tensor))
        assert torch.equal(masks[at], mask.as_subclass(torch.Tensor))
        assert type(masks[at]) is torch.Tensor


def test_what_loses_the_mask_is_refused() -> None:
    with pytest.raises(DataError, match="expected a Mask of the same height and width"):
        Transforms([v2.ToPureTensor(), v2.RandomHorizontalFlip()], masks=True).pair(
            PICTURES[0], MASKS[0], (0, 0, 0)
        )


IMAGENET = {"mean": (0.4, 0.5, 0.6), "std": (0.2, 0.2, 0.2), "size": (224, 224), "source": "timm's resnet18"}
BYTES, ONES = torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.ones(2, 3, 224, 224)


def test_grey_images_are_as_three_equal_channels() -> None:
    mean, std = pretrained_scale(IMAGENET, "auto", BYTES[:, :1], None)[0] or ((), ())
    assert mean == pytest.approx([0.5])
    assert std == pytest.approx([0.2])


@pytest.mark.parametrize(
    ("first", "why"),
    [(torch.zeros(2, 5, 8, 8), "the data has 5 channels"), (ONES * 16, "the data is not in [0, 1]")],
)
def test_where_they_make_no_sense_the_datas_own_are_taken_and_that_is_said(
    first: torch.Tensor, why: str
) -> None:
    scale, notes = pretrained_scale(IMAGENET, "auto", first, None)
    assert scale is None
    assert notes[-1].startswith(f"{why}, so inputs are normalised with the data's own statistics")


def test_those_of_a_run_are_in_the_datas_own_unit() -> None:
    run = {"mean": (5.0,), "std": (6.0,), "size": (8, 8), "source": "the run outputs/a"}
    assert pretrained_scale(run, "auto", torch.ones(2, 1, 8, 8) * 16, None)[0] == ((5.0,), (6.0,))


@pytest.mark.parametrize(
    ("by", "given"), [("data", None), ("imagenet", ((0.1,) * 3, (0.2,) * 3)), (None, ((), ()))]
)
def test_what_contradicts_the_weights_is_kept_and_said(by: str | None, given: object) -> None:
    scale, [note] = pretrained_scale(IMAGENET, by, ONES, given)  # type: ignore[arg-type]  # as a parametrization gives it
    assert scale is None
    assert "were trained with mean [0.4, 0.5, 0.6], std" in note
    assert "normalize=auto takes these" in note
    same = ((0.4, 0.5, 0.6), (0.2, 0.2, 0.2))
    assert pretrained_scale(IMAGENET, "imagenet", ONES, same) == (None, [])


def test_another_size_is_said_and_nothing_without_weights() -> None:
    _, notes = pretrained_scale(IMAGENET, "auto", BYTES, None)
    assert "trained on images of 224×224 pixels, the data has 8×8" in notes[0]
    assert pretrained_scale(None, "auto", ONES, None) == (None, [])


@pytest.mark.parametrize(
    "by",
    [
        "mine",
        3,
        {"mean": [0.5]},
        {"mean": [0.5], "std": [1, 2]},
        {"mean": ["a"], "std": [1]},
        {"mean": [0], "std": [-0.5]},
        {"mean": [0, 0], "std": [1, 0]},
    ],
)
def test_what_is_not_a_scale_is_refused(by: Any) -> None:
    with pytest.raises(DataError, match=r"data\.transform\.normalize"):
        configured_scale(by)


def test_chains() -> None:
    assert len(chain_of({"eval": [v2.Resize(4)]}, "eval").transforms) == 1
    for chain in (None, "Resize", [1]):
        with pytest.raises(DataError, match=r"data\.transform\.eval"):
            chain_of({"eval": chain}, "eval")
    assert not chain_of({}, "train")


def test_bytes_as_torchvision_does_it() -> None:
    images = torch.randint(0, 256, (5, 3, 6, 7), dtype=torch.uint8)
    chain = v2.Compose(
        [v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(IMAGENET_MEAN), list(IMAGENET_STD))]
    )
    ours = Normalize(IMAGENET_MEAN, IMAGENET_STD)(images, torch.float32)
    torch.testing.assert_close(ours, chain(images), atol=1e-5, rtol=1e-5)


def test_tables_as_numpy_does_it_with_a_constant_feature() -> None:
    table = np.random.default_rng(0).normal(3, 5, (50, 4))
    table[:, 2] = 7
    mean, std = table.mean(0), table.std(0)
    ours = Normalize(mean.tolist(), std.tolist())(torch.from_numpy(table), torch.float64)
    expected = (table - mean) / np.where(std == 0, 1, std)
    np.testing.assert_allclose(ours.numpy(), expected, atol=1e-9)


def test_without_statistics_bytes_become_shares_and_floats_stay() -> None:
    bytes_ = torch.tensor([[0, 51, 255]], dtype=torch.uint8)
    torch.testing.assert_close(Normalize()(bytes_, torch.float32), torch.tensor([[0.0, 0.2, 1.0]]))
    halves = torch.rand(2, 3, dtype=torch.float64)
    assert Normalize()(halves, torch.float32).dtype == torch.float32
    assert Normalize()(torch.tensor([[True, False]]), torch.float32).tolist() == [[1.0, 0.0]]


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    channels=st.integers(1, 20),
    as_bytes=st.booleans(),
    images=st.booleans(),
)
def test_statistics_as_numpy_has_them(sizes: list[int], channels: int, as_bytes: bool, images: bool) -> None:
    rng = np.random.default_rng(len(sizes))
    shape = (sum(sizes), channels, 3, 2) if images else (sum(sizes), channels)
    data = (
        rng.integers(0, 256, shape, dtype=np.uint8)
        if as_bytes
        else rng.normal(0, 2, shape).astype(np.float32)
    )
    mean, std = statistics(torch.split(torch.from_numpy(data), sizes))
    axes = (0, 2, 3) if images else (0,)
    exact = data.astype(np.float64) / (255 if as_bytes else 1)
    np.testing.assert_allclose(mean, exact.mean(axes), atol=1e-9)
    np.testing.assert_allclose(std, exact.std(axes), atol=1e-9)


def test_statistics_survive_a_large_offset() -> None:
    """The textbook formula E[x²] - E[x]² would give nonsense here."""
    values = 1e8 + torch.tensor([[0.0], [1.0], [2.0], [3.0]], dtype=torch.float64)
    mean, std = statistics(torch.split(values, 1))
    assert mean[0] == pytest.approx(1e8 + 1.5, abs=1e-6)
    assert std[0] == pytest.approx(np.sqrt(1.25), abs=1e-6)


TARGETS = np.random.default_rng(0).normal([3e5, -2e-6, 1e6], [1e5, 1e-6, 1.0], (500, 3))
SCALER = StandardScaler().fit(TARGETS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_there_and_back_as_scikit_learn(dtype: torch.dtype) -> None:
    scale = TargetScale(SCALER.mean_.tolist(), SCALER.scale_.tolist())
    targets = torch.from_numpy(TARGETS).to(dtype)
    standard = scale.standardize(targets)
    assert standard.dtype == dtype
    exact = 1e-12 if dtype == torch.float64 else 0.07  # a million in 32 bits is known to 0.06
    np.testing.assert_allclose(standard.numpy(), SCALER.transform(TARGETS), atol=exact)
    back = scale.restore(standard)
    rounding = torch.finfo(dtype).eps * 4 * (np.abs(SCALER.mean_) + np.abs(TARGETS) + SCALER.scale_)
    assert (np.abs(back.numpy() - targets.numpy()) <= rounding).all()


INPUTS = torch.randn(50, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 7 + 2
ROWS = torch.arange(5, 45)


class Counting:
    """A data set that knows how often each sample was read."""

    def __init__(self) -> None:
        self.reads = [0] * len(INPUTS)

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        self.reads[index] += 1
        return INPUTS[index], 0


def of(data: Samples, scale: Any = None) -> Any:
    first = data.inputs[:2] if data.in_memory else INPUTS[:2]
    subset = Subset(data, ROWS, ROWS, Transforms(), "train")
    return input_statistics(subset, first, scale, seed=0, num_workers=0)


@pytest.mark.parametrize("known", [False, True])
def test_what_is_streamed_is_read_once(known: bool) -> None:
    dataset = Counting()
    scale = ((1.0,), (2.0,)) if known else None
    found = of(Samples(dataset, torch.zeros(50).long()), scale)
    assert dataset.reads == ([0] * 50 if known else [0] * 5 + [1] * 40 + [0] * 5)
    training = INPUTS[5:45].double().transpose(0, 1).flatten(1).numpy()
    expected = scale or (training.mean(1), training.std(1))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


def test_real_targets_alone_are_standardised(given_source: Any) -> None:
    values = torch.randn(60, 2, generator=torch.Generator().manual_seed(1)) * 30 + 100
    values[:, 1] = torch.arange(60) % 2
    source = given_source({"all": Samples(torch.rand(60, 3), values)}, "regression", ("price", "size"))
    splits = read_splits(source, Split(0.1, 0.2), None)
    train = values[splits.rows["train"]].double().numpy()
    mean, std = target_statistics(splits)
    np.testing.assert_allclose(mean, train.mean(0), rtol=1e-6)
    np.testing.assert_allclose(std, train.std(0), rtol=1e-6)
    classes = given_source(
        {"all": Samples(torch.rand(60, 3), torch.arange(60) % 2)}, "multiclass", ("a", "b")
    )
    assert target_statistics(read_splits(classes, Split(0.1, 0.2), None)) == ((), ())
