from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@final
class TwoViews(nn.Module):
    """Stacks two random views of each sample, and returns the sample of each as targets.

    torchvision's v2 transforms draw once per batch, so they are applied sample by sample. Draws come from the
    default generators, which are seeded in each step, so that they are the same after a resume.

    Args:
        transforms: torchvision v2 transforms, or others that map a sample `[...]` or, with
            `one_by_one` off, a batch; applied in their order.
        one_by_one: Whether transforms are applied to one sample at a time; false if they draw separately
            for each sample of a batch.

    Raises:
        ValueError: There are no transforms, so that both views would be the same.
    """

    def __init__(
        self, transforms: Sequence[Callable[[Any], Any]], *, one_by_one: bool = True
    ) -> None:
        super().__init__()
        if not transforms:
            raise ValueError(
                "augment.transforms is empty: both views of a sample would be the same; "
                "use the transforms of augment=two_views, or list others"
            )
        self.transforms = list(transforms)
        self.one_by_one = one_by_one

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Draw both views."""
        del targets
        views = torch.cat([self._view(inputs), self._view(inputs)])
        return views, torch.arange(len(inputs), device=inputs.device).repeat(2)

    def _view(self, inputs: Tensor) -> Tensor:
        if not self.one_by_one:
            return self._transform(inputs)
        return torch.stack([self._transform(sample) for sample in inputs])

    def _transform(self, values: Tensor) -> Tensor:
        for transform in self.transforms:
            values = transform(values)
        return values
