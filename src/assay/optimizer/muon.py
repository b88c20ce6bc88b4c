from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, final, overload

import torch
from torch import nn

from assay.errors import check_numbers
from assay.layer_depth import head_names, lies_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_MUON_OPTIONS = ("lr", "weight_decay", "momentum", "nesterov", "ns_steps", "adjust_lr_fn")
_ADAMW_OPTIONS = ("lr", "weight_decay", "betas")
_MUON_EPS = 1e-7
"""torch.optim.Muon's default; the two optimizers give the same key different meanings."""


@final
class Muon(torch.optim.Optimizer):
    """Steps matrices with `torch.optim.Muon` and everything else with `torch.optim.AdamW`.

    Muon (Jordan et al. 2024, *Muon: an optimizer for hidden layers in neural networks*) is defined for
    matrices alone, so `torch.optim.Muon` refuses biases, norms and convolution kernels. Here each parameter
    group is split in two by the number of dimensions: parameters of two go to Muon, the others to AdamW. A
    group with `use_muon: false` goes to AdamW entirely. In a run, so do embeddings and the head of the model,
    as the paper advises, unless a rule of `param_groups` says `use_muon: true`.

    Each half is an ordinary group in `param_groups` with its own `lr`, so learning rate schedulers,
    `state_dict`, gradient clipping and closures work as with any optimizer. A group's `name` gets `/muon` or
    `/adamw` appended.

    Args:
        params: Parameters, or groups of them; a group may hold `use_muon` beside the options below.
        lr: Learning rate of both. Under `match_rms_adamw` one value suits both.
        weight_decay: Decoupled weight decay of both.
        momentum: Muon's momentum.
        nesterov: Whether Muon's momentum is Nesterov's.
        ns_steps: Newton-Schulz iterations of Muon's orthogonalisation.
        adjust_lr_fn: How Muon scales `lr` with the shape of a matrix: `match_rms_adamw` (Liu et al. 2025,
            *Muon is scalable for LLM training*), `original` or `spectral_unclamped`.
        betas: AdamW's decay rates.
        eps: AdamW's term for numerical stability.

    Raises:
        ValueError: An option is out of the range that torch's optimizers accept.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor]
        | Iterable[dict[str, Any]]
        | Iterable[tuple[str, torch.Tensor]],
        lr: float = 1e-3,
        *,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_steps: int = 5,
        adjust_lr_fn: Literal[
            "match_rms_adamw", "original", "spectral_unclamped"
        ] = "match_rms_adamw",
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
    ) -> None:
        check_numbers("[0, inf)", eps=eps)
        self._adamw_eps = eps
        self._inner: list[torch.optim.Optimizer] = []
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
            "betas": (betas[0], betas[1]),
        }
        super().__init__(params, defaults)
        self._link()

    @staticmethod
    def split_groups(groups: Iterable[dict[str, Any]], model: nn.Module) -> list[dict[str, Any]]:
        """Keep embeddings and the head of a model, tied or not, apart from what Muon takes."""
        head = head_names(model)
        outer = {
            id(parameter) for name, parameter in model.named_parameters() if lies_in(name, head)
        }
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                outer |= set(map(id, module.parameters()))
        split: list[dict[str, Any]] = []
        for group in groups:
            is_outer = [id(parameter) in outer for parameter in group["params"]]
            if "use_muon" in group or not any(is_outer):
                split.append(group)
                continue
            if not all(is_outer):
                hidden = [
                    p for p, here in zip(group["params"], is_outer, strict=True) if not here
                ]
                split.append({**group, "params": hidden})
            params = list(compress(group["params"], is_outer))
            split.append(
                {**group, "params": params, "name": f"{group['name']}/outer", "use_muon": False}
            )
        return split

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, split into its matrices and the rest."""
        params = param_group["params"]
        if isinstance(params, torch.Tensor):
            params = [params]
        else:
            params = list(params)
        halves: dict[bool, list[Any]] = {True: [], False: []}
        for param in params:
            if isinstance(param, tuple):
                tensor = param[1]
            else:
                tensor = param
            halves[param_group.get("use_muon", True) and tensor.ndim == 2].append(param)
        for use_muon, half in halves.items():
            if half:
                group = {**param_group, "params": half, "use_muon": use_muon}
                if use_muon:
                    group["eps"] = _MUON_EPS
                else:
                    group.setdefault("eps", self._adamw_eps)
                if "name" in group:
                    group["name"] = f"{group['name']}/{'muon' if use_muon else 'adamw'}"
                super().add_param_group(group)
        if self._inner:
            self._link()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_adamw_eps": self._adamw_eps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Both unpickling and load_state_dict end here, with new groups and a new state.
        super().__setstate__(state)
        self._link()

    def _link(self) -> None:
        """Build the inner optimizers over the same group dicts, so that changes apply to both."""
        matrices = [group for group in self.param_groups if group["use_muon"]]
        non_matrices = [group for group in self.param_groups if not group["use_muon"]]
        self._inner = []
        if matrices:
            self._inner.append(torch.optim.Muon(matrices, **self._options(_MUON_OPTIONS)))
        if non_matrices:
            self._inner.append(torch.optim.AdamW(non_matrices, **self._options(_ADAMW_OPTIONS)))

    def _options(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: self.defaults[name] for name in names}

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for inner in self._inner:
            inner.state = self.state
            inner.step()
        return loss
