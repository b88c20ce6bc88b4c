"""Where a network looks: what its probability of a class loses when a part of the picture is grey."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from assay.data.core.rendering import eval_samples
from assay.task.predictions import draw_beside

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.assemble.assembly import Assembly
    from assay.module import Module
    from assay_analysis.predictions_file import KeptSample

_MOST = 8
_GRID = 8
_BATCH = 32
_SECONDS = 10.0
_RED = (220, 30, 30)
_BLUE = (30, 60, 220)
_ALPHA = 0.75


def show_occlusions(
    assembly: Assembly,
    module: Module,
    samples: Sequence[KeptSample],
    positions: Sequence[int],
) -> list[KeptSample]:
    """The first of some tested pictures, with what of them speaks for the class that is predicted."""
    pictures = [
        (sample, sample.picture, position)
        for sample, position in zip(samples, positions, strict=True)
        if sample.picture is not None
    ][:_MOST]
    maps = occlusion_maps(assembly, module, [position for _, _, position in pictures])
    return [
        sample._replace(reason="occlusion", picture=draw_occlusion(picture, falls))
        for (sample, picture, _), falls in zip(pictures, maps, strict=False)
    ]


def occlusion_maps(
    assembly: Assembly, module: Module, positions: Sequence[int]
) -> Iterator[NDArray[Any]]:
    """The fall of the predicted class's probability at each cell of a grid, for tested pictures.

    After Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks": a patch of two cells
    by two, of the mean colour of the picture, is moved over it. Ends early where this takes long.
    """
    data: Any = assembly.datamodule
    task = module.task
    module.eval().to(data.device)
    start = time.monotonic()
    for position in positions:
        inputs, targets = eval_samples(data, data.tested, [position])
        outputs: list[Tensor] = []
        for given in _occlude(inputs[0]).split(_BATCH):  # type: ignore[no-untyped-call]  # torch leaves it untyped
            batch = given, targets.expand(len(given), *targets.shape[1:])
            with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
                scores = module.scored(module.evaluated(batch))
            outputs.append(task.postprocess(scores, "probabilities").float().cpu())
        probabilities = torch.cat(outputs)
        whole, *occluded = probabilities[:, probabilities[0].argmax()].tolist()
        yield whole - np.array(occluded).reshape(_GRID, _GRID)
        if time.monotonic() - start > _SECONDS:
            return


def _occlude(image: Tensor) -> Tensor:
    """The picture, and a copy for each cell of a grid, whose surroundings have the mean colour."""
    height, width = image.shape[1:]
    copies = image.repeat(1 + _GRID * _GRID, 1, 1, 1)
    mean = image.mean((1, 2), keepdim=True)
    for index in range(_GRID * _GRID):
        row, column = divmod(index, _GRID)
        copies[1 + index, :, _patch(row, height), _patch(column, width)] = mean
    return copies


def _patch(cell: int, length: int) -> slice:
    """Of a cell of the grid, the pixels that are occluded: it and half a cell at either end."""
    first = math.floor((cell - 0.5) * length / _GRID)
    return slice(max(0, first), math.ceil((cell + 1.5) * length / _GRID))


def draw_occlusion(picture: bytes, falls: NDArray[Any]) -> bytes:
    """Encode a PNG file: a picture, then red where it speaks for the class, and blue where against it."""
    strength = np.abs(falls) / (np.abs(falls).max() or 1)
    weight = Image.fromarray((255 * _ALPHA * strength).astype(np.uint8), "L")
    cells = np.where(falls[..., None] > 0, _RED, _BLUE).astype(np.uint8)
    colours = Image.fromarray(cells, "RGB")

    def overlay(base: Image.Image) -> Image.Image:
        of_base = colours.resize(base.size, Image.Resampling.NEAREST)
        return Image.composite(of_base, base, weight.resize(base.size, Image.Resampling.BILINEAR))

    return draw_beside(picture, [overlay])
