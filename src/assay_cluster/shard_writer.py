"""Saves what several processes hold in shards, while training goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec
from torch import distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_saver import save

from assay.checkpoint.checkpoint_file import plain_copy, read_checkpoint, remove, write
from assay.errors import AssayError, first_line
from assay.files.atomic import sync_directory, temporary_name, write_text
from assay.files.checksum import digest_of, seal_json
from assay_cluster.shards import FOLDER, KEY, MANIFEST, ShardFile, Shards, root_of, split

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future


_FILE_BYTES = 1 << 28
"""Of a file of shards, which is in memory a second time while it is written."""


@final
class ShardWriter:
    """Writes one checkpoint at a time in a thread; all processes call the same methods in the same order.

    The shards and their manifest are on disk under their names before the checkpoint that names them
    replaces an earlier one, whose shards are removed last.

    Args:
        group: Of all processes, for this thread alone: training's own breaks when two threads use it.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._rank = dist.get_rank(group)
        self._size = dist.get_world_size(group)
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._last: Future[None] | None = None

    def save(self, checkpoint: dict[str, Any], path: Path) -> None:
        """Copy a checkpoint, and have it written."""
        self.wait()
        plain, tensors = split(checkpoint)
        # A tensor's storage may be padded; of that nothing is copied.
        copies = {name: tensor.to("cpu", copy=True) for name, tensor in tensors.items()}
        plain = plain_copy(plain)[0] if self._rank == 0 else {}
        step = int(checkpoint.get("global_step") or 0)
        self._start(lambda: self._save(plain, copies, path, step))

    def remove(self, path: Path) -> None:
        """Remove a checkpoint and its shards after what was saved before is on disk."""

        def work() -> None:
            remove(path)
            _remove_unnamed(path.parent)

        if self._rank == 0:
            self._start(work)

    @property
    def is_saving(self) -> bool:
        """Whether a save is under way."""
        return self._last is not None and not self._last.done()

    def wait(self) -> None:
        """Return when all that was saved is on disk, from whichever process."""
        last = self._last
        self._last = None
        if last is not None:
            last.result()

    def _start(self, work: Callable[[], None]) -> None:
        before = self._last

        def run() -> None:
            if before is not None:  # if that has failed, the old checkpoint is the one that stays
                before.result()
            work()

        self._last = self._thread.submit(run)

    def _save(self, plain: dict[str, Any], copies: dict[str, Any], path: Path, step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(self.gather(temporary_name(path.with_name(f"shards-{step}")))[0])
        problem: str = ""
        try:
            files = self._write_shards(copies, unfinished)
        except (Exception, CheckpointException) as error:
            files = {}
            problem = _reason(error)
        outcomes = self.gather((files, problem))
        if not any(problem for _, problem in outcomes):
            problem = self._finish(
                plain, [files for files, _ in outcomes], unfinished, path, step
            )
            outcomes = self.gather((files, problem))
        if wrong := [(rank, problem) for rank, (_, problem) in enumerate(outcomes) if problem]:
            if self._rank == 0:
                shutil.rmtree(unfinished, ignore_errors=True)
                _remove_unnamed(path.parent)
            rank, reason = wrong[0]
            raise AssayError(
                f"the checkpoint {path} could not be written: {reason} (rank {rank})",
                hint="earlier checkpoints are intact; free some space, then `assay resume` the run",
            )

    def _write_shards(self, copies: dict[str, Any], folder: Path) -> dict[str, ShardFile]:
        """Write and sync the shards of this process; the sums of what is on disk."""
        writer = HuggingFaceStorageWriter(
            str(folder), fqn_to_index_mapping=_files_of(copies, self._size), save_distributed=True
        )
        save(copies, storage_writer=writer, process_group=self._group)
        files = {}
        for path in sorted(folder.glob(f"shard-{self._rank + 1:05d}-*")):
            with path.open("rb") as file:
                files[path.name] = ShardFile(path.stat().st_size, digest_of(file))
        return files

    def _finish(
        self,
        plain: dict[str, Any],
        files: list[dict[str, ShardFile]],
        unfinished: Path,
        path: Path,
        step: int,
    ) -> str:
        """In the first process: give the shards their name, then put the checkpoint in its place."""
        if self._rank:
            return ""
        try:
            listed = {name: file for of_rank in files for name, file in of_rank.items()}
            text = seal_json(json.dumps(msgspec.to_builtins({"files": listed}), indent=2))
            write_text(unfinished / MANIFEST, text)
            folder = path.with_name(f"shards-{step}-{unfinished.name.split('.')[-2]}")
            unfinished.rename(folder)
            sync_directory(folder.parent)
            digest = hashlib.sha256(text.encode()).hexdigest()
            shards = Shards(folder.name, digest)
            write({**plain, KEY: msgspec.to_builtins(shards)}, path)
            _remove_unnamed(path.parent)
        except Exception as error:
            return _reason(error)
        return ""

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, by rank; not while something is written."""
        every: list[Any] = [None] * self._size
        dist.all_gather_object(every, value, group=self._group)
        return every


def _files_of(copies: dict[str, Any], world_size: int) -> dict[str, int]:
    """Which of its files each process writes its part of a tensor to."""
    numbers = {}
    number = 1
    filled = 0
    for name, tensor in copies.items():
        size = tensor.numel() * tensor.element_size() // world_size
        if filled and filled + size > _FILE_BYTES:
            number += 1
            filled = 0
        numbers[name] = number
        filled += size
    return numbers


def _remove_unnamed(folder: Path) -> None:
    """Remove the shards that no checkpoint names any more; none while one cannot be read."""
    named: set[str] = set()
    for path in folder.glob("*.ckpt"):
        try:
            shards = Shards.of(read_checkpoint(path, mmap=True), path)
        except (AssayError, OSError):
            return
        if shards is not None:
            named.add(shards.folder)
    for old in folder.glob("shards-*"):
        if FOLDER.fullmatch(old.name) and old.name not in named and not old.is_symlink():
            gone = temporary_name(old)
            old.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def _reason(error: BaseException) -> str:
    """What went wrong, and on which machine."""
    error = root_of(error)
    # which names the checkpoint again
    if isinstance(error, AssayError) and error.__cause__ is not None:
        error = error.__cause__
    text = getattr(error, "strerror", None) or first_line(error)
    return f"{text} on {socket.gethostname()}"
