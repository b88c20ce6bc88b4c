"""Augmentations of a batch."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from scipy import special, stats  # type: ignore[import-untyped]  # scipy ships no types
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # it has no stubs
from torchvision.transforms.v2 import InterpolationMode  # type: ignore[import-untyped]  # it has no stubs
from torchvision.transforms.v2.functional import affine  # type: ignore[import-untyped]  # it has no stubs

from assay.augment.flip_crop import FlipCrop
from assay.augment.progressive_resize import ProgressiveResize
from assay.augment.random_affine import RandomAffine
from assay.augment.teacher import Teacher
from assay.augment.two_views import TwoViews

CONF = Path(__file__).parents[2] / "conf" / "augment"


def option(name: str, **values: Any) -> Any:
    node = OmegaConf.merge(OmegaConf.load(CONF / f"{name}.yaml"), values)
    config = OmegaConf.create({"spec": {"num_classes": 4}, "augment": node})
    return instantiate(config).augment


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(8, 3, 10, 12), torch.tensor([0, 1, 2, 3, 3, 2, 1, 0])


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


Window = tuple[int, int, bool]


def windows(image: np.ndarray, padding: int) -> dict[bytes, Window]:
    """Every crop and flip of one image `[C, H, W]`, written out with numpy."""
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)))
    found: dict[bytes, Window] = {}
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[:, top : top + height, left : left + width]
            found[np.ascontiguousarray(crop).tobytes()] = (top, left, False)
            found[np.ascontiguousarray(crop[:, :, ::-1]).tobytes()] = (top, left, True)
    return found


def distinct_images(
    batch: int, channels: int, height: int, width: int, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """No two pixels alike, none zero, so that an image tells which window it is."""
    count = channels * height * width
    image = torch.arange(1, count + 1, dtype=dtype).reshape(1, channels, height, width)
    return image.repeat(batch, 1, 1, 1)


@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 9),
    channels=st.integers(1, 4),
    height=st.integers(2, 7),
    width=st.integers(2, 7),
    padding=st.integers(0, 3),
    channels_last=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_output_is_a_window_of_its_own_padded_image(
    *, batch: int, channels: int, height: int, width: int, padding: int, channels_last: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    images = distinct_images(batch, channels, height, width) + 1000.0 * torch.arange(batch).view(-1, 1, 1, 1)
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    outputs, _ = FlipCrop(padding=padding)(images.contiguous(memory_format=memory_format), torch.zeros(batch))
    for image, output in zip(images.numpy(), outputs.numpy(), strict=True):
        assert np.ascontiguousarray(output).tobytes() in windows(image, padding)


def test_all_windows_are_drawn_alike_and_for_each_sample_anew() -> None:
    torch.manual_seed(0)
    padding, images = 2, distinct_images(20_000, 1, 5, 6)
    outputs, _ = FlipCrop(padding=padding, flip=0.5)(images, torch.zeros(len(images)))
    known = windows(images[0].numpy(), padding)
    assert len(known) == 5 * 5 * 2
    counts = dict.fromkeys(known.values(), 0)
    for output in outputs.numpy():
        counts[known[output.tobytes()]] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3
    # A window says nothing of the next sample's.
    drawn = [known[output.tobytes()][:2] for output in outputs.numpy()]
    table = np.zeros((5, 5))
    for (top, _), (next_top, _) in zip(drawn[:-1:2], drawn[1::2], strict=True):
        table[top, next_top] += 1
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_keeps_shape_dtype_and_memory_format_and_leaves_its_input_alone(
    dtype: torch.dtype, memory_format: torch.memory_format
) -> None:
    images = torch.randint(1, 250, (6, 3, 8, 10)).to(dtype).contiguous(memory_format=memory_format)
    before, targets = images.clone(), torch.arange(6)
    outputs, passed = FlipCrop(padding=3)(images, targets)
    assert (outputs.shape, outputs.dtype) == (images.shape, dtype)
    assert outputs.is_contiguous(memory_format=memory_format)
    assert torch.equal(images, before)
    assert passed is targets


@pytest.mark.parametrize(("key", "value"), [("padding", -1), ("padding", 1.5), ("flip", 1.5), ("flip", -0.1)])
def test_refuses_settings_that_mean_nothing(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{key}={value}"):
        FlipCrop(**{key: value})  # type: ignore[arg-type]  # none is a bool


@pytest.mark.parametrize(("size", "padding"), [(32, 4), (64, 8), (10, 1), (3, 0)])
def test_a_share_is_of_the_shorter_side(size: int, padding: int) -> None:
    images = torch.rand(5, 3, size, size + 4)
    torch.manual_seed(0)
    by_share, _ = FlipCrop(padding=0.125)(images, torch.zeros(5))
    torch.manual_seed(0)
    in_pixels, _ = FlipCrop(padding=padding)(images, torch.zeros(5))
    assert torch.equal(by_share, in_pixels)


STILL: Final[dict[str, Any]] = {"degrees": 0.0, "translate": 0.0, "scale": (1.0, 1.0), "shear": 0.0}


@pytest.mark.parametrize(
    ("values", "torchvisions"),
    [
        ({"degrees": 30.0}, lambda d: {"angle": -30.0 * d[0]}),
        ({"scale": (0.5, 2.0)}, lambda d: {"scale": 0.5 + 1.5 * (d[2] + 1) / 2}),
    ],
    ids=["degrees", "scale"],
)
def test_each_image_as_torchvision_does_one(values: dict[str, object], torchvisions: object) -> None:
    images = torch.rand(3, 2, 8, 12, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    found = RandomAffine(**{**STILL, **values})(images)
    torch.manual_seed(1)
    draws = 2 * torch.rand(5, 3) - 1
    for at in range(3):
        same = {"angle": 0.0, "translate": [0, 0], "scale": 1.0, "shear": [0.0, 0.0]}
        told = {**same, **torchvisions(draws[:, at].tolist())}  # type: ignore[operator]  # a function
        expected = affine(images[at], interpolation=InterpolationMode.BILINEAR, **told)
        torch.testing.assert_close(found[at], expected, atol=1e-4, rtol=1e-4)


def test_a_shift_by_one_pixel() -> None:
    image, moved = torch.arange(16.0).reshape(1, 1, 4, 4), RandomAffine(**{**STILL, "translate": 0.25})
    torch.manual_seed(0)
    draws = 2 * torch.rand(5, 1) - 1
    torch.manual_seed(0)
    found = moved(image)[0, 0]
    right = float(draws[3, 0])  # of a pixel, from the left if it is below 0
    x = 2 + right
    assert found[1, 2].isfinite()
    y = 1 + float(draws[4, 0])
    low_x, low_y = math.floor(x), math.floor(y)
    between = [
        (1 - abs(x - i)) * (1 - abs(y - j)) * float(image[0, 0, j, i])
        for i in (low_x, low_x + 1)
        for j in (low_y, low_y + 1)
        if 0 <= i < 4 and 0 <= j < 4
    ]
    assert found[1, 2].item() == pytest.approx(sum(between), abs=1e-4)


@pytest.mark.parametrize(
    "values", [{"degrees": -1.0}, {"shear": 90.0}, {"scale": [1.2, 0.8]}, {"scale": [0.0, 1.0]}]
)
def test_numbers_out_of_range(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        RandomAffine(**values)  # type: ignore[arg-type]  # wrong on purpose


def classifier(features: int = 5, classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, classes))


@pytest.mark.parametrize(("temperature", "hard_weight"), [(1.0, 0.0), (2.0, 0.1), (4.0, 0.7), (3.0, 1.0)])
@pytest.mark.parametrize("soft", [False, True])
def test_targets_are_the_formula_of_the_paper(temperature: float, hard_weight: float, soft: bool) -> None:
    model = classifier().eval()
    inputs = torch.randn(7, 5)
    hard = torch.tensor([0, 1, 2, 2, 1, 0, 1])
    onehot = np.eye(3)[hard.numpy()]
    targets = torch.from_numpy(onehot).float() if soft else hard
    with torch.no_grad():
        logits = model(inputs).double().numpy()
    expected = (1 - hard_weight) * special.softmax(logits / temperature, axis=1) + hard_weight * onehot
    passed, mixed = Teacher(model, temperature, hard_weight)(inputs, targets)
    assert passed is inputs
    assert mixed.dtype == torch.float32
    np.testing.assert_allclose(mixed.numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(mixed.sum(1).numpy(), 1.0, atol=1e-6)


def test_is_no_part_of_the_module_that_holds_it() -> None:
    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = nn.Linear(5, 3)
            self.augment = Teacher(classifier())

    student = Student()
    assert sorted(student.state_dict()) == ["model.bias", "model.weight"]
    assert len(list(student.parameters())) == 2
    inputs, targets = torch.randn(6, 5), torch.zeros(6, dtype=torch.int64)
    student.train()
    _, first = student.augment(inputs, targets)
    student.train()
    _, second = student.augment(inputs, targets)
    assert torch.equal(first, second), "dropout of a frozen teacher is off"
    assert copy.deepcopy(student).augment.model is student.augment.model


def test_frozen_without_gradient_and_unchanged_by_use() -> None:
    model = classifier()
    before = copy.deepcopy(model.state_dict())
    inputs = torch.randn(6, 5, requires_grad=True)
    _, mixed = Teacher(model)(inputs, torch.zeros(6, dtype=torch.int64))
    assert not mixed.requires_grad
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    (torch.log_softmax(inputs[:, :3], 1) * mixed).sum().backward()  # type: ignore[no-untyped-call]  # torch's stub
    assert inputs.grad is not None


@pytest.mark.parametrize(("temperature", "hard_weight"), [(0.0, 0.1), (-1.0, 0.1), (1.0, 1.1), (1.0, -0.1)])
def test_refuses_settings_that_mean_nothing_of_teacher(temperature: float, hard_weight: float) -> None:
    with pytest.raises(ValueError, match=r"temperature=|hard_weight="):
        Teacher(nn.Linear(2, 2), temperature, hard_weight)


CONF_TWO_VIEWS = Path(__file__).parents[2] / "conf" / "augment" / "two_views.yaml"


def shipped() -> Any:
    return instantiate(OmegaConf.load(CONF_TWO_VIEWS))


def test_every_sample_and_view_is_drawn_by_itself() -> None:
    torch.manual_seed(0)
    picture = torch.randn(1, 1, 8, 8)
    views, samples = shipped()(picture.expand(5, 1, 8, 8), torch.zeros(5))
    assert views.shape == (10, 1, 8, 8)
    assert samples.tolist() == [0, 1, 2, 3, 4] * 2
    assert len({tuple(view.flatten().tolist()) for view in views}) == 10


def test_a_view_is_made_of_its_own_sample() -> None:
    values = torch.arange(6.0)[:, None].expand(6, 3)
    for one_by_one in (True, False):
        add = TwoViews([v2.GaussianNoise(sigma=1e-4, clip=False)], one_by_one=one_by_one)
        torch.manual_seed(0)
        views, samples = add(values[:, None], torch.zeros(6))
        torch.testing.assert_close(views[:, 0, 0].round(), samples.float())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_alternating_flips_show_each_image_both_ways_in_two_epochs(layout: torch.memory_format) -> None:
    torch.manual_seed(0)
    images, targets = torch.randn(400, 3, 8, 6).contiguous(memory_format=layout), torch.arange(400)
    augment = FlipCrop(padding=0, alternate=True)
    flipped: list[Tensor] = []
    for epoch in range(4):
        augment.set_epoch(epoch)
        order = torch.randperm(400)  # whatever the batch, an image is told by its pixels
        seen = torch.empty_like(images)
        for rows in (order[:150], order[150:300], order[300:]):
            seen[rows] = augment(images[rows], targets[rows])[0]
        is_flipped = (seen == images.flip(3)).flatten(1).all(1)
        assert torch.equal(seen[~is_flipped], images[~is_flipped])
        flipped.append(is_flipped)
    assert torch.equal(flipped[1], ~flipped[0])
    assert torch.equal(flipped[2], flipped[0])
    assert torch.equal(flipped[3], flipped[1])
    assert stats.binomtest(int(flipped[0].sum()), 400).pvalue > 0.001
    with pytest.raises(ValueError, match=r"flip=0\.1: alternating flips are half of all"):
        FlipCrop(flip=0.1, alternate=True)


def test_progressive_resize_is_a_resampling_until_its_share_of_the_steps() -> None:
    images, targets = torch.randn(2, 3, 16, 12), torch.tensor([0, 1])
    augment = ProgressiveResize(80, 20, scale=0.75, until=0.3)
    sizes = []
    for epoch in range(4):
        augment.set_epoch(epoch)
        resized, same = augment(images, targets)
        assert same is targets
        sizes.append(list(resized.shape[2:]))
        if epoch < 2:
            exact = v2.functional.resize(images, [12, 9], antialias=True)
            torch.testing.assert_close(resized, exact)
        else:
            assert resized is images
    assert sizes == [[12, 9], [12, 9], [16, 12], [16, 12]]
    with pytest.raises(ValueError, match="does not scale masks"):
        augment(images, torch.zeros(2, 16, 12))
    with pytest.raises(ValueError, match=r"takes images \[B,C,H,W\], got \[2, 5\]"):
        augment(torch.zeros(2, 5), targets)
