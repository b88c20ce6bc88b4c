from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

from assay.errors import DataError
from assay.task.figures.class_figures import Masks
from assay.task.predictions import MaskPredictions, side_by_side, swatch
from assay.task.task import Task, check_trained_classes, describe_subset, wrong_form

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch
    from torch import Tensor

    from assay.figure import Array
    from assay.task.evaluator import Evaluator
    from assay.task.predictions import Kind, Predictions, StoredPredictions

IGNORED = 255
"""The class of pixels that loss and metrics ignore; a mask of bytes has up to 255 other classes."""


@final
class Segmentation(Task):
    """One of C classes per pixel: targets are int64 `[N, H, W]`, the model returns `[B, C, H, W]`.

    Masks may be stored as uint8. If samples are streamed or only declared, pixel counts of each class replace
    their masks: int32 `[N, C]`, which masks never are.
    """

    name = "segmentation"
    suits = "loss=dice_cross_entropy metrics=segmentation"
    loss_kinds = frozenset({"multiclass"})
    unit = ("class of pixels", "classes of pixels")
    form = "whole numbers, the class of each pixel, [N, H, W]"
    has_masks = True
    ignore_index = IGNORED
    kept_kind = "confusions"
    file_column = "mask"

    @override
    def as_targets(self, values: Tensor) -> Tensor:
        import torch

        if values.ndim == 4 and values.shape[1] == 1:
            values = values[:, 0]
        if values.dtype in (torch.uint8, torch.int32):
            return values
        return super().as_targets(values)

    @override
    def batch_targets(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        return self.as_targets(targets).long()

    @override
    def hard_targets(self, targets: Tensor) -> Tensor:
        if targets.is_floating_point():
            return targets.argmax(1)
        return targets

    @override
    def check(self, subset: str, targets: Tensor, class_names: Sequence[str]) -> None:
        if _are_counts(targets) and targets.shape[1] == len(class_names):
            return
        if targets.ndim != 3 or targets.is_floating_point():
            raise wrong_form(self, subset, targets)
        highest = len(class_names) - 1
        for masks in _blocks(targets):
            strange = masks[(masks != IGNORED) & ((masks > highest) | (masks < 0))]
            if len(strange):
                raise DataError(
                    f"data: a mask of {describe_subset(subset)} has the value {int(strange[0])}; classes go "
                    f"from 0 to {highest}, and {IGNORED} is ignored",
                    hint="number the classes from 0",
                )

    @override
    def check_subsets(self, targets: Mapping[str, Tensor], class_names: Sequence[str]) -> None:
        counts = {
            subset: self.count_classes(values, class_names) for subset, values in targets.items()
        }
        used = [name for name, count in zip(class_names, counts["train"], strict=True) if count]
        if len(used) < 2:
            raise DataError(
                f"data: the training masks have a single class{''.join(f', {name}' for name in used)}: there "
                "is nothing to distinguish",
                hint=f"a mask's values are its classes, and {IGNORED} is ignored (data.source)",
            )
        check_trained_classes(counts, class_names)

    @override
    def count_classes(self, targets: Tensor, class_names: Sequence[str]) -> tuple[int, ...]:
        if _are_counts(targets):
            return tuple(targets.long().sum(0).tolist())
        total = [0] * len(class_names)
        for masks in _blocks(targets):
            counts = masks.flatten().long().bincount(minlength=IGNORED + 1).tolist()
            total = [subtotal + count for subtotal, count in zip(total, counts, strict=False)]
        return tuple(total)

    @override
    def number_classes(self, subsets: Sequence[Tensor]) -> tuple[str, ...]:
        valid = [masks[masks != IGNORED] for targets in subsets for masks in _blocks(targets)]
        highest = max((int(pixels.max()) for pixels in valid if len(pixels)), default=-1)
        return tuple(map(str, range(highest + 1)))

    @override
    def fake_targets(self, num_samples: int, size: int, input_shape: Sequence[int]) -> Tensor:
        import torch

        if len(input_shape) == 3:
            height, width = input_shape[1:]
        else:
            height, width = (8, 8)
        pixels = torch.arange(height * width).view(height, width)
        return (torch.arange(num_samples)[:, None, None] + pixels) % size

    @override
    def declared_targets(
        self,
        num_samples: int,
        size: int,
        input_shape: Sequence[int],
        class_names: Sequence[str] = (),
    ) -> Tensor:
        import torch

        if len(input_shape) == 3:
            pixels = input_shape[1] * input_shape[2]
        else:
            pixels = size
        return torch.full((num_samples, size), -(-pixels // size), dtype=torch.int32)

    @override
    def output_shape(self, spec: Mapping[str, Any], num_outputs: int) -> tuple[int, ...]:
        return (num_outputs, *(spec.get("train_shape") or spec["input_shape"])[1:])

    @override
    def postprocess(self, outputs: Tensor, kind: Kind) -> Tensor:
        return outputs

    @override
    def typed(self, outputs: Array, kind: Kind, names: tuple[str, ...]) -> Predictions:
        return MaskPredictions(outputs, names, kind)

    @override
    def kept(self, outputs: Tensor, targets: Tensor, kind: Kind) -> tuple[Tensor, Tensor]:
        """Return the confusions of each sample, pixels `[C * C]`, true class first; and its pixel count."""
        import torch

        if outputs.ndim != 4:
            return outputs, targets
        num_samples, num_classes = outputs.shape[:2]
        cells = num_classes**2
        sample = torch.arange(num_samples, device=targets.device)[:, None, None] * cells
        place = sample + targets * num_classes + outputs.argmax(1)
        # an extra bin avoids a sync
        place = torch.where(targets == IGNORED, num_samples * cells, place)
        counts = place.flatten().bincount(minlength=num_samples * cells + 1)[
            : num_samples * cells
        ]
        confusions = counts.view(num_samples, cells)
        return confusions, confusions.sum(1)

    @override
    def picture(
        self,
        picture: bytes | None,
        targets: Array,
        labels: Array,
        class_names: Sequence[str],
    ) -> bytes | None:
        if picture is None:
            return None
        return side_by_side(picture, targets, labels)

    @override
    def legend(self, predictions: StoredPredictions) -> list[tuple[str, bytes]]:
        return [(name, swatch(label)) for label, name in enumerate(predictions.class_names)]

    @override
    def evaluator(self, predictions: StoredPredictions) -> Evaluator:
        return Masks(predictions)


def _are_counts(targets: Tensor) -> bool:
    import torch

    return targets.ndim == 2 and targets.dtype == torch.int32


def _blocks(targets: Tensor) -> Sequence[Tensor]:
    """Split masks into blocks, so that work on them takes bounded memory."""
    pixels = 1
    if len(targets):
        pixels = max(1, targets[0].numel())
    blocks: Sequence[Tensor] = targets.split(max(1, (1 << 22) // pixels))  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return blocks
