"""Checks of models: shape and kind of inputs, and names of networks."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def parse_image_shape(
    input_shape: Sequence[int], model: str, *, minimum: int = 1
) -> tuple[int, int, int]:
    """Parse an input shape into channels, height and width."""
    shape = f"[{','.join(str(size) for size in input_shape)}]"
    if len(input_shape) != 3 or min(input_shape) < 1:
        raise ValueError(f"{model} takes images [C,H,W], the data has {shape}; use model=mlp")
    channels, height, width = input_shape
    if min(height, width) < minimum:
        raise ValueError(
            f"{model} takes images of {minimum}x{minimum} pixels or more, the data has {shape}; use model=mlp"
        )
    return int(channels), int(height), int(width)


def check_vocabulary(model: str, vocab_size: int, data: str = "text_table") -> None:
    """Refuse data whose inputs are not token ids."""
    if vocab_size < 1:
        raise ValueError(
            f"vocab_size={vocab_size}: model={model} takes texts, such as those of data={data}; this data "
            "has none: use model=small_cnn for images, model=mlp for numbers"
        )


def check_network_name(name: str, names: Sequence[str], kind: str, example: str) -> None:
    """Refuse a name that a library does not have."""
    plain = str(name).partition(".")[0]
    if plain not in names:
        close = difflib.get_close_matches(plain.lower(), names, n=3, cutoff=0.4)
        raise ValueError(
            f"model.name={name} is not a {kind}; "
            + (f"similar names: {', '.join(close)}" if close else f"for example {example}")
        )
