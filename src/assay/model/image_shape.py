"""The shape of one image, judged before a model is built for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def image_shape(input_shape: Sequence[int], model: str, *, minimum: int = 1) -> tuple[int, int, int]:
    """Read an input shape as channels, height and width.

    Args:
        input_shape: Shape of one sample, channels first.
        model: What the message calls the model, such as `model=lenet`.
        minimum: Smallest height and width that the model can take, in pixels.

    Returns:
        Channels, height and width.

    Raises:
        ValueError: It is not the shape of an image, or the image is too small.

    >>> image_shape([3, 32, 32], "model=lenet", minimum=8)
    (3, 32, 32)
    >>> image_shape([13], "model=lenet")
    Traceback (most recent call last):
    ValueError: model=lenet takes images [C,H,W], the data has [13]; use model=mlp
    """
    shape = f"[{','.join(str(size) for size in input_shape)}]"
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(f"{model} takes images [C,H,W], the data has {shape}; use model=mlp")
    channels, height, width = input_shape
    if min(height, width) < minimum:
        raise ValueError(
            f"{model} takes images of {minimum}x{minimum} pixels or more, the data has {shape}; use model=mlp"
        )
    return int(channels), int(height), int(width)
