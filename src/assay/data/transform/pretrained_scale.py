"""Normalisation as pretrained weights know it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from assay.data.transform.transform_options import Scale


@final
class PretrainedScale:
    """What `data.transform.normalize: auto` makes of the inputs that a model's weights were trained with.

    Args:
        inputs: `mean`, `std`, `size` and `source`, see `assay.build.compatibility.compatibility`; None
            where the model starts from random weights.
        normalize: What `data.transform.normalize` says.

    Attributes:
        notes: What was decided, a sentence each; there once `scale` was called.
    """

    def __init__(self, inputs: Mapping[str, Any] | None, normalize: Any) -> None:
        self._inputs, self._normalize = inputs, normalize
        self.notes: tuple[str, ...] = ()

    def scale(self, first: Tensor, given: Scale | None) -> Scale | None:
        """Mean and deviation to normalise with; None where what was given, or the data's own, counts.

        Args:
            first: Some samples as the model will see them, `[B, C, ...]`, not normalised.
            given: What `data.transform.normalize` comes to, as far as it says so itself.
        """
        if self._inputs is None:
            return None
        source, (mean, std) = self._inputs["source"], (self._inputs["mean"], self._inputs["std"])
        told = f"mean {_short(mean)}, std {_short(std)}"
        self.notes = self._on_size(first)
        if self._normalize != "auto":
            if given != (mean, std):
                self._say(
                    f"data.transform.normalize={self._normalize}: the weights of {source} were trained with "
                    f"{told}; data.transform.normalize=auto takes these"
                )
            return None
        channels = first.shape[1]
        if channels == 1 and len(mean) == 3:  # a grey image is one whose channels are equal
            mean, std = (sum(mean) / 3,), (sum(std) / 3,)
        why = ""
        if len(mean) not in (0, 1, channels):
            why = f"the data has {channels} channels"
        elif not source.startswith("the run ") and first.is_floating_point() and _beyond_one(first):
            why = "the data is not in [0, 1]"
        if why:
            self._say(
                f"{why}, so inputs are normalised with the data's own statistics, not with "
                f"those of {source} ({told})"
            )
            return None
        self._say(
            f"inputs are normalised as those of {source} were (mean {_short(mean)}, std {_short(std)}); "
            "data.transform.normalize=data takes the data's own statistics"
        )
        return mean, std

    def _say(self, note: str) -> None:
        self.notes = (*self.notes, note)

    def _on_size(self, first: Tensor) -> tuple[str, ...]:
        size, here = tuple((self._inputs or {}).get("size") or ()), tuple(first.shape[2:])
        if len(size) != 2 or len(here) != 2 or size == here:
            return ()
        return (
            f"the weights were trained on images of {size[0]}×{size[1]} pixels, the data has "
            f"{here[0]}×{here[1]}; data/transform=resize "
            f"data.transform.size=[{size[0]},{size[1]}] gives them this size",
        )


def _beyond_one(first: Tensor) -> bool:
    return bool(first.min() < -0.01 or first.max() > 1.01)


def _short(values: tuple[float, ...]) -> str:
    return "[" + ", ".join(f"{value:.3g}" for value in values) + "]"
