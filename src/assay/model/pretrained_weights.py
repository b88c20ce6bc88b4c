"""Loads weights from a file into a network, which may have another head."""

from __future__ import annotations

import logging
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor, nn

from assay.errors import first_line
from assay.quoting import join_first
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_console_log = logging.getLogger("assay")


@final
@dataclass(frozen=True)
class Published:
    """A published file of weights.

    Attributes:
        url: Its address.
        name: Of the file in the folder `checkpoints` of `torch.hub.get_dir()`.
        digest: How its SHA-256 begins.
        megabytes: Its size; 0: not known.
        copies: Other files that hold the same weights, where they exist.
    """

    url: str
    name: str
    digest: str = ""
    megabytes: float = 0.0
    copies: tuple[Path, ...] = ()

    @property
    def path(self) -> Path:
        """Where it lies, or is downloaded to."""
        path = Path(torch.hub.get_dir()) / "checkpoints" / self.name
        return next((copy for copy in (path, *self.copies) if copy.is_file()), path)

    def if_missing(self) -> Published | None:
        """Return itself if it has to be downloaded, else None."""
        if self.path.is_file():
            return None
        return self

    def in_words(self) -> str:
        """Describe name, size and address for messages."""
        size = "size unknown"
        if self.megabytes:
            size = f"{self.megabytes:,.0f} MB"
        return f"{self.name} ({size}) from {self.url}"

    def fetch(self) -> Path:
        """Return the file, after downloading it if necessary."""
        path = self.path
        if not path.is_file():
            _console_log.warning("downloading %s to %s", self.in_words(), path)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                torch.hub.download_url_to_file(
                    self.url, str(path), hash_prefix=self.digest or None, progress=False
                )
            except RuntimeError as error:  # raised for another hash
                raise ValueError(
                    f"the weights from {self.url} differ from the published ones: {error}"
                ) from error
            except OSError as error:
                raise ValueError(
                    f"the weights {self.in_words()} cannot be downloaded ({error}); on a machine without "
                    f"network put the file at {path}, or use model.weights=PATH"
                    f"{_name_others(path.parent)}"
                ) from error
        return path


_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def _name_others(folder: Path) -> str:
    """What other weights lie in a folder of downloads."""
    names = sorted(path.name for path in folder.iterdir() if path.suffix in _SUFFIXES)
    if not names:
        return ""
    return f"; {folder} holds {join_first(names)}"


_WRAPPERS = ("model.network.", "network.", "module.", "model.")

_log = logging.getLogger(__name__)


def load_pretrained_weights(
    network: nn.Module,
    weights: str | Path | Published | None,
    *,
    stem: str | None = None,
    head: Sequence[str] = (),
    convert: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None,
    within: str = "",
) -> tuple[str, ...]:
    """Copy pretrained weights into a network, in place; return the layers that they do not fill."""
    if isinstance(weights, Published):
        # Checks on the meta device download nothing.
        if next(network.parameters()).is_meta:
            weights = None
        else:
            weights = weights.fetch()
    if weights is None:
        return ()
    file = _find_checkpoint(Path(weights))
    entries, left_out = _unwrap(_read_state_dict(file), network)
    if convert is not None:
        entries = convert(entries)
    state = network.state_dict()
    if stem is not None:
        _fit_channels(entries, state, f"{stem}.weight")
    free = [*(head or [find_head(network)]), *([stem] if stem else [])]
    differing = {
        key for key in state.keys() & entries.keys() if state[key].shape != entries[key].shape
    }
    # Layers are dropped entirely: a bias is meaningless without its weight.
    dropped = [layer for layer in free if any(key.startswith(f"{layer}.") for key in differing)]
    skipped = {
        key
        for key in state.keys() | entries.keys()
        if any(key.startswith(f"{layer}.") for layer in dropped)
    }
    # older files lack them
    counters = {key for key in state if key.endswith(".num_batches_tracked")}
    filled = OrderedDict((key, state[key]) for key in state if key in skipped | counters)
    for key in entries.keys() - skipped:
        if key in state:
            filled[key] = entries[key].to(state[key].device)
        else:
            filled[key] = entries[key]
    # Some classes read the version of the entries; names and shapes match this one.
    filled._metadata = getattr(state, "_metadata", {})  # type: ignore[attr-defined]  # as torch itself does
    try:
        network.load_state_dict(filled)
    except RuntimeError:
        lora = any(".parametrizations." in key for key in entries.keys() - state.keys())
        unlike = {
            "missing": state.keys() - filled.keys(),
            "unexpected": filled.keys() - state.keys(),
            "of another shape": differing - skipped,
        }
        listed = [
            f"{kind} {join_first(sorted(keys), 2)}" for kind, keys in unlike.items() if keys
        ]
        raise ValueError(
            f"the weights in {weights} do not fit: {', '.join(listed)}; "
            + (
                "they were trained with finetune=lora: "
                f"`assay export {weights} --format safetensors` merges them"
                if lora
                else "choose the model they were trained with, or model.weights=null"
            )
        ) from None
    left_out += sorted(skipped & entries.keys())
    for layer in set(dropped) & set(head):
        # Random outputs of a family's own initialisation would be unlearnt first.
        for parameter in network.get_submodule(layer).parameters():
            nn.init.zeros_(parameter)
    _log.info(
        "%s: %d tensors loaded, left out: %s",
        *(file, len(entries.keys() - skipped), join_first(left_out, 8) or "nothing"),
    )
    return tuple(f"{within}{layer}" for layer in dropped)


def _fit_channels(entries: dict[str, Tensor], state: Mapping[str, Tensor], key: str) -> None:
    """Adapt a first convolution to other channels, keeping the scale of its outputs."""
    source = entries.get(key)
    target = state.get(key)
    if (
        source is None
        or target is None
        or source.ndim != 4
        or source.shape[2:] != target.shape[2:]
    ):
        return
    channels = source.shape[1]
    new_channels = target.shape[1]
    if channels == new_channels or source.shape[0] != target.shape[0]:
        return
    if new_channels == 1:  # a grey image has equal channels
        entries[key] = source.sum(1, keepdim=True)
        return
    repeated = source.repeat(1, -(-new_channels // channels), 1, 1)[:, :new_channels]
    entries[key] = repeated * (channels / new_channels)


def _find_checkpoint(path: Path) -> Path:
    """Return the file itself, the one file of weights of a folder, or the best checkpoint of a run."""
    if path.is_dir() and not (path / "checkpoints").is_dir():
        names = sorted(entry.name for entry in path.iterdir() if entry.suffix in _SUFFIXES)
        if len(names) > 1:
            raise ValueError(
                f"model.weights={path} holds {len(names)} files of weights: {join_first(names)}; name one of "
                f"them: model.weights={path / names[0]}"
            )
        return path.joinpath(*names)
    if not (path / "checkpoints").is_dir():
        return path
    files = RunRecord.load(path).checkpoints
    # a record is not trusted
    name = Path(files.get("best") or files.get("last") or "last.ckpt").name
    return path / "checkpoints" / name


def _read_state_dict(path: Path) -> Mapping[str, Any]:
    """Read the state dict of a file without running its code."""
    if not path.is_file():
        raise ValueError(
            f"model.weights={path} is neither a file nor a run; give the path of a .pt, .pth or .safetensors "
            "file, of a folder with one, or of a run directory"
        )
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        loaded: Any = load_file(path, device="cpu")
    else:
        try:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
            raise ValueError(
                f"{path} holds no weights that can be read safely: {first_line(error).partition('. ')[0]}; "
                "save them again as torch.save(model.state_dict(), path)"
            ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("state_dict"), Mapping):
        loaded = loaded["state_dict"]
    if not isinstance(loaded, Mapping) or not loaded:
        raise ValueError(
            f"{path} holds no state dict; save one as torch.save(model.state_dict(), path)"
        )
    return loaded


def _unwrap(loaded: Mapping[str, Any], network: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """Remove wrapper prefixes from the network's entries; also return the names of the others."""
    children = dict(network.named_children())
    left_out: list[str] = []
    wrappers = [wrapper for wrapper in _WRAPPERS if wrapper.partition(".")[0] not in children]
    while wrapper := next(
        (one for one in wrappers if any(key.startswith(one) for key in loaded)), ""
    ):
        left_out += [key for key in loaded if not key.startswith(wrapper)]
        loaded = {
            key.removeprefix(wrapper): loaded[key] for key in loaded if key.startswith(wrapper)
        }
    if non_tensors := [key for key, value in loaded.items() if not isinstance(value, Tensor)]:
        raise ValueError(
            f"the weights hold entries that are not tensors: {join_first(non_tensors)}"
        )
    return dict(loaded), left_out


def find_head(network: nn.Module) -> str:
    """Return the name of the last linear layer, or of the last convolution if there is none."""
    for kind in (nn.Linear, nn.Conv2d):
        if names := [
            name for name, module in network.named_modules() if isinstance(module, kind)
        ]:
            return str(names[-1])
    return ""
