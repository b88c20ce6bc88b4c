"""Where a NaN or an infinity of a training step came from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from assay.torch_internals import mark_non_finite

if TYPE_CHECKING:
    import lightning as L
    from torch import nn


def note_non_finite(tensors: Sequence[Tensor], mark: Tensor, one: Tensor) -> None:
    """Set `mark` to 1 where a number is not finite; nothing waits for the device.

    Args:
        tensors: Floating, of one device.
        mark: A float32 scalar of that device.
        one: 1.0 as another.

    >>> one, mark = torch.ones(()), torch.zeros(())
    >>> for value in (3e38, math.nan):
    ...     note_non_finite([torch.tensor([1.0, value])], mark, one)
    ...     mark.item()
    0.0
    1.0
    """
    # Asked for by type first: this is done in each step, and looking attributes up costs more.
    plain = [
        value if type(value) is Tensor and not (value.is_sparse or value.is_complex()) else _dense(value)
        for value in tensors
    ]
    mark_non_finite(plain, mark, one)


def _dense(tensor: Any) -> Tensor:
    """The real numbers of a tensor that may be sparse, complex, or spread over processes."""
    here: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    here = here._values() if here.is_sparse else here
    return torch.view_as_real(here) if here.is_complex() else here


def floating(value: Any) -> Iterator[Tensor]:
    """Every floating tensor in nested containers.

    Args:
        value: A batch, or what a module returned.
    """
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from floating(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from floating(one)


def is_finite(value: Any) -> bool:
    """Whether all numbers in nested containers are finite; waits for the device.

    Args:
        value: As for `floating`.
    """
    return all(bool(one.isfinite().all()) for one in floating(value))


def spoilt_rows(batch: Any) -> list[int]:
    """Positions in a batch whose values are not finite.

    Args:
        batch: Tensors with the samples along the first dimension.
    """
    found: set[int] = set()
    for one in floating(batch):
        if one.ndim:
            wrong = ~one.detach().isfinite().reshape(len(one), -1).all(1)
            found |= set(wrong.nonzero().flatten().tolist())
    return sorted(found)


def first_output(trainer: L.Trainer, module: L.LightningModule, batch: Any, batch_idx: int) -> str:
    """The first module whose output is not finite when a batch is run again.

    Args:
        trainer: In training, its generators seeded as at the start of the step.
        module: Its weights as they were in that step.
        batch: As the step got it.
        batch_idx: As the step got it.

    Returns:
        Such as `model.head (Linear)`; empty when it cannot be told.
    """
    if not module.automatic_optimization:
        return ""  # its step would train
    found: list[str] = []

    def look(name: str, part: nn.Module, output: Any) -> None:
        if not found and not is_finite(output):
            found.append(f"{name} ({type(part).__name__})")

    def hook(name: str) -> Any:
        return lambda part, _, output: look(name, part, output)

    handles = [part.register_forward_hook(hook(name)) for name, part in module.named_modules() if name]
    try:
        with (
            torch.no_grad(),
            trainer.precision_plugin.train_step_context(),
            torch.compiler.set_stance("force_eager"),
        ):
            module.training_step(batch, batch_idx)
    except Exception:
        # Whatever goes wrong here, the message about the step must come out.
        return found[0] if found else ""
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else ""


def gradients(module: nn.Module) -> list[str]:
    """Names of the parameters whose gradient is not finite, those near the output first.

    Args:
        module: After a backward pass.
    """
    named = [(name, one.grad) for name, one in module.named_parameters() if one.grad is not None]
    return [name for name, grad in reversed(named) if not is_finite(grad)]


def weights(module: nn.Module) -> list[str]:
    """Names of the parameters and buffers that are not finite."""
    state = {name: value for name, value in module.state_dict().items() if isinstance(value, Tensor)}
    parts = [_dense(value.detach()) for value in floating(state)]
    if all(math.isfinite(part.sum().item()) for part in parts):  # a sum overflows before its numbers do
        return []
    return [name for name, value in state.items() if not is_finite(value)]
