"""Checkpoints on disk: complete or absent, checked before they are read, tensors and containers only."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import time
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from lightning.pytorch.plugins.io import CheckpointIO
from omegaconf import OmegaConf

from assay.errors import AssayError, first_line
from assay.files.atomic import Output, open_atomic, sync_directory
from assay.files.checksum import SUFFIX, content_sums, describe_damage, sum_path, write_sums
from assay.rooms import entries
from assay.torch_internals import is_traceable_wrapper_subclass, metadata_of, put_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable


_AS_THEY_ARE = (bool, int, float, complex, type(None), torch.dtype, torch.device, torch.Size)
_NUMBERS = (bool, int, float, complex)


def to_plain(
    value: Any,
    key: str = "",
    take: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> Any:
    """A copy that `torch.load` reads back equal with its restricted reader, of tensors what `take` makes."""
    if type(value) is str:
        # so that equal checkpoints are equal bytes: pickle writes an object once
        return sys.intern(value)
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, torch.Tensor):
        return take(_tensor(value, key))
    if isinstance(value, dict):
        return _mapping(value, key, take)
    if isinstance(value, list | tuple | set | frozenset):
        kind: Any = next((kind for kind in (list, tuple) if isinstance(value, kind)), set)
        return kind(to_plain(one, f"{key}[{index}]", take) for index, one in enumerate(value))
    return _scalar(value, key)


def _scalar(value: Any, key: str) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes | bytearray) and value:  # pickle stores empty ones as a call
        return bytes(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return str.__str__(value)  # of an enum's member too, whose own text is its name
    for number in _NUMBERS:
        if isinstance(value, number):
            return number(value)  # type: ignore[arg-type]  # it is one
    raise _unsupported_value(value, key)


def serializable_part(values: Any) -> tuple[dict[Any, Any], list[str]]:
    """The hyper-parameters that a checkpoint can hold, and the names of those that it cannot."""
    kept: dict[Any, Any] = {}
    dropped: list[str] = []
    if OmegaConf.is_config(values):
        values = OmegaConf.to_container(values)
    for name, value in values.items():
        try:
            kept.update(to_plain({name: value}))
        except (TypeError, RecursionError) as error:
            if isinstance(value, Mapping) and isinstance(error, TypeError):
                kept[name], inside = serializable_part(value)
                dropped += [f"{name}.{one}" for one in inside]
            else:
                dropped.append(str(name))
    return kept, dropped


def _mapping(
    value: dict[Any, Any], key: str, take: Callable[[torch.Tensor], torch.Tensor]
) -> dict[Any, Any]:
    where = "a key"
    if key:
        where = f"a key of {key}"
    items = [
        (name, to_plain(one, f"{key}.{name}" if key else str(name), take))
        for name, one in value.items()
    ]
    if any(isinstance(name, torch.Tensor) for name, _ in items):
        raise TypeError(
            f"a checkpoint holds only tensors and plain containers, but {where} is a torch.Tensor"
        )
    items = [(to_plain(name, where), one) for name, one in items]
    if isinstance(value, OrderedDict):
        ordered = OrderedDict(items)
        metadata = metadata_of(value)
        if metadata is not None:
            put_metadata(ordered, to_plain(metadata, f"{key}._metadata"))
        return ordered
    if isinstance(value, Counter):
        return Counter(dict(items))
    return dict(items)


def _tensor(value: torch.Tensor, key: str) -> torch.Tensor:
    # A wrapper, such as a sharded tensor, has no memory of its own.
    wrapper: bool = is_traceable_wrapper_subclass(value)
    if wrapper or torch.nn.parameter.is_lazy(value):
        raise _unsupported_value(value, key)
    # Attributes of a tensor may be anything; detaching leaves them behind.
    if isinstance(value, torch.nn.Parameter) or vars(value):
        value = value.detach()
    if type(value) is torch.Tensor:
        return value
    return value.as_subclass(torch.Tensor)


def _unsupported_value(value: Any, key: str) -> TypeError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return TypeError(
        f"a checkpoint holds only tensors and plain containers, but {key or 'it'} is a {kind}"
    )


def weights_sha256(state: Mapping[str, Any]) -> str:
    """SHA-256 over name, dtype, shape and bytes of every tensor, by name; of shards, asked for by all."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if isinstance(tensor, torch.Tensor):
            # one at a time
            value: Any
            if hasattr(tensor, "full_tensor"):
                value = tensor.full_tensor()
            else:
                value = tensor
            if value.layout is not torch.strided:
                whole = value.detach().to_dense()
            else:
                whole = value.detach()
            flat = whole.cpu().contiguous().reshape(-1)
            digest.update(json.dumps([name, str(value.dtype), list(value.shape)]).encode())
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


@final
class Snapshot:
    """Copies of the memory behind tensors, each piece once, whatever shares it."""

    def __init__(self) -> None:
        self._copies: dict[tuple[str, int, int], torch.UntypedStorage] = {}

    @property
    def nbytes(self) -> int:
        """Bytes that it holds."""
        return sum(copy.nbytes() for copy in self._copies.values())

    def copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same tensor in the CPU's memory, of which nothing changes any more."""
        tensor = tensor.detach()
        device = "cpu"
        if tensor.is_meta:
            device = "meta"
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
            return tensor.to(device, copy=True)
        if tensor.is_conj() or tensor.is_neg():  # has no memory as it reads
            return tensor.resolve_conj().resolve_neg().to(device, copy=True)
        storage = tensor.untyped_storage()
        key = (str(storage.device), storage.data_ptr(), storage.nbytes())
        if key not in self._copies:
            here = storage.cpu()  # type: ignore[no-untyped-call]  # itself, where it lies there already
            if here is storage:
                self._copies[key] = storage.clone()
            else:
                self._copies[key] = here
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(
            self._copies[key], tensor.storage_offset(), tensor.shape, tensor.stride()
        )


_PAUSE = 1.0
"""Seconds between two writes of a file: a process that is killed loses as much more of its training."""


@final
class BackgroundWriter:
    """Does steps one after the other in a thread, which ends when nothing is left to do."""

    # Of several versions of a file that come in quick succession only the newest is written, so that short
    # epochs are not held up. The files of one moment go together, in their order: none is left out before
    # all files of a later moment are known, so that the last checkpoint never speaks of a best one to come.

    def __init__(self) -> None:
        self._changed = Condition()
        self._ready: dict[Path, Callable[[], None]] = {}
        self._coming: dict[Path, Callable[[], None]] = {}
        """Of the moment of which more files may come."""
        self._moment: Hashable = None
        self._thread: Thread | None = None
        self._is_awaited = False
        self._last = -_PAUSE

    def put(self, work: Callable[[], None], path: Path, moment: Hashable = None) -> None:
        """Have something done to a file, in the place of what was to be done to it at an earlier moment."""
        with self._changed:
            if moment not in (None, self._moment):
                kept = {one: step for one, step in self._ready.items() if one not in self._coming}
                self._ready = {**kept, **self._coming}
                self._coming = {}
                self._moment = moment
            self._coming[path] = work
            if self._thread is None:
                self._thread = Thread(target=self._run, name="checkpoint")
                self._thread.start()

    def __reduce__(self) -> tuple[type[BackgroundWriter], tuple[()]]:
        # a spawned worker, to which a trainer is pickled, writes nothing
        return (BackgroundWriter, ())

    def wait(self) -> None:
        """Return when all is done; what waits is done now."""
        with self._changed:
            self._is_awaited = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None)
            self._is_awaited = False

    def _run(self) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_awaited, self._last + _PAUSE - time.monotonic()
            )
        while True:
            with self._changed:
                steps = self._ready or self._coming
                if not steps:
                    self._last = time.monotonic()
                    self._thread = None
                    self._changed.notify_all()
                    return
                work = steps.pop(next(iter(steps)))
            work()
            del work  # its memory is free once it is written


log = logging.getLogger(__name__)
_PIECE = 1 << 16
_SMALL = 32 << 20
"""Bytes of a checkpoint of which a few copies may be in memory."""


@final
class CheckpointFile(CheckpointIO):
    """Reads and writes checkpoints, each with its SHA-256 beside it as `sha256sum` writes it."""

    def __init__(self, *, background: bool = False) -> None:
        self._background = background
        self._writer = BackgroundWriter()
        self._large: Hashable = None
        """The moment of the last large checkpoint."""
        self._error: BaseException | None = None

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None
    ) -> None:
        """Write a checkpoint; the previous one stays until this one is on disk."""
        del storage_options
        self._raise()
        target = _local_path(path)
        moment = (checkpoint.get("epoch"), checkpoint.get("global_step"))
        if self._large not in (None, moment):
            self._writer.wait()  # large ones of two steps are never held at once
        copied, size = plain_copy(checkpoint)
        if size <= _SMALL:
            self._large = None
        else:
            self._large = moment
        self._do(partial(write, copied, target), target, moment)

    def load_checkpoint(
        self,
        path: str | Path,
        map_location: Callable[..., Any] | torch.device | str | dict[str, str] | None = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Read a checkpoint without running anything in it."""
        del weights_only
        self._writer.wait()
        self._raise()
        checkpoint = load_verified(_local_path(path), map_location)
        for shards in entries("shards"):
            checkpoint = shards.assemble(checkpoint, Path(path))
        return checkpoint

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint and its sum, after what was saved before is on disk."""
        target = _local_path(path)
        self._do(partial(remove, target), target)

    def teardown(self) -> None:
        """Wait until all is on disk."""
        self._writer.wait()
        self._raise()

    def _do(self, step: Callable[[], None], target: Path, moment: Hashable = None) -> None:
        if self._background and not _is_distributed():
            self._writer.put(partial(self._try, step), target, moment)
            return
        self._writer.wait()
        self._raise()
        step()

    def _try(self, step: Callable[[], None]) -> None:
        # After a failure nothing is removed: the old checkpoint is the one that stays.
        if self._error is None:
            try:
                step()
            except (
                BaseException
            ) as error:  # told where training can be stopped, not in this thread
                self._error = error

    def _raise(self) -> None:
        if self._error is not None:
            self._writer.wait()
            error = self._error
            self._error = None
            raise error


def plain_copy(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Copy a checkpoint, without what no file of tensors and containers holds; the copy, and its bytes."""
    # `hparams_type` is a class; whatever `assay.load` needs beyond these stands in the run's config.
    kept = {name: value for name, value in checkpoint.items() if name != "hparams_type"}
    for name in ("hyper_parameters", "datamodule_hyper_parameters"):
        if name in kept:
            kept[name], _ = serializable_part(kept[name])
    snapshot = Snapshot()
    return to_plain(kept, take=snapshot.copy), snapshot.nbytes


def load_verified(path: Path, map_location: Any = None) -> dict[str, Any]:
    """Read a checkpoint whose SHA-256 is the one beside it; what lies in shards is not read."""
    # `last.ckpt` may be a link to the best one, whose sum lies beside that
    source = path.resolve()
    if not source.is_file():
        raise AssayError(f"there is no checkpoint {source}")
    if not sum_path(source).is_file():
        log.warning("%s has no SHA-256 beside it, so it cannot be verified", source)
    elif reason := describe_damage(source):
        raise AssayError(f"{source} {reason}", hint="use another checkpoint of the run")
    return read_checkpoint(source, map_location)


def read_checkpoint(
    source: Path, map_location: Any = None, *, mmap: bool = False
) -> dict[str, Any]:
    """Read tensors and plain containers, and run nothing."""
    if not zipfile.is_zipfile(source):
        raise AssayError(f"{source} is truncated, or torch.save did not write it")
    try:
        loaded = torch.load(source, map_location or "cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # torch raises half a dozen kinds for what is not a checkpoint
        # torch goes on to advise unsafe loading
        reason = first_line(error).partition(". In PyTorch 2.6")[0]
        raise AssayError(
            f"{source} cannot be read as tensors and plain containers: {reason}"
        ) from error
    if not isinstance(loaded, dict):
        raise AssayError(f"{source} is not a checkpoint: it holds a {type(loaded).__name__}")
    return loaded


def write(content: dict[str, Any], target: Path) -> None:
    """Write a checkpoint and its sum; the one before is there until this one is on disk."""
    try:
        with open_atomic(target) as file:
            digest = _save(content, file)
            write_sums(target, [digest, *content_sums(target)])
        write_sums(target, [digest])
    except OSError as error:
        raise AssayError(
            f"the checkpoint {target} could not be written: {error.strerror or error}",
            hint="earlier checkpoints are intact; free some space, then `assay resume` the run",
        ) from error


def _save(content: dict[str, Any], file: Output) -> str:
    """Write a checkpoint; return the SHA-256 of what is written."""
    hashing = _Hashing(file)
    try:
        torch.save(content, hashing)  # type: ignore[arg-type]  # it only writes and flushes
    except Exception:
        if hashing.error is not None:
            raise hashing.error from None
        raise
    hashing.flush()
    return hashing.hexdigest()


def remove(target: Path) -> None:
    """Remove a checkpoint and its sum."""
    target.unlink(missing_ok=True)
    sum_path(target).unlink(missing_ok=True)
    if target.parent.is_dir():
        sync_directory(target.parent)


def _is_distributed() -> bool:
    return (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    )


def _local_path(path: str | Path) -> Path:
    if "://" in str(path):
        raise ValueError(f"a checkpoint must be on a file system of this machine, got {path}")
    return Path(path)


@final
class _Hashing:
    """Takes the SHA-256 of what is written, so that nothing has to be read again."""

    def __init__(self, file: Output) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._pieces = bytearray()
        self.error: OSError | None = None
        """Why a write failed, which PyTorch does not tell."""

    def write(self, data: bytes | memoryview) -> int:
        size = len(data)
        if len(self._pieces) + size > _PIECE:
            self.flush()
        if size > _PIECE:
            self._put(data)
        else:
            self._pieces += data
        return size

    def flush(self) -> None:
        if self._pieces:
            self._put(self._pieces)
            self._pieces = bytearray()

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._digest.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


@final
@dataclass(frozen=True)
class Newest:
    """What was found."""

    path: Path | None
    step: int = 0
    refused: list[tuple[Path, str]] = field(default_factory=list)
    midway: list[Path] = field(default_factory=list)
    """Of data that can only be read from the start of an epoch."""


_HALF_DONE = "was saved in the middle of a step, of a validation or of the end of an epoch"


def find_newest_checkpoint(run_dir: Path, expected: Iterable[str] = ()) -> Newest:
    """Find the checkpoint with the most steps done, after verifying the SHA-256 of every one."""
    folder = run_dir / "checkpoints"
    wanted = set(expected)
    valid: list[tuple[tuple[int, ...], Path]] = []
    refused: list[tuple[Path, str]] = []
    midway: list[Path] = []
    for path in _candidates(folder, wanted):
        try:
            progress, state = _progress(path)
            if state.get("epoch_lost"):
                midway.append(path)
            elif state.get("position", state) is None:
                refused.append((path, _HALF_DONE))
            else:
                valid.append((progress, path))
        except AssayError as error:
            # A first save, or a removal, may have been cut short and have left the sum alone.
            if path.is_file() or path.is_symlink() or path.name in wanted:
                refused.append((path, error.message.removeprefix(f"{path} ")))
    if valid:
        progress, path = max(valid, key=lambda one: (one[0], one[1].name == "last.ckpt"))
        return Newest(path, progress[1], refused, midway)
    if refused:
        told = "; ".join(f"{path.name} {reason}" for path, reason in refused)
        raise AssayError(
            f"{run_dir} has no checkpoint that can be used: {told}",
            hint="restore one from a copy, or train with the same overrides in another directory",
        )
    return Newest(None, 0, refused, midway)


def _candidates(folder: Path, wanted: set[str]) -> list[Path]:
    if folder.is_dir():
        there = [path.name for path in folder.iterdir()]
    else:
        there = []
    named = {name.removesuffix(SUFFIX) for name in there if not name.startswith(".")}
    named |= {name for name in wanted if Path(name).name == name}  # a record may be anybody's
    return [folder / name for name in sorted(named) if name.endswith(".ckpt")]


def _progress(path: Path) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Batches and optimizer steps done in a checkpoint that is whole, and what the loop saved in it."""
    if reason := describe_damage(path):
        raise AssayError(f"{path} {reason}")
    loaded = read_checkpoint(path, mmap=True)
    for shards in entries("shards"):
        shards.verify_shards(loaded, path)
    try:
        loop = loaded.get("loops", {}).get("fit_loop", {})
        batches = loop.get("epoch_loop.batch_progress", {}).get("total", {}).get("completed", 0)
        state = dict(loop.get("state_dict", {}))
        return (int(batches), int(loaded.get("global_step", 0))), state
    except (AttributeError, TypeError, ValueError) as error:
        raise AssayError(
            f"{path} has no position of the training: the file was changed"
        ) from error
