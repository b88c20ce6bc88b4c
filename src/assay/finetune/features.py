"""What the head of a frozen network is given of images, so that the rest is computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from assay.layer_depth import head_names, lies_in

if TYPE_CHECKING:
    from torch import Tensor, nn


def find_trained_head(model: nn.Module) -> str:
    """Name the layer that alone is trained; empty where other parameters are trained as well."""
    names = head_names(model)
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    if len(names) == 1 and all(lies_in(name, names) for name in trained):
        return names[0]
    return ""


@torch.no_grad()
def compute_features(model: nn.Module, head: str, images: Tensor) -> Tensor | None:
    """What a layer gets of images, `[B, F]`; None where the model does more with the layer's outputs."""
    calls: list[tuple[Any, Any]] = []
    layer = model.get_submodule(head)
    handle = layer.register_forward_hook(lambda _, inputs, output: calls.append((inputs, output)))
    was_training = model.training
    model.eval()
    try:
        # not `model(images)`, which may be compiled
        outputs = model.forward(images)
    finally:
        handle.remove()
        model.train(was_training)
    if len(calls) != 1 or calls[0][1] is not outputs or calls[0][0][0].ndim != 2:
        return None
    features: Tensor = calls[0][0][0]
    return features
