from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.data.image_folder import ImageFolder
from assay.run.predict.preprocess import decoding_of

if TYPE_CHECKING:
    from pathlib import Path


def test_pictures_are_decoded_as_their_folder_was(tmp_path: Path) -> None:
    source = ImageFolder(str(tmp_path), mode="GRAY", image_size=(8, 6))
    assert decoding_of(source, (), "") == ("GRAY", (8, 6))


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((3, 8, 8), "uint8", ("RGB", None)),
        ((1, 8, 8), "uint8", ("GRAY", None)),
        ((4, 8, 8), "uint8", None),
        ((3, 8, 8), "float32", None),
        ((13,), "uint8", None),
    ],
)
def test_arrays_of_bytes_are_pictures(
    shape: tuple[int, ...], dtype: str, expected: tuple[str, None] | None
) -> None:
    assert decoding_of(None, shape, dtype) == expected
