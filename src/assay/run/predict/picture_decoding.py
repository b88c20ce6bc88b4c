"""How the pictures of a run were decoded."""

from __future__ import annotations

from typing import Any

from assay.data.image_folder import ImageFolder
from assay.data.segmentation_folder import SegmentationFolder

_MODE_OF = {1: "GRAY", 3: "RGB"}


def decoding_of(
    source: Any, raw_shape: tuple[int, ...], dtype: str
) -> tuple[str, tuple[int, int] | None] | None:
    """Mode and size of pictures as the run's source decodes them; None where they are no pictures.

    Args:
        source: Of the run.
        raw_shape: Of a sample before the transforms, where that is known.
        dtype: Of the samples.
    """
    if isinstance(source, ImageFolder | SegmentationFolder):
        return source.mode, source.image_size
    if len(raw_shape) == 3 and raw_shape[0] in _MODE_OF and dtype == "uint8":
        return _MODE_OF[raw_shape[0]], None
    return None
