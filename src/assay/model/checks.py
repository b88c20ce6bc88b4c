"""What a model refuses: inputs of another shape or kind, and unknown names of networks."""

from __future__ import annotations

import difflib
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


def check_vocabulary(model: str, vocab_size: int) -> None:
    """Refuse data whose inputs are not token ids.

    Args:
        model: For the message.
        vocab_size: Of the data; 0 where it has no tokens.

    Raises:
        ValueError: There are no token ids.
    """
    if vocab_size < 1:
        raise ValueError(
            f"vocab_size={vocab_size}: model={model} takes texts, as data=text_table gives them; this data "
            "has none: model=small_cnn takes pictures, model=mlp numbers"
        )


def check_network_name(name: str, known: Sequence[str], what: str, example: str) -> None:
    """Refuse a name that a library does not know.

    Args:
        name: What was given; what follows a dot in it does not count.
        known: The library's names.
        what: What they are names of.
        example: One of them.

    Raises:
        ValueError: With the closest names.

    >>> check_network_name("resnet8", ["resnet18", "vgg11"], "network of torchvision", "vgg11")
    Traceback (most recent call last):
    ValueError: model.name=resnet8 is not a network of torchvision; close to it: resnet18
    """
    plain = str(name).partition(".")[0]
    if plain not in known:
        close = difflib.get_close_matches(plain.lower(), known, n=3, cutoff=0.4)
        raise ValueError(
            f"model.name={name} is not a {what}; "
            + (f"close to it: {', '.join(close)}" if close else f"one is {example}")
        )
