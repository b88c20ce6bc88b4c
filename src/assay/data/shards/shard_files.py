"""Data in shards: Parquet and tar files, their index, and rows of them. No torch."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tarfile
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, final

import msgspec
import numpy as np

from assay.config.did_you_mean import list_names
from assay.data.core.source_files import cache_folder
from assay.data.table.table_file import from_arrow, settle
from assay.data.table.table_targets import task_of_columns
from assay.errors import DataError
from assay.files.atomic import write_text
from assay.files.checksum import digest_of, is_json_intact, seal_json
from assay.quoting import pluralize
from assay.task.task_of import TASKS, infer_task

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from assay.data.core.types import Frame, Rows, Strings, Values


IMAGE = "image"
"""The column of a tar's images."""
_SUFFIXES = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "ppm", "tif", "tiff")
_NUMBERED = re.compile(r"(.*?)\d{5}-of-(\d{5})")
_BATCH = 8192
"""Rows of a Parquet file that are decoded at a time."""
_READ_AT_ONCE = 1 << 16
"""Bytes of a column that are read at a time, not yet decoded."""
_OPEN = 16
"""Shards that are kept open, where any of their rows are read without those before them; of others one."""
_FEWEST_BLOCKS = 16
"""From which a sample is drawn, where there are so many."""
_TAGS = ("ETag", "etag", "md5Hash", "content_md5")
"""What storages call a hash of an object's contents."""
_TIMES = ("mtime", "LastModified", "updated", "created")


@final
class Shard(msgspec.Struct, frozen=True):
    """A file of samples.

    Attributes:
        name: Within the folder.
        size: Of the file in bytes.
        stamp: Differs once the file is changed: its time, or the ETag of a URL.
        sha256: Of the contents; of a URL that has an ETag, of that.
        rows: Of each block: a Parquet file's row group, a whole tar.
        num_bytes: Of the rows once they are decompressed.
        schema: A hash of the columns and their types.
        offsets: Of a tar: where each sample's files lie, int64 `[N, 4]` in base64.
    """

    name: str
    size: int
    stamp: str
    sha256: str
    rows: list[int]
    num_bytes: int
    schema: str
    offsets: str = ""


class _Index(msgspec.Struct):
    shards: list[Shard]
    counts: dict[str, list[list[tuple[Any, int]]]]


@contextmanager
def _explain(path: str, name: str = "") -> Iterator[None]:
    """Say in one message which shard cannot be read."""
    where = f"data.source.path={path}: {f'the shard {name} ' if name else ''}cannot be read"
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # pyarrow and the storages raise whatever comes to them
        reason = " ".join(str(error).split()) or type(error).__name__
        hint = "check the address and its credentials"
        if isinstance(error, ImportError):
            hint = "install the package that reads such URLs"
        elif name and "://" not in path:
            hint = "restore it from a copy"
        raise DataError(f"{where}: {reason[:300]}", hint=hint) from error


@final
class _Folder:
    """Where shards lie: a folder, a single file, or either behind a URL."""

    def __init__(self, path: str) -> None:
        import fsspec  # type: ignore[import-untyped]  # it ships no types

        self.path = path
        self.is_remote = "://" in path
        with _explain(path):
            if self.is_remote:
                self._files, root = fsspec.core.url_to_fs(path)
            else:  # fsspec would follow a chain such as reference::FILE to the addresses in it
                self._files = fsspec.filesystem("file")
                root = str(Path(path).expanduser().absolute())
            self._root: str = root.rstrip("/")
            self._is_file: bool = self._files.isfile(self._root)

    def list_shards(self) -> dict[str, tuple[int, str, bool]]:
        """Size and stamp of each shard, and whether the stamp stands for its contents, by its name."""
        with _explain(self.path):
            names = [PurePosixPath(self._root).name]
            if not self._is_file:
                names = [full[len(self._root) + 1 :] for full in self._files.find(self._root)]
            names = [name for name in sorted(names) if not re.search(r"(^|/)(\.|cache-)", name)]
            found = {
                name: self.state(name) for name in names if PurePosixPath(name).suffix in _FORMATS
            }
        kinds = sorted({PurePosixPath(name).suffix for name in found})
        if len(kinds) != 1:
            which = f"*{', *'.join(_FORMATS)}"
            if kinds:
                which = f"shards of one kind, got *{' and *'.join(kinds)}"
            raise DataError(
                f"data.source.path={self.path}: expected {which}", hint="name a folder of shards"
            )
        # What is called 00000-of-00010 has nine others; Hugging Face may write a hash behind each.
        numbered = {match[0]: match for name in found if (match := _NUMBERED.match(name))}
        for start, match in numbered.items():
            before, count = match.groups()
            others = [f"{before}{number:05}-of-{count}" for number in range(int(count))]
            if lost := [other for other in others if other not in numbered]:
                raise self.missing(
                    f"{lost[0]}{kinds[0]}", f"beside {start}", "restore it from a copy"
                )
        return found

    def missing(self, name: str, why: str, hint: str) -> DataError:
        """The error for a shard that is not there."""
        return DataError(
            f"data.source.path={self.path}: the shard {name} is missing, {why}", hint=hint
        )

    def _full_name(self, name: str) -> str:
        if self._is_file:
            return self._root
        return f"{self._root}/{name}"

    def state(self, name: str) -> tuple[int, str, bool]:
        """Size and stamp of a shard as they are now, and whether the stamp stands for its contents."""
        self._files.invalidate_cache()
        info = self._files.info(self._full_name(name))
        stamps = [(str(info[key]), key in _TAGS) for key in (*_TAGS, *_TIMES) if info.get(key)]
        return int(info["size"]), *(stamps or [("", False)])[0]

    def hash(self, name: str) -> str:
        """SHA-256 of a shard."""
        with self._files.open(self._full_name(name), "rb") as file:
            return digest_of(file)

    def open(self, name: str) -> Any:
        """A shard as pyarrow reads it."""
        import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

        full = self._full_name(name)
        if self.is_remote:
            return pa.PythonFile(self._files.open(full, "rb"), mode="r")
        return pa.OSFile(full)

    def index_file(self) -> Path:
        """Where the index lies: not beside the data, as a config may name any folder."""
        known = self.path if self.is_remote else Path(self._root).resolve()
        return (
            cache_folder()
            / "shards"
            / f"{hashlib.sha256(os.fsencode(known)).hexdigest()[:32]}.json"
        )


@final
class _Parquet:
    """Row groups, which are decoded from their beginning."""

    is_random = False

    def __init__(self, file: Any, _: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

        options = {}
        if isinstance(file, pa.OSFile):
            # A row group may be the whole file; behind a URL many small reads take longer.
            options = {"pre_buffer": False, "buffer_size": _READ_AT_ONCE}
        self._file = pq.ParquetFile(file, **options)
        groups = [
            self._file.metadata.row_group(at) for at in range(self._file.metadata.num_row_groups)
        ]
        self.rows = [group.num_rows for group in groups]
        self.num_bytes = sum(group.total_byte_size for group in groups)
        self.schema = self._file.schema_arrow
        self._cursors: dict[tuple[str, ...], tuple[int, int, Any, Any]] = {}

    def _decode(self, block: int, columns: Strings) -> Iterator[Any]:
        import pyarrow as pa

        for batch in self._file.iter_batches(_BATCH, row_groups=[block], columns=list(columns)):
            plain = batch
            for at, field in enumerate(batch.schema):
                if pa.types.is_string_view(field.type):  # rows of which pyarrow cannot take
                    plain = plain.set_column(at, field.name, batch.column(at).cast(pa.string()))
            yield plain

    def read(self, block: int, rows: Rows, columns: Strings) -> Any:
        """Rows, ascending; going on from where the last call ended where that is possible."""
        import pyarrow as pa

        at, start, batch, batches = self._cursors.pop(tuple(columns), (-1, 0, None, iter(())))
        if at != block or rows[0] < start:
            batches = self._decode(block, columns)
            start = 0
            batch = next(batches)
        pieces = []
        while True:
            end = np.searchsorted(rows, start + batch.num_rows)
            pieces.append(batch.take(pa.array(rows[:end] - start)))
            rows = rows[end:]
            if not len(rows):
                break
            start += batch.num_rows
            batch = next(batches)
        self._cursors[tuple(columns)] = block, start, batch, batches
        return pa.Table.from_batches(pieces)


@final
class _Tar:
    """Samples of WebDataset: files of one name, such as 0017.jpg and 0017.cls."""

    is_random = True

    def __init__(self, file: Any, offsets: str) -> None:
        import pyarrow as pa

        self._file = file
        self.num_bytes = file.size()
        self.offsets = offsets or base64.b64encode(self._scan().tobytes()).decode()
        self._places = np.frombuffer(base64.b64decode(self.offsets), np.int64).reshape(-1, 4)
        self.rows = [len(self._places)]
        self.schema = pa.schema(
            [(name, pa.null()) for name in (IMAGE, *self._labels(self._places[0]))]
        )

    def _scan(self) -> Rows:
        """Offset and size of each image, and of the file that says its class."""
        self._bytes(self.num_bytes - 1024, 1024, must_be=bytes(1024))
        self._file.seek(0)
        samples: dict[str, list[int]] = {}
        with tarfile.open(fileobj=self._file, mode="r:") as tar:
            for member in tar:
                folder, _, file = member.name.rpartition("/")
                key, _, kind = file.partition(".")
                slot = {**dict.fromkeys(_SUFFIXES, 0), "cls": 2, "json": 2}.get(kind.lower())
                if member.isfile() and slot is not None:
                    place = samples.setdefault(f"{folder}/{key}", [0, 0, 0, 0])
                    if kind.lower() == "json" and place[3]:
                        continue  # the .cls beside it says the class
                    place[slot : slot + 2] = member.offset_data, member.size
        lacking = next(
            (key.lstrip("/") for key, place in samples.items() if not place[1] * place[3]), ""
        )
        if lacking or not samples:
            of = ""
            if lacking:
                of = f"; {lacking} lacks one of them"
            raise ValueError(f"expected images with a .cls or .json file beside each{of}")
        return np.array([*samples.values()], np.int64)

    def _bytes(self, offset: int, size: int, must_be: bytes = b"") -> bytes:
        self._file.seek(int(offset))
        content: bytes = self._file.read(int(size))
        if len(content) < size or (must_be and content != must_be):
            raise ValueError("the tar ends early")
        return content

    def _labels(self, place: Rows) -> dict[str, Any]:
        text = self._bytes(*place[2:]).strip()
        if text[:1] == b"{":
            return {
                name: one
                for name, one in json.loads(text).items()
                if not isinstance(one, dict | list)
            }
        return {"cls": int(text) if text.isdigit() else text.decode()}

    def read(self, block: int, rows: Rows, columns: Strings) -> Any:
        """Samples, wherever they lie."""
        del block
        import pyarrow as pa

        places = self._places[rows]
        labels = [self._labels(place) if {*columns} != {IMAGE} else {} for place in places]
        return pa.table(
            {
                name: [
                    self._bytes(*place[:2]) if name == IMAGE else label.get(name)
                    for place, label in zip(places, labels, strict=True)
                ]
                for name in columns
            }
        )


_FORMATS: Mapping[str, Any] = {".parquet": _Parquet, ".tar": _Tar}


@final
class ShardReader:
    """Rows of shards by block, and what is known of them without reading: the index.

    Attributes:
        path: As given.
        shards: In order of their names.
        rows: Of each block of all shards, in order.
        starts: Number of each block's first row, counted over all shards.
        schema: Of pyarrow, of the first shard.
        is_random: Whether any rows are read without those before them.
        note: Says where a new index was written; empty if the index was already there.
    """

    def __init__(self, path: str) -> None:
        self._folder = _Folder(path)
        self.path = path
        self.note = ""
        self._opened = OrderedDict[int, Any]()
        self._process = os.getpid()
        self._index = self._read_index()
        self.shards = self._index.shards
        counts = {
            (at, block): rows
            for at, shard in enumerate(self.shards)
            for block, rows in enumerate(shard.rows)
            if rows
        }
        if not counts:
            raise DataError(f"data.source.path={path}: no shard has a row")
        self._places = [*counts]
        self.rows = np.array([*counts.values()], np.int64)
        self.starts = np.cumsum(self.rows) - self.rows
        first = self._open(0)
        self.schema = first.schema
        self.is_random: bool = first.is_random

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": OrderedDict()}

    def shard_of(self, block: int) -> Shard:
        """The shard that a block lies in."""
        return self.shards[self._places[block][0]]

    @property
    def digest(self) -> str:
        """The hash of the shards' hashes and names."""
        lines = "\n".join(f"{shard.sha256} {shard.name}" for shard in self.shards)
        return hashlib.sha256(lines.encode()).hexdigest()

    def read(self, block: int, rows: Rows, columns: Strings) -> Any:
        """Columns of some rows of a block, which are ascending, as a table of pyarrow's."""
        at, within = self._places[block]
        with _explain(self.path, self.shards[at].name):
            if not self._folder.is_remote:
                self._check_unchanged(self.shards[at])
            table = self._open(at).read(within, rows, columns)
        if lacking := [name for name in columns if name not in table.column_names]:
            where = f"data.source.path={self.path}: the shard {self.shards[at].name}"
            raise DataError(
                f"{where} has no column {lacking[0]!r}", hint="write all with the same columns"
            )
        return table

    def check_columns(self, columns: Strings) -> None:
        """Refuse shards that lack a column, or have values of another kind in one."""
        firsts: dict[str, int] = {}
        for block in range(len(self.rows)):
            firsts.setdefault(self.shard_of(block).schema, block)
        if len(firsts) > 1:
            self.read_all([(block, np.arange(1)) for block in firsts.values()], columns)

    def read_all(self, chosen: Collection[tuple[int, Rows]], columns: Strings) -> Any:
        """The same of several blocks, in a type that holds what each has in a column."""
        import pyarrow as pa

        tables = [self.read(block, rows, columns) for block, rows in chosen]
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            shards = [self.shard_of(block) for block, _ in chosen]
            names = {shard.schema: shard.name for shard in reversed(shards)}.values()
            raise DataError(
                f"data.source.path={self.path}: {list_names(names)} differ in a column: {error}",
                hint="write all with the same types",
            ) from error

    def count(self, name: str, values: Callable[[int], Any]) -> list[dict[Any, int]]:
        """How often each value of a block occurs: all are read, once, and the index keeps the result."""
        if name not in self._index.counts:
            tallies = [
                Counter(np.asarray(values(block)).tolist()) for block in range(len(self.rows))
            ]
            self._index.counts[name] = [[*tally.items()] for tally in tallies]
            self._save()
        return [dict(tally) for tally in self._index.counts[name]]

    def read_column(self, block: int, name: str, key: str) -> Values:
        """A column of a block, in which each row has to have a value."""
        values: Values = (
            self.read(block, np.arange(self.rows[block]), [name]).column(0).to_pandas()
        )
        if missing := int(values.isna().sum()):
            shard = self.shard_of(block).name
            raise DataError(
                f"{key}={name}: {pluralize(missing, 'row')} of {shard} without a value",
                hint="write the shards without such rows",
            )
        return values

    def count_classes(self, name: str, where: str = "", choose: Any = None) -> Counter[Any]:
        """How often each value of a column occurs, among the rows of a block that `choose` picks."""

        def values(block: int) -> Any:
            column = self.read_column(block, name, "data.source.target")
            for value in column.drop_duplicates().tolist():
                if not isinstance(value, bool | int | float | str):
                    raise DataError(
                        f"data.source.target={name}: expected numbers or texts, got {value!r:.80}",
                        hint="write the shards with such a column",
                    )
            if choose is None:
                return column
            return column[choose(block)]

        totals = Counter[Any]()
        for tally in self.count(f"{name}{where}", values):
            totals.update(tally)
        return totals

    def spread(self, wanted: float, rows: Rows) -> list[int]:
        """Blocks, evenly spread over all, that hold so many rows, of which each has some, and some more."""
        blocks = np.flatnonzero(rows)
        number = _FEWEST_BLOCKS
        while number < len(blocks):
            chosen = blocks[np.linspace(0, len(blocks) - 1, number).round().astype(int)]
            if rows[chosen].sum() >= 2 * wanted:
                return [*map(int, chosen)]
            number *= 2
        return [*map(int, blocks)]

    def first_rows(self, columns: Strings, most: int = 20_000) -> Frame:
        """Rows of blocks that are spread over all."""
        blocks = self.spread(most, self.rows)
        each = -(-most // len(blocks))
        chosen = [(at, np.arange(min(each, self.rows[at]))) for at in blocks]
        return settle(from_arrow(self.read_all(chosen, columns), plain=columns))

    def _open(self, at: int) -> Any:
        if os.getpid() != self._process:  # what a process has open its children cannot share
            self._folder = _Folder(self.path)
            self._opened = OrderedDict()
            self._process = os.getpid()
        if at not in self._opened:
            shard = self.shards[at]
            kind = _FORMATS[PurePosixPath(shard.name).suffix]
            if len(self._opened) == (_OPEN if kind.is_random else 1):
                self._opened.popitem(last=False)
            with _explain(self.path, shard.name):
                self._check_unchanged(shard)
                self._opened[at] = kind(self._folder.open(shard.name), shard.offsets)
        self._opened.move_to_end(at)
        return self._opened[at]

    def _check_unchanged(self, shard: Shard) -> None:
        if self._folder.state(shard.name)[:2] != (shard.size, shard.stamp):
            raise DataError(
                f"data.source.path={self.path}: the shard {shard.name} has changed since the data was read",
                hint="restore it and `assay resume` the run, or train anew",
            )

    def _read_index(self) -> _Index:
        listed = self._folder.list_shards()
        file = self._folder.index_file()
        index = _Index([], {})
        with suppress(OSError, msgspec.MsgspecError):  # it is made anew
            if is_json_intact(content := file.read_bytes()):
                index = msgspec.json.decode(content, type=_Index)
        known = {shard.name: shard for shard in index.shards}
        keep = {
            name: one
            for name, one in known.items()
            if (one.size, one.stamp) == listed.get(name, ())[:2]
        }
        if keep and (lost := sorted({*known} - {*listed})):  # otherwise it is of other data
            hint = f"restore it from a copy, or remove {file} to take the others alone"
            raise self._folder.missing(lost[0], f"which the index {file} lists", hint)
        if len(keep) < len(listed):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                scan = pool.map(
                    lambda name: keep.get(name) or self._scan(name, *listed[name]), listed
                )
                index = _Index(list(scan), {})
            self._index = index
            self._save()
        return index

    def _scan(self, name: str, size: int, stamp: str, is_tag: bool) -> Shard:
        with _explain(self.path, name):
            opened = _FORMATS[PurePosixPath(name).suffix](self._folder.open(name), "")
            digest = hashlib.sha256(f"{size} {stamp}".encode()).hexdigest()
            if not is_tag:
                digest = self._folder.hash(name)
            offsets = getattr(opened, "offsets", "")
            schema = hashlib.sha256(opened.schema.remove_metadata().serialize()).hexdigest()[:16]
            return Shard(
                name, size, stamp, digest, opened.rows, opened.num_bytes, schema, offsets
            )

    def _save(self) -> None:
        text = seal_json(msgspec.json.format(msgspec.json.encode(self._index), indent=1).decode())
        with suppress(OSError):  # a home may not be writable
            write_text(file := self._folder.index_file(), text)
            self.note = f"data.source.path={self.path}: the index of the shards is {file}"


def find_column(reader: ShardReader, option: str, asked: str, usual: Strings) -> str:
    """The column that is asked for, or one of a usual name."""
    names = list(reader.schema.names)
    wanted: Strings = [asked]
    if asked == "auto":
        wanted = usual
    if found := [name for name in wanted if name in names]:
        return found[0]
    raise DataError(
        f"data.source.{option}={asked}: {reader.path} has no column {' or '.join(map(repr, wanted))}",
        hint=f"columns: {list_names(names)}",
    )


USUAL_IMAGES = (IMAGE, "img", "picture", "jpg", "png")
USUAL_TARGETS = ("label", "labels", "cls", "class", "target")


def find_task(source: Mapping[str, Any], names: list[str]) -> str:
    """The task of the columns to predict and, where these are a class, of how many there are."""
    reader = ShardReader(str(source.get("path")))
    if "image" in source:
        task = TASKS["multiclass"]
        names = [find_column(reader, "target", names[0], USUAL_TARGETS)]
    else:
        task = TASKS[task_of_columns(reader.first_rows(names), names)[0]]
    if task.by_class:
        num_classes = len(reader.count_classes(names[0]))
        return infer_task(is_real=False, num_columns=1, num_classes=num_classes)
    return task.name
