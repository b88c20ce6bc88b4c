"""Low-rank adaptation: trains small matrices beside frozen ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from typing_extensions import override

from assay.errors import ConfigError, check_numbers
from assay.finetune.interface import FineTuning, freezable_names, freeze, match_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


@final
class LoRA(FineTuning):
    r"""Trains :math:`W + \frac{\alpha}{r} B A` in place of a matrix W, which stays frozen (Hu et al. 2021).

    A is `[rank, in]`, drawn as the authors' code draws it (`kaiming_uniform_` with a=√5), B `[out, rank]` and
    zero at first: training starts from exactly the original model. It is a parametrization of torch, so it
    works for linear layers and `nn.MultiheadAttention` (whose three projections in one matrix share A). Of
    the model itself, the head is trained, and layers that weights did not fill. `assay.load` and `assay
    export` return the model with the products added to its matrices.

    Args:
        rank: r; a matrix that is not larger is refused, as adapting it saves nothing.
        alpha: The product is scaled by alpha / r.
        match: Regular expressions, searched in the names of the matrices: those to adapt; empty: those
            of all linear and attention layers.

    Raises:
        ValueError: A value is out of its range; in `prepare`, if the model has no such layer or an
            expression matches none.
    """

    def __init__(self, rank: int = 8, alpha: float = 16.0, match: Sequence[str] = ()) -> None:
        check_numbers("[1, inf)", rank=rank)
        check_numbers("(0, inf)", alpha=alpha)
        self._rank = rank
        self._scale = alpha / rank
        self._match = tuple(match)

    @override
    def prepare(self, model: nn.Module) -> None:
        names = freezable_names(model)
        freezable = set(names)
        matrices = [name for name in _matrix_names(model) if name in freezable]
        if not matrices:
            raise ValueError(
                f"{type(model).__name__} has no linear or attention layer besides its head, and "
                "finetune=lora adapts no other; use finetune=gradual"
            )
        if self._match:
            chosen = match_names(self._match, matrices, "finetune.match")
        else:
            chosen = set(matrices)
        freeze(model, names)
        self.insert(model, [name for name in matrices if name in chosen])

    def insert(self, model: nn.Module, matrices: Iterable[str]) -> None:
        """Adapt matrices, without freezing anything else."""
        for name in matrices:
            place, _, attribute = name.rpartition(".")
            module = model.get_submodule(place)
            weight: Tensor = getattr(module, attribute)
            if self._rank >= (least := min(weight.shape)):
                smaller = ""
                if least > 1:
                    smaller = f"finetune.rank={max(1, least // 4)}, or "
                raise ConfigError(
                    f"expected a rank below the size of {name}, {list(weight.shape)}, got {self._rank}",
                    key="finetune.rank",
                    hint=f"{smaller}finetune.match=[…] that matches larger matrices only",
                )
            parametrize.register_parametrization(
                module, attribute, _LowRank(weight, self._rank, self._scale)
            )
            module.parametrizations[attribute].original.requires_grad_(False)  # type: ignore[union-attr, index]  # of a ModuleDict


def adapted_names(state: Iterable[str]) -> list[str]:
    """Name the adapted matrices in a state dict."""
    end = ".0.lora_A"
    return [
        key.removesuffix(end).replace("parametrizations.", "", 1)
        for key in state
        if key.endswith(end)
    ]


def merge(model: nn.Module) -> None:
    """Add the products to their matrices, which restores the original parameters and their names."""
    for module in list(model.modules()):
        if not parametrize.is_parametrized(module):
            continue
        # torch removes the property from the class, which copies of the module share.
        kind = type(module)
        members = {
            key: value
            for key, value in vars(kind).items()
            if key not in ("__dict__", "__weakref__")
        }
        module.__class__ = type(kind.__name__, kind.__bases__, members)
        parametrizations: Any = module.parametrizations
        for attribute in [
            name for name, chain in parametrizations.items() if isinstance(chain[0], _LowRank)
        ]:
            trained = parametrizations[attribute].original.requires_grad_()
            with torch.no_grad():
                parametrize.remove_parametrizations(module, attribute, leave_parametrized=True)
            getattr(module, attribute).requires_grad_(trained.requires_grad)


def _matrix_names(model: nn.Module) -> Iterator[str]:
    """Yield the names of the matrices of linear and attention layers, in order."""
    for name, module in model.named_modules():
        keys: tuple[str, ...] = ()
        if isinstance(module, nn.Linear):
            keys = ("weight",)
        if isinstance(module, nn.MultiheadAttention):
            keys = tuple(key for key in _ATTENTION if getattr(module, key) is not None)
        yield from (f"{name}.{key}".lstrip(".") for key in keys)


@final
class _LowRank(nn.Module):
    """A frozen matrix `[out, in]` plus a trained product."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.lora_A = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.lora_B = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        self.scale = scale
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the sum in the dtype of the weights, so that merging does not change the model."""
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, self.lora_B, self.lora_A, alpha=self.scale)
