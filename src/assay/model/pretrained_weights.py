"""Weights from a local file, for a network that may end in another head."""

from __future__ import annotations

import importlib
import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from assay.checkpoint.archive import ArchiveError, check_weights

_WRAPPERS: Final = ("model.network.", "network.", "module.", "model.")

_log = logging.getLogger(__name__)


def load_pretrained_weights(network: nn.Module, path: str, *, stem: str | None = None) -> None:
    """Copy pretrained weights into a network, in place; log what was left out.

    The head (the network's last linear layer) and the stem are left out where a shape of theirs differs.
    Names may start with `model.`, `network.` or `module.`, as in checkpoints of this project and of
    `DataParallel`; entries outside that part, such as a loss's buffers, are left out too. Nothing but tensors
    and plain containers is read.

    Args:
        network: The network to fill.
        path: A file written by `torch.save` or, with safetensors installed, a `.safetensors` file: a state
            dict, or a checkpoint that holds one as `state_dict`.
        stem: Name of the layer that was built anew, if any.

    Raises:
        ValueError: The file cannot be read, or it lacks or exceeds what the network holds otherwise; names
            the keys.
    """
    entries, left_out = _unwrap(_read(Path(path)), network)
    own = network.state_dict()
    free = [name for name in (_head(network), stem) if name is not None]
    differing = {key for key in own.keys() & entries.keys() if own[key].shape != entries[key].shape}
    # A layer goes as a whole: a bias without the weight it was trained with means nothing.
    dropped = [layer for layer in free if any(key.startswith(f"{layer}.") for key in differing)]
    skipped = {
        key for key in own.keys() | entries.keys() if any(key.startswith(f"{layer}.") for layer in dropped)
    }
    problems = {
        "missing": [key for key in own if key not in entries and key not in skipped and not _is_counter(key)],
        "unexpected": [key for key in entries if key not in own and key not in skipped],
        "of another shape": [
            f"{key} {list(entries[key].shape)} for {list(own[key].shape)}"
            for key in own
            if key in differing and key not in skipped
        ],
    }
    if any(problems.values()):
        found = "; ".join(f"{what}: {_listed(keys)}" for what, keys in problems.items() if keys)
        raise ValueError(
            f"the weights in {path} do not fit {type(network).__name__}: {found}; "
            "choose the model they were trained with, or model.weights=null"
        )
    kept = {key: value for key, value in entries.items() if key not in skipped}
    if not any(tensor.is_meta for tensor in own.values()):  # on the meta device there is nothing to fill
        network.load_state_dict(kept, strict=False)
    left_out += sorted(skipped & entries.keys())
    _log.info(
        "%s: %d tensors loaded, left out: %s", path, len(kept), _listed(left_out) if left_out else "nothing"
    )


def _read(path: Path) -> Mapping[str, Any]:
    """Read the file's state dict without running any code of it."""
    if not path.is_file():
        raise ValueError(
            f"model.weights={path} is not a file; give the path of a .pt, .pth or .safetensors file"
        )
    if path.suffix == ".safetensors":
        try:
            safetensors = importlib.import_module("safetensors.torch")
        except ImportError as error:
            raise ValueError(
                f"reading {path} needs the package safetensors; type `pip install safetensors`"
            ) from error
        loaded = safetensors.load_file(path, device="cpu")
    else:
        try:
            with path.open("rb") as file:
                check_weights(file)
                loaded = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
            why = f": it {error}" if isinstance(error, ArchiveError) else ""
            raise ValueError(
                f"{path} holds no weights that can be read safely{why}; save them again as "
                f"torch.save(model.state_dict(), path)"
            ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not loaded:
        raise ValueError(f"{path} holds no state dict; save one as torch.save(model.state_dict(), path)")
    return loaded


def _unwrap(loaded: Mapping[str, Any], network: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """Take the network's own entries out of the wrapper they were saved in; also name the rest."""
    children = dict(network.named_children())
    for wrapper in _WRAPPERS:
        inside = {key.removeprefix(wrapper): loaded[key] for key in loaded if key.startswith(wrapper)}
        if inside and wrapper.partition(".")[0] not in children:
            return _tensors(inside), [key for key in loaded if not key.startswith(wrapper)]
    return _tensors(loaded), []


def _tensors(entries: Mapping[str, Any]) -> dict[str, Tensor]:
    others = [key for key, value in entries.items() if not isinstance(value, Tensor)]
    if others:
        raise ValueError(
            f"the weights hold entries that are no tensors: {_listed(others)}; "
            "save a state dict as torch.save(model.state_dict(), path)"
        )
    return dict(entries)


def _head(network: nn.Module) -> str | None:
    """Name the network's last linear layer."""
    return next(
        (name for name, module in reversed([*network.named_modules()]) if isinstance(module, nn.Linear)), None
    )


def _is_counter(key: str) -> bool:
    """Tell a batch norm's step counter: files written before torch 0.4.1 lack it, nothing reads it."""
    return key.endswith(".num_batches_tracked")


def _listed(keys: list[str]) -> str:
    return ", ".join(keys[:8]) + (f" and {len(keys) - 8} more" if len(keys) > 8 else "")
