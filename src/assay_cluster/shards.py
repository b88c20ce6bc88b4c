"""The part of a checkpoint that lies in shards: what it is made of, whether it is whole, and reading it.

Beside `last.ckpt`, which holds everything else, lies a folder `shards-…` with some safetensors files of each
process, in the form of torch's `HuggingFaceStorageWriter`, and a sealed manifest with their sums. The
checkpoint names the folder and the sum of its manifest.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict_loader import load

from assay.errors import AssayError, first_line
from assay.files.checksum import digest_of, is_json_intact
from assay.files.symlinks import read_whole
from assay.torch_internals import is_traceable_wrapper_subclass, metadata_of, put_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


_Kind = TypeVar("_Kind")
KEY = "shards"
"""Of a checkpoint, what says where its shards are."""
MANIFEST = "manifest.json"
FOLDER = re.compile(r"shards-\d+-[0-9a-f]{12}", re.ASCII)
_FILE = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors", re.ASCII)


class Shards(msgspec.Struct, frozen=True):
    """Where the shards of a checkpoint are."""

    folder: str
    manifest_sha256: str

    @classmethod
    def of(cls, checkpoint: Mapping[str, Any], path: Path) -> Shards | None:
        """What a checkpoint says of its shards; None where it has none."""
        if KEY not in checkpoint:
            return None
        shards = _convert(checkpoint[KEY], cls, path)
        if not FOLDER.fullmatch(shards.folder):
            raise AssayError(
                f"{path} names {shards.folder!r} as the folder of its shards; refusing to look there"
            )
        return shards


class ShardFile(msgspec.Struct, frozen=True):
    """One file of the manifest."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What one save has written."""

    files: dict[str, ShardFile]
    sha256: str = ""


class Part(msgspec.Struct, frozen=True):
    """Stands in a checkpoint in the place of a tensor that is in the shards."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


def _convert(value: Any, kind: type[_Kind], path: Path) -> _Kind:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise AssayError(f"{path} has an invalid entry about its shards: {error}") from error


_PART = "sharded_tensor"


def split(checkpoint: Any) -> tuple[Any, dict[str, Any]]:
    """A checkpoint in which a note stands for each sharded tensor, and these tensors by name."""
    found: dict[str, Any] = {}

    def take(value: Any, name: str) -> Any:
        sharded: bool = is_traceable_wrapper_subclass(value)
        if not sharded:
            return value
        found[name] = value.detach()
        return {_PART: {"name": name, "shape": list(value.shape), "dtype": value.dtype}}

    return _walk(checkpoint, take), found


def fill(checkpoint: Any, make: Callable[[Part], Any], path: Path) -> Any:
    """A checkpoint of a file with what `make` gives in the place of each sharded tensor."""

    def put(value: Any, _: str) -> Any:
        if not (isinstance(value, dict) and value.keys() == {_PART}):
            return value
        return make(_convert(value[_PART], Part, path))

    return _walk(checkpoint, put)


def _walk(value: Any, change: Callable[[Any, str], Any], name: str = "") -> Any:
    changed = change(value, name)
    if changed is not value:
        return changed
    if isinstance(value, dict):
        items = {
            key: _walk(one, change, f"{name}.{key}" if name else str(key))
            for key, one in value.items()
        }
        if all(items[key] is value[key] for key in items):
            return value
        if isinstance(value, OrderedDict):
            changed = OrderedDict(items)
        else:
            changed = items
        if (metadata := metadata_of(value)) is not None:
            put_metadata(changed, metadata)
        return changed
    if type(value) in (list, tuple):
        return type(value)(_walk(one, change, f"{name}.{at}") for at, one in enumerate(value))
    return value


def read(targets: Mapping[str, torch.Tensor], path: Path, shards: Shards) -> None:
    """Copy what the shards hold into tensors, each of which may be a shard of its own; nothing is run."""
    reader = HuggingFaceStorageReader(str(path.resolve().parent / shards.folder))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(dict(targets), storage_reader=reader, no_dist=True)
    except (Exception, CheckpointException) as error:  # torch raises a dozen kinds
        raise AssayError(
            f"{path} has shards that do not fit: {first_line(root_of(error))}"
        ) from error


def root_of(error: BaseException) -> BaseException:
    """What went wrong in a process, of the exception that torch raises in all of them."""
    if isinstance(error, CheckpointException):
        return next(iter(error.failures.values()))[0]
    return error


def assemble(
    checkpoint: dict[str, Any], path: Path, keys: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A checkpoint with its tensors whole, in this process's memory; of only some of its keys, if named."""
    shards = Shards.of(checkpoint, path)
    if shards is None:
        return checkpoint
    verify(path, shards)
    targets: dict[str, torch.Tensor] = {}

    def make(part: Part) -> torch.Tensor:
        return targets.setdefault(part.name, torch.empty(part.shape, dtype=part.dtype))

    kept = {
        key: value
        for key, value in checkpoint.items()
        if key != KEY and (not keys or key in keys)
    }
    filled: dict[str, Any] = fill(kept, make, path)
    read(targets, path, shards)
    return filled


def verify_shards(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Refuse a checkpoint whose shards are not all there as they were written."""
    shards = Shards.of(checkpoint, path)
    if shards is not None:
        verify(path, shards)


def verify(path: Path, shards: Shards, rank: int = 0, world_size: int = 1) -> None:
    """Refuse shards that are not all there as they were written; several processes share the work."""
    folder = path.resolve().parent / shards.folder
    files = _read_manifest(path, folder, shards).files
    if extra := sorted({one.name for one in folder.glob("*.safetensors")} - files.keys()):
        raise AssayError(
            f"{path} has a shard that is not of its save: {shards.folder}/{extra[0]}"
        )
    for name in sorted(files)[rank::world_size]:
        if reason := _describe_damage(folder / name, files[name]):
            raise AssayError(f"{path} has a shard that {reason}: {shards.folder}/{name}")


def _read_manifest(path: Path, folder: Path, shards: Shards) -> Manifest:
    try:
        text = read_whole(folder / MANIFEST)
    except OSError as error:
        reason = "is missing"
        if not isinstance(error, FileNotFoundError):
            reason = f"cannot be read: {error.strerror}"
        raise AssayError(f"{path} has a manifest that {reason}: {folder / MANIFEST}") from error
    if hashlib.sha256(text).hexdigest() != shards.manifest_sha256 or not is_json_intact(text):
        raise AssayError(
            f"{path} has a manifest that is damaged, or of another save: {folder / MANIFEST}"
        )
    manifest = _convert(json.loads(text), Manifest, path)
    if strange := next((name for name in manifest.files if not _FILE.fullmatch(name)), ""):
        raise AssayError(f"{path} has a manifest that names {strange!r}, which is not a shard")
    return manifest


def _describe_damage(file: Path, listed: ShardFile) -> str:
    """Why a shard cannot be used; empty when it is whole."""
    if file.is_symlink():
        return "is a link"
    try:
        with file.open("rb") as opened:
            digest = digest_of(opened)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    if digest == listed.sha256:
        return ""
    return "is damaged, or of another save"
