"""Names of a library's networks."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


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
