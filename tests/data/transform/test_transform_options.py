"""What stands under `data.transform` is refused with its key; DataModule's tests hold what it does."""

from __future__ import annotations

from typing import Any

import pytest
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.transforms import chain_of, given, given_scale
from assay.errors import DataError


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
        given_scale(by)


def test_scales() -> None:
    assert given_scale(None) == ((), ())
    assert given_scale("data") is None
    assert given_scale({"mean": [0.5], "std": [2]}) == ((0.5,), (2.0,))


def test_chains() -> None:
    assert len(chain_of({"eval": [v2.Resize(4)]}, "eval").transforms) == 1
    for chain in (None, "Resize", [1]):
        with pytest.raises(DataError, match=r"data\.transform\.eval"):
            chain_of({"eval": chain}, "eval")
    with pytest.raises(DataError, match=r"data\.transform\.train: this must be given"):
        given({}, "train")
