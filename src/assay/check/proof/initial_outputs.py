"""Does an untrained model start anywhere near the targets of a regression?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

_SAMPLES, _FAR = 16, 10.0


def far_from_targets(
    model: nn.Module, input_shape: Sequence[int], mean: Sequence[float], std: Sequence[float]
) -> str:
    """A warning where targets lie further from the model's initial outputs than a run may bring them.

    Layers of torch's own start with outputs around 0 of a deviation below 1, and an optimizer's step changes
    them by about its learning rate.

    Args:
        model: Untrained, on the CPU; left as it is.
        input_shape: Of one sample.
        mean: Of each target, over the training subset.
        std: As `mean`.

    Returns:
        A sentence; empty where the targets are near, or the model's outputs cannot be known from noise.
    """
    training = model.training
    dtype = next((value.dtype for value in model.parameters()), torch.float32)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            outputs: torch.Tensor = model.eval()(torch.randn(_SAMPLES, *input_shape).to(dtype)).double()
    except Exception:  # what the model takes is looked at elsewhere
        return ""
    finally:
        model.train(training)
    if outputs.shape[1:] != (len(mean),) or not len(mean):
        return ""
    start, spread = outputs.mean(0), outputs.std(0)
    distance = ((torch.tensor(mean) - start).square() + torch.tensor(std).square()).sqrt()
    worst = int((distance / spread.clamp(min=1)).argmax())
    if distance[worst] <= _FAR * max(1.0, float(spread[worst])):
        return ""
    which = f" (number {worst})" if len(mean) > 1 else ""
    return (
        f"the targets{which} lie around {mean[worst]:.4g} (deviation {std[worst]:.3g}), the untrained "
        f"model's outputs around {float(start[worst]):.2g}: training may not get there; "
        "data.standardize_targets=true"
    )
