"""Data in shards: Parquet, Arrow and tar files, their index, and rows of them. No torch."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tarfile
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np
from platformdirs import user_cache_path

from assay.errors import DataError
from assay.files.atomic import write_text
from assay.files.checksum import is_json_intact, seal_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

SUFFIXES: Final = (".parquet", ".arrow", ".tar")
PICTURE: Final = "image"
"""The column of a tar's pictures."""
_PICTURES: Final = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "ppm", "tif", "tiff")
_INDEX: Final = ".assay_index.json"
_NUMBERED: Final = re.compile(r"(.*?)(\d{5})-of-(\d{5})(.*)")
_BATCH: Final = 8192
"""Rows of a Parquet file that are decoded at a time."""
_OPEN: Final = 16
"""Shards that are kept open."""
_FEWEST_BLOCKS: Final = 16
"""From which a sample is drawn, where there are so many."""
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"
_TAGS: Final = ("ETag", "etag", "md5Hash", "content_md5")
"""What storages call a hash of an object's contents."""
_TIMES: Final = ("mtime", "LastModified", "updated", "created")


@final
class Shard(msgspec.Struct, frozen=True):
    """A file of samples.

    Attributes:
        name: Within the folder.
        size: Of the file in bytes.
        stamp: Differs once the file is changed: its time, or the ETag of a URL.
        sha256: Of the contents; of a URL that has an ETag, of that.
        rows: Of each block: a Parquet file's row group, an Arrow file's record batch, a whole tar.
        num_bytes: Of the rows once they are decompressed.
        offsets: Of a tar: where each sample's files lie, int64 `[N, 4]` in base64.
    """

    name: str
    size: int
    stamp: str
    sha256: str
    rows: list[int]
    num_bytes: int
    offsets: str = ""


class Counts(msgspec.Struct):
    """How often each value of a column occurs in each block, by its place among the values."""

    values: list[Any] = []
    blocks: list[dict[int, int]] = []


class _Index(msgspec.Struct):
    shards: list[Shard] = []
    counts: dict[str, Counts] = {}


@final
class _Folder:
    """Where shards lie: a folder, a single file, or either behind a URL."""

    def __init__(self, path: str) -> None:
        self.path, self._files = path, None
        self.root = Path(path)
        if "://" in path:
            with explain(path):
                import fsspec  # type: ignore[import-untyped]  # it ships no types

                self._files, root = fsspec.core.url_to_fs(path)
                self._root = root.rstrip("/")

    @property
    def is_remote(self) -> bool:
        """Whether files come by a URL."""
        return self._files is not None

    def list_shards(self) -> dict[str, tuple[int, str, bool]]:
        """Size and stamp of each shard, and whether the stamp stands for its contents, in order of names."""
        with explain(self.path):
            found = self._list_remote() if self.is_remote else self._list_local()
        found = dict(sorted(found.items()))
        if not found:
            raise DataError(
                f"data.source.path={self.path}: there are no shards",
                hint=f"give files *{', *'.join(SUFFIXES)}",
            )
        if len(kinds := sorted({PurePosixPath(name).suffix for name in found})) > 1:
            raise DataError(
                f"data.source.path={self.path}: expected shards of one kind, got *{' and *'.join(kinds)}",
                hint="name a folder of one kind",
            )
        for name in found:  # what is called 00000-of-00010 has nine others
            if match := _NUMBERED.fullmatch(name):
                before, _, count, after = match.groups()
                for number in range(int(count)):
                    if (other := f"{before}{number:05}-of-{count}{after}") not in found:
                        raise self.missing(other, f"beside {name}")
        return found

    def missing(self, name: str, why: str) -> DataError:
        """The error for a shard that is not there."""
        return DataError(
            f"data.source.path={self.path}: the shard {name} is missing, {why}", hint="restore it from a copy"
        )

    def _list_local(self) -> dict[str, tuple[int, str, bool]]:
        files = [self.root] if self.root.is_file() else sorted(self.root.rglob("*"))
        base, found = self.root if self.root.is_dir() else self.root.parent, {}
        for file in files:
            name = file.relative_to(base).as_posix()
            if file.suffix in SUFFIXES and not re.search(r"(^|/)(\.|cache-)", name) and file.is_file():
                stat = file.stat()
                found[name] = (stat.st_size, str(stat.st_mtime_ns), False)
            if file.name == "state.json":  # of Hugging Face's `save_to_disk`, whose shards it lists
                for entry in json.loads(file.read_bytes()).get("_data_files") or ():
                    if not (file.parent / Path(str(entry["filename"])).name).is_file():
                        raise self.missing(str(entry["filename"]), f"which {name} lists")
        return found

    def _list_remote(self) -> dict[str, tuple[int, str, bool]]:
        files: Any = self._files
        found = {}
        for full, info in files.find(self._root, detail=True).items():
            name = full.removeprefix(self._root).lstrip("/") or PurePosixPath(full).name
            if PurePosixPath(name).suffix in SUFFIXES and not re.search(r"(^|/)\.", name):
                found[name] = self._remote_state(info)
        return found

    @staticmethod
    def _remote_state(info: Mapping[str, Any]) -> tuple[int, str, bool]:
        tag = next((str(info[key]) for key in _TAGS if info.get(key)), "")
        time = next((str(info[key]) for key in _TIMES if info.get(key)), "")
        return int(info["size"]), tag or time, bool(tag)

    def _full_name(self, name: str) -> str:
        if self.is_remote:
            return self._root if PurePosixPath(self._root).suffix in SUFFIXES else f"{self._root}/{name}"
        return str(self.root if self.root.is_file() else self.root / name)

    def state(self, name: str) -> tuple[int, str]:
        """Size and stamp of a shard as they are now."""
        if self.is_remote:
            files: Any = self._files
            files.invalidate_cache()
            return self._remote_state(files.info(self._full_name(name)))[:2]
        stat = os.stat(self._full_name(name))  # noqa: PTH116 - this is asked for each block
        return stat.st_size, str(stat.st_mtime_ns)

    def open(self, name: str) -> Any:
        """A shard as pyarrow reads it."""
        import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

        full = self._full_name(name)
        if self.is_remote:
            files: Any = self._files
            return pa.PythonFile(files.open(full, "rb"), mode="r")
        # Only what is not decoded is mapped: it would end the process, were the file cut off meanwhile.
        return pa.memory_map(full) if name.endswith(".arrow") else pa.OSFile(full)

    def index_files(self) -> list[Path]:
        """Where the index may lie: beside the data, or in the user's cache folder."""
        known = hashlib.sha256(os.fsencode(self.path if self.is_remote else self.root.resolve())).hexdigest()
        cached = user_cache_path("assay") / "shards" / f"{known[:32]}.json"
        if self.is_remote:
            return [cached]
        beside = (
            self.root.parent / f".{self.root.name}{_INDEX}" if self.root.is_file() else self.root / _INDEX
        )
        return [beside, cached]


@contextmanager
def explain(path: str, name: str = "") -> Iterator[None]:
    """Say in one message which shard cannot be read."""
    where = f"data.source.path={path}: {f'the shard {name} ' if name else ''}cannot be read"
    try:
        yield
    except DataError:
        raise
    except ImportError as error:
        raise DataError(f"{where}: {error}", hint="install the package that reads such URLs") from error
    except Exception as error:  # pyarrow and the storages raise whatever comes to them
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "restore it from a copy" if name else "check the address and its credentials"
        raise DataError(f"{where}: {reason[:300]}", hint=hint) from error


@final
class _Parquet:
    """Row groups, which are decoded from their beginning."""

    is_random = False

    def __init__(self, file: Any, offsets: str) -> None:
        del offsets
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

        self._file = pq.ParquetFile(file)
        groups = [self._file.metadata.row_group(at) for at in range(self._file.metadata.num_row_groups)]
        self.rows, self.num_bytes = (
            [group.num_rows for group in groups],
            sum(g.total_byte_size for g in groups),
        )
        self.schema = self._file.schema_arrow
        self._cursors: dict[tuple[str, ...], tuple[int, int, Any, Any]] = {}

    def read(self, block: int, rows: Rows, columns: Sequence[str]) -> Any:
        """Rows, ascending; going on from where the last call ended where that is possible."""
        import pyarrow as pa

        at, start, batch, batches = self._cursors.pop(tuple(columns), (-1, 0, None, iter(())))
        if at != block or (batch is not None and rows[0] < start):
            batches = self._file.iter_batches(_BATCH, row_groups=[block], columns=list(columns))
            start, batch = 0, None
        pieces, done = [], 0
        while done < len(rows):
            if batch is None or rows[done] >= start + batch.num_rows:
                start += 0 if batch is None else batch.num_rows
                batch = next(batches)
                continue
            end = int(np.searchsorted(rows, start + batch.num_rows))
            pieces.append(batch.take(pa.array(rows[done:end] - start)))
            done = end
        self._cursors[tuple(columns)] = block, start, batch, batches
        return pa.Table.from_batches(pieces)


@final
class _Arrow:
    """Record batches of a file or a stream, mapped into memory."""

    is_random = True

    def __init__(self, file: Any, offsets: str) -> None:
        del offsets
        import pyarrow as pa

        try:
            reader = pa.ipc.open_file(file)
            self._batch: Callable[[int], Any] = reader.get_batch
            self.rows = [reader.get_batch(at).num_rows for at in range(reader.num_record_batches)]
        except pa.ArrowInvalid:
            file.seek(0)
            reader = pa.ipc.open_stream(file)
            batches = list(reader)
            self._batch, self.rows = batches.__getitem__, [batch.num_rows for batch in batches]
            file.seek(file.size() - len(_END_OF_STREAM))
            if file.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
                raise ValueError("the stream ends early") from None
        self.schema, self.num_bytes = reader.schema, file.size()

    def read(self, block: int, rows: Rows, columns: Sequence[str]) -> Any:
        """Rows of a record batch."""
        import pyarrow as pa

        return pa.Table.from_batches([self._batch(block)]).select(list(columns)).take(pa.array(rows))


@final
class _Tar:
    """Samples of WebDataset: files of one name, such as 0017.jpg and 0017.cls; a tar is one block."""

    is_random = True

    def __init__(self, file: Any, offsets: str) -> None:
        import pyarrow as pa

        self._file, self.num_bytes = file, file.size()
        self.offsets = offsets or self._scan()
        self._places = np.frombuffer(base64.b64decode(self.offsets), np.int64).reshape(-1, 4)
        self.rows = [len(self._places)]
        first = self._labels(self._places[0])
        self.schema = pa.schema([(PICTURE, pa.binary()), *((name, pa.null()) for name in first)])

    def _scan(self) -> str:
        samples: dict[str, list[int]] = {}
        self._file.seek(self.num_bytes - 1024)
        if any(self._file.read(1024)):
            raise ValueError("the tar ends early")
        self._file.seek(0)
        with tarfile.open(fileobj=self._file, mode="r:") as tar:
            for member in tar:
                folder, _, file = member.name.rpartition("/")
                key, _, kind = file.partition(".")
                slot = 0 if kind.lower() in _PICTURES else 2 if kind in ("cls", "json") else None
                if member.isfile() and slot is not None:
                    place = samples.setdefault(f"{folder}/{key}", [0, 0, 0, 0])
                    place[slot : slot + 2] = member.offset_data, member.size
        for key, place in samples.items():
            if not (place[1] and place[3]):
                lacking = "a .cls or .json file" if place[1] else "a picture"
                raise ValueError(f"the sample {key.lstrip('/')} has no {lacking}")
        if not samples:
            raise ValueError("it has no pictures with a .cls or .json file beside each")
        return base64.b64encode(np.array([*samples.values()], np.int64).tobytes()).decode()

    def _bytes(self, offset: int, size: int) -> bytes:
        self._file.seek(int(offset))
        content: bytes = self._file.read(int(size))
        if len(content) < size:
            raise ValueError("it ends early")
        return content

    def _labels(self, place: Rows) -> dict[str, Any]:
        value = json.loads(text) if (text := self._bytes(*place[2:]).strip())[:1] in b'"{' else text.decode()
        if isinstance(value, dict):
            return {str(name): one for name, one in value.items() if not isinstance(one, dict | list)}
        return {"cls": int(value) if str(value).isdecimal() else value}

    def read(self, block: int, rows: Rows, columns: Sequence[str]) -> Any:
        """Samples, wherever they lie."""
        del block
        import pyarrow as pa

        records = []
        for place in self._places[rows]:
            labels = self._labels(place) if {*columns} != {PICTURE} else {}
            picture = self._bytes(*place[:2]) if PICTURE in columns else b""
            records.append({**labels, PICTURE: picture})
        return pa.table({name: [record.get(name) for record in records] for name in columns})


_FORMATS: Final[Mapping[str, Any]] = {".parquet": _Parquet, ".arrow": _Arrow, ".tar": _Tar}


@final
class ShardReader:
    """Rows of shards by block, and what is known of them without reading: the index.

    Attributes:
        shards: In order of their names.
        rows: Of each block of all shards, in order.
        starts: Number of each block's first row, counted over all shards.
        columns: Names of the columns.
        note: Where the index is; empty where it was there before.
    """

    def __init__(self, path: str) -> None:
        self._folder, self.note = _Folder(path), ""
        self.path = path
        self._opened: OrderedDict[int, Any] = OrderedDict()
        self._process = os.getpid()
        self._index = self._read_index()
        self.shards = self._index.shards
        self.rows = np.array([rows for shard in self.shards for rows in shard.rows], np.int64)
        self.starts = np.cumsum(self.rows) - self.rows
        self._places = [
            (at, block) for at, shard in enumerate(self.shards) for block in range(len(shard.rows))
        ]
        self.schema = self._open(0).schema
        self.columns = list(self.schema.names)
        self.is_random: bool = self._open(0).is_random

    def shard_of(self, block: int) -> Shard:
        """The shard that a block lies in."""
        return self.shards[self._places[block][0]]

    @property
    def digest(self) -> str:
        """The hash of the shards' hashes."""
        return hashlib.sha256("\n".join(shard.sha256 for shard in self.shards).encode()).hexdigest()

    def read(self, block: int, rows: Rows, columns: Sequence[str]) -> Any:
        """Columns of some rows of a block, which are ascending, as a table of pyarrow's."""
        at, within = self._places[block]
        with explain(self.path, self.shards[at].name):
            if not self._folder.is_remote:
                self._check_unchanged(self.shards[at])
            return self._open(at).read(within, rows, columns)

    def count(self, name: str, columns: Sequence[str], values: Callable[[int, Any], Any]) -> Counts:
        """How often each value of a block's rows occurs: all are read, once, and the index keeps the result.

        Args:
            name: Of the result in the index.
            columns: That are read.
            values: Of the rows that count, given a block and a table of its columns.
        """
        import pandas as pd

        if name not in self._index.counts:
            counts, places = Counts([], []), dict[Any, int]()
            for block, rows in enumerate(self.rows):
                series = pd.Series(values(block, self.read(block, np.arange(rows), columns)), dtype=object)
                found = series.value_counts(sort=False, dropna=False)
                plain = [
                    None if pd.isna(one) else getattr(one, "item", lambda one=one: one)()
                    for one in found.index
                ]
                tally = zip(
                    (places.setdefault(one, len(places)) for one in plain), found.tolist(), strict=True
                )
                counts.blocks.append(dict(tally))
            counts.values = list(places)
            self._index.counts[name] = counts
            self._save()
        return self._index.counts[name]

    def count_classes(
        self, name: str, others: Sequence[str] = (), where: str = "", choose: Any = None
    ) -> Counts:
        """How often each value of a column occurs, among the rows of a block that `choose` picks."""

        def values(block: int, table: Any) -> Any:
            column = table.column(name).to_pandas()
            if missing := int(column.isna().sum()):
                shard = self.shard_of(block).name
                raise DataError(
                    f"data.source.target={name}: {missing:,} rows of {shard} have no value",
                    hint="write the shards without such rows",
                )
            return column if choose is None else column[choose(block)]

        return self.count(f"{name}{where}", [*dict.fromkeys([name, *others])], values)

    def spread(self, wanted: int, available: Rows | None = None) -> list[int]:
        """Blocks, evenly spread over all, that hold so many of the available rows, and some more."""
        rows = self.rows if available is None else available
        blocks = np.flatnonzero(rows)
        number = _FEWEST_BLOCKS
        while number < len(blocks):
            chosen = blocks[np.unique(np.linspace(0, len(blocks) - 1, number).round().astype(int))]
            if rows[chosen].sum() >= 2 * wanted:
                return [*map(int, chosen)]
            number *= 2
        return [*map(int, blocks)]

    def first_rows(self, columns: Sequence[str], most: int = 20_000) -> pd.DataFrame:
        """Rows of blocks that are spread over all."""
        import pyarrow as pa

        blocks = self.spread(most)
        each = -(-most // max(1, len(blocks)))
        tables = [self.read(at, np.arange(min(each, self.rows[at])), columns) for at in blocks]
        frame: pd.DataFrame = pa.concat_tables(tables, promote_options="default").to_pandas(
            ignore_metadata=True
        )
        return frame

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": OrderedDict()}

    def _open(self, at: int) -> Any:
        if os.getpid() != self._process:  # what a process has open its children cannot share
            self._opened, self._process = OrderedDict(), os.getpid()
        if at not in self._opened:
            shard = self.shards[at]
            with explain(self.path, shard.name):
                self._check_unchanged(shard)
                file = self._folder.open(shard.name)
                self._opened[at] = _FORMATS[PurePosixPath(shard.name).suffix](file, shard.offsets)
            if len(self._opened) > _OPEN:
                self._opened.popitem(last=False)
        self._opened.move_to_end(at)
        return self._opened[at]

    def _check_unchanged(self, shard: Shard) -> None:
        if self._folder.state(shard.name) != (shard.size, shard.stamp):
            raise DataError(
                f"data.source.path={self.path}: the shard {shard.name} has changed since the data was read",
                hint="bring it back as it was and `assay resume` the run, or train anew",
            )

    def _read_index(self) -> _Index:
        listed, known = self._folder.list_shards(), self._load()
        index = _Index(known.shards, known.counts)
        before = {shard.name: shard for shard in known.shards}
        if lost := sorted(before.keys() - listed.keys()):
            file = next(file for file in self._folder.index_files() if file.is_file())
            error = self._folder.missing(lost[0], f"which the index {file} lists")
            error.hint = f"restore it from a copy, or remove {file} to take the others alone"
            raise error
        new = [
            name for name, (size, stamp, _) in listed.items() if not _is_same(before.get(name), size, stamp)
        ]
        if not new:
            return index
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            scanned = dict(zip(new, pool.map(lambda name: self._scan(name, *listed[name]), new), strict=True))
        index.shards, index.counts = [scanned.get(name) or before[name] for name in listed], {}
        self._index = index
        self._save()
        return index

    def _scan(self, name: str, size: int, stamp: str, is_hash: bool) -> Shard:
        with explain(self.path, name):
            opened = _FORMATS[PurePosixPath(name).suffix](self._folder.open(name), "")
            digest = hashlib.sha256(f"{size} {stamp}".encode() if is_hash else b"")
            if not is_hash:
                with self._folder.open(name) as file:
                    while chunk := file.read(1 << 20):
                        digest.update(chunk)
            offsets = getattr(opened, "offsets", "")
            return Shard(name, size, stamp, digest.hexdigest(), opened.rows, opened.num_bytes, offsets)

    def _load(self) -> _Index:
        for file in self._folder.index_files():
            with suppress(OSError, msgspec.MsgspecError):  # it is made anew
                if is_json_intact(content := file.read_bytes()):
                    return msgspec.json.decode(content, type=_Index)
        return _Index()

    def _save(self) -> None:
        text = seal_json(msgspec.json.format(msgspec.json.encode(self._index), indent=1).decode())
        for file in self._folder.index_files():
            with suppress(OSError):  # beside the data may not be writable, nor a home
                write_text(file, text)
                self.note = (
                    f"data.source.path={self.path}: the index of {len(self._index.shards):,} shards is {file}"
                )
                return


def _is_same(known: Shard | None, size: int, stamp: str) -> bool:
    return known is not None and (known.size, known.stamp) == (size, stamp)
