"""The check of types that matrix products make on real tensors, and fake ones leave out."""

from __future__ import annotations

from typing import Any, final

import torch

from assay.torch_internals import TorchDispatchMode

_aten = torch.ops.aten
_PRODUCTS = {
    *(_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot),
    *(_aten.convolution, _aten.convolution_backward, _aten._scaled_dot_product_flash_attention_for_cpu),
}


@final
class SameType(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Refuses products of tensors of different types.

    Raises:
        RuntimeError: As torch does for real tensors.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Look at the types, then run the operation."""
        del types
        if func.overloadpacket in _PRODUCTS:
            kinds = dict.fromkeys(
                value.dtype for value in args if isinstance(value, torch.Tensor) and value.ndim
            )
            if len(kinds) > 1:
                named = " and ".join(str(kind).removeprefix("torch.") for kind in kinds)
                raise RuntimeError(f"both must have the same type, not {named}")
        return func(*args, **(kwargs or {}))
