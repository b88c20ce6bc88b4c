"""Aligns memory layouts for fused kernels, which read values in memory order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch

from assay.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.optim import Optimizer


def keep_layout(optimizer: Optimizer) -> None:
    """Give an optimizer's state the layout of its parameters before the first step; check its gradients."""
    if any("fused" in group for group in optimizer.param_groups):
        optimizer.register_step_pre_hook(_LayoutHook())


@final
class _LayoutHook:
    """Runs before the first step, and again once there are gradients, which closures create later."""

    any_time = True
    """See `assay.torch_internals.lean_step`."""

    def __init__(self) -> None:
        self._aligned = self._checked = False

    def __call__(self, optimizer: Optimizer, *_: Any) -> None:
        if self._checked:
            return
        if not self._aligned:
            _align(optimizer)
            self._aligned = True
        self._checked = _check_gradients(optimizer)


@torch.no_grad()
def _align(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        on_cpu = not (group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            for name, value in state.items():
                if name == "step" and isinstance(value, torch.Tensor):
                    state[name] = value.to("cpu" if on_cpu else parameter.device)
                elif _layout_differs(value, parameter):
                    state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _check_gradients(optimizer: Optimizer) -> bool:
    fused = [p for group in optimizer.param_groups if group.get("fused") for p in group["params"]]
    with_gradient = [p for p in fused if p.grad is not None]
    for parameter in with_gradient:
        if _layout_differs(parameter.grad, parameter):
            raise ConfigError(
                f"a parameter of shape {list(parameter.shape)} and its gradient lie differently in memory, "
                "which torch's fused kernels do not allow for",
                key="optimizer.fused",
                hint="optimizer.fused=null",
            )
    return bool(with_gradient) or not fused


def _layout_differs(value: Any, parameter: Tensor) -> bool:
    if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
        return False
    sizes = zip(value.shape, value.stride(), parameter.stride(), strict=True)
    return any(size > 1 and stride != other_stride for size, stride, other_stride in sizes)
