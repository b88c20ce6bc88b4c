from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # scipy ships no types
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.augment.flip_crop import FlipCrop

if TYPE_CHECKING:
    from collections.abc import Callable

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


@pytest.mark.parametrize("flip", [0.0, 0.25, 1.0])
def test_flip_is_a_probability(flip: float) -> None:
    torch.manual_seed(1)
    images = distinct_images(4_000, 1, 3, 4)
    outputs, _ = FlipCrop(padding=0, flip=flip)(images, torch.zeros(len(images)))
    flipped = int((outputs == images.flip(-1)).all(dim=(1, 2, 3)).sum())
    kept = int((outputs == images).all(dim=(1, 2, 3)).sum())
    assert flipped + kept == len(images)
    assert stats.binomtest(flipped, len(images), flip).pvalue > 1e-3


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


def test_both_memory_formats_draw_the_same_windows() -> None:
    images = torch.rand(16, 3, 9, 7)
    torch.manual_seed(3)
    planes, _ = FlipCrop()(images, images)
    torch.manual_seed(3)
    pixels, _ = FlipCrop()(images.contiguous(memory_format=torch.channels_last), images)
    assert torch.equal(planes, pixels)


def test_manual_seed_fixes_the_draw() -> None:
    images, augment = torch.rand(32, 3, 8, 8), FlipCrop()
    torch.manual_seed(5)
    first, _ = augment(images, images)
    second, _ = augment(images, images)
    torch.manual_seed(5)
    again, _ = augment(images, images)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_refuses_what_is_no_image() -> None:
    message = r"augment=flip_crop takes images \[B,C,H,W\], got \[32, 13\]; use augment=none"
    with pytest.raises(ValueError, match=message):
        FlipCrop()(torch.rand(32, 13), torch.zeros(32))


@pytest.mark.parametrize(("key", "value"), [("padding", -1), ("padding", 1.5), ("flip", 1.5), ("flip", -0.1)])
def test_refuses_settings_that_mean_nothing(key: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{key}={value}"):
        FlipCrop(**{key: value})


@pytest.mark.parametrize(("size", "padding"), [(32, 4), (64, 8), (10, 1), (3, 0)])
def test_a_share_is_of_the_shorter_side(size: int, padding: int) -> None:
    images = torch.rand(5, 3, size, size + 4)
    torch.manual_seed(0)
    by_share, _ = FlipCrop(padding=0.125)(images, torch.zeros(5))
    torch.manual_seed(0)
    in_pixels, _ = FlipCrop(padding=padding)(images, torch.zeros(5))
    assert torch.equal(by_share, in_pixels)


def test_beats_a_loop_over_the_images() -> None:
    images, targets = torch.rand(256, 3, 32, 32), torch.zeros(256)
    augment = FlipCrop()
    each = v2.Compose([v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()])

    def seconds(call: Callable[[], object]) -> float:
        start = perf_counter()
        call()
        return perf_counter() - start

    # The fastest of interleaved calls: what else runs on the machine only adds to a time.
    whole, loop = zip(
        *(
            (
                seconds(lambda: augment(images, targets)),
                seconds(lambda: torch.stack([each(image) for image in images])),
            )
            for _ in range(10)
        ),
        strict=True,
    )
    assert min(whole) < min(loop) / 3
