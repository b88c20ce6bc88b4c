"""Samples of files and folders, read ahead while a model is busy with those before."""

from __future__ import annotations

import codecs
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from assay.data.core.source_files import read_inputs
from assay.data.image.image_source import IMAGE_SUFFIXES, list_images
from assay.data.image.image_table import ImageTable
from assay.data.table.column import is_number
from assay.data.table.table_file import find_options, table_chunks
from assay.data.text.tokenizer import TextEncoder
from assay.errors import AssayError, ConfigError
from assay.quoting import join_first, pluralize
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    import pandas as pd
    from torch import Tensor

    from assay.data.preprocess import Preprocess

_PACKED = ("", ".gz", ".bz2", ".xz", ".zst", ".zip")
_TABLES = (
    *(f"{text}{packed}" for text in (".csv", ".tsv") for packed in _PACKED),
    *(".jsonl", ".ndjson", ".parquet", ".pq", ".feather", ".xlsx"),
)
_ARRAYS = (".npy", ".npz")
_ROWS = 1 << 15
_CELLS = 1 << 19
"""Of a table that are read at a time, at most: each chunk costs as much as some thousand rows."""
_THREADS = 16
_NAMED = 10
_AT_ONCE = 16
"""Pictures that a thread is given at a time: handing one over costs a third of decoding a small one."""


@final
@dataclass(frozen=True, eq=False)
class Block:
    """N samples, of which M can be predicted."""

    inputs: Sequence[str]
    rows: Sequence[int | None]
    errors: Sequence[str]
    warnings: Sequence[str]
    samples: Tensor
    note: str = ""
    sizes: Sequence[tuple[int, int]] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def failed(cls, source: str, error: str, samples: Tensor, row: int | None = None) -> Block:
        """Of an input that cannot be read, or cannot be read on."""
        return cls([source], [row], [error], [""], samples)


def read_as(preprocess: Preprocess, encoding: str) -> None:
    """Read CSV and .txt files in an encoding that is not the one of the run's own data."""
    if preprocess.encoder is None:
        raise ConfigError("the model reads no tables", key="--encoding", hint="leave it out")
    try:
        codecs.lookup(encoding)
    except LookupError as error:
        raise ConfigError(str(error), key="--encoding", hint="--encoding cp1252") from error
    preprocess.file_options = {**preprocess.file_options, "encoding": encoding}


def blocks(
    preprocess: Preprocess,
    paths: Sequence[Path],
    size: int,
    keep: Sequence[str] = (),
) -> Generator[Block]:
    """What files and folders hold, read ahead while the model is busy; of tables also columns to `keep`."""
    with ThreadPoolExecutor(1) as pool:
        stream = _blocks(preprocess, paths, size, keep)
        upcoming = pool.submit(next, stream, None)
        while (block := upcoming.result()) is not None:
            upcoming = pool.submit(next, stream, None)
            yield block


def _blocks(
    preprocess: Preprocess,
    paths: Sequence[Path],
    size: int,
    keep: Sequence[str],
) -> Iterator[Block]:
    files = list[str]()
    none = _no_samples(preprocess)
    for path in paths:
        below, note = ([str(path)], "")
        if path.is_dir():
            below, note = _files_below(preprocess, path)
        files += below
        yield Block([], [], [], [], none, note)
        if not below:
            message = (
                f"no supported files in this folder: expected {_describe_inputs(preprocess)}"
            )
            yield Block.failed(str(path), message, none)
    for form, some in groupby(files, key=partial(_input_form, preprocess)):
        if form == "picture":
            yield from _read_pictures(preprocess, some, size)
            continue
        for file in some:
            yield from _read_file(preprocess, file, form, size, keep)


def _read_file(
    preprocess: Preprocess,
    file: str,
    form: str,
    size: int,
    keep: Sequence[str],
) -> Iterator[Block]:
    path = Path(file)
    row = 0
    try:
        if not path.is_file():
            raise AssayError(
                "it is not a regular file" if path.exists() else "there is no such file"
            )
        if not form:
            raise AssayError(f"unsupported input: expected {_describe_inputs(preprocess)}")
        if form == "table":
            read = _read_table(preprocess, path, size, keep)
        elif form == "names":
            read = _read_named(preprocess, path, size)
        else:
            read = _read_array(preprocess, path, size)
        for block in read:
            row += len(block.inputs)
            yield block
        if not row:
            raise AssayError("it has no rows")
    except AssayError as problem:
        message = problem.message.removeprefix(file).lstrip(": ")
        yield Block.failed(file, message, _no_samples(preprocess), row or None)


def _files_below(preprocess: Preprocess, folder: Path) -> tuple[list[str], str]:
    """Files below a folder that are of the kind of the run's data, and how many others there are."""
    # Text, not paths: pathlib takes as long for the name of a small picture as decoding it does.
    walk = (
        (parent, name) for parent, _, names in os.walk(folder) for name in names if name[0] != "."
    )
    paths = [os.path.join(parent, name) for parent, name in walk]  # noqa: PTH118 - text, see above
    suffixes: tuple[str, ...] = _ARRAYS
    if preprocess.encoder is not None:
        suffixes = _TABLES
    if isinstance(preprocess.encoder, TextEncoder):
        suffixes += (".txt",)
    files = [path for path in paths if path.lower().endswith(suffixes)]
    files.sort(key=lambda path: Path(path).parts)
    if preprocess.takes_pictures:
        files = list_images(folder)[0] or files
    elif preprocess.takes_arrays:  # beside them may lie targets
        files = [path for path in files if Path(path).stem in preprocess.array_names] or files
    others = Counter(Path(name).suffix.lower() or "no suffix" for name in {*paths} - {*files})
    listed = ", ".join(f"{number:,} {kind}" for kind, number in others.most_common(_NAMED))
    passed = ""
    if files and others:
        passed = f"{folder}: {pluralize(others.total(), 'file')} skipped ({listed})"
    return files, passed


def _describe_inputs(preprocess: Preprocess) -> str:
    if preprocess.encoder is not None:
        texts = ""
        if isinstance(preprocess.encoder, TextEncoder):
            texts = ", or .txt files of a text per line"
        return f"CSV, JSONL, Parquet, Feather or Excel files{texts}"
    sizes = ", ".join(map(str, preprocess.input_shape))
    pictures = ""
    if preprocess.takes_pictures:
        pictures = "pictures, or "
    return f"{pictures}.npy or .npz files of arrays [N, {sizes}]"


def _input_form(preprocess: Preprocess, file: str) -> str:
    """`table`, `array` or `picture`; empty for what is plainly something else than the model takes."""
    name = file.lower()
    if preprocess.encoder is not None:
        if not name.endswith((*_ARRAYS, *IMAGE_SUFFIXES)):
            return "table"
        return ""
    if name.endswith(_ARRAYS):
        return "array"
    if preprocess.takes_pictures and not name.endswith(_TABLES):
        return "picture"
    if isinstance(preprocess.source, ImageTable):
        return "names"
    return ""


def _read_pictures(preprocess: Preprocess, paths: Iterator[str], size: int) -> Iterator[Block]:
    """Pictures, decoded by several threads."""
    # Transforms that draw are seeded through the process's only generators.
    threads = 1
    if preprocess.transforms.deterministic:
        threads = min(_THREADS, os.cpu_count() or 1)
    share = max(1, min(_AT_ONCE, size // threads))
    has_masks = task_of(preprocess.spec["task"]).has_masks
    with ThreadPoolExecutor(threads) as pool:
        while block := list(islice(paths, size)):
            parts = (block[start : start + share] for start in range(0, len(block), share))
            done = [
                result
                for part in pool.map(partial(_decode_pictures, preprocess), parts)
                for result in part
            ]
            pictures, _, errors = zip(*done, strict=True)
            readable = [(Path(path), sample) for path, sample, _ in done if sample is not None]
            samples = _no_samples(preprocess)
            if readable:
                samples = torch.cat([sample for _, sample in readable])
            sizes: Sequence[tuple[int, int]] = ()
            if readable and has_masks:
                sizes = preprocess.sizes([path for path, _ in readable])
            none = [""] * len(done)
            yield Block(pictures, [None] * len(done), errors, none, samples, sizes=sizes)


def _read_named(preprocess: Preprocess, table: Path, size: int) -> Iterator[Block]:
    """Pictures that a table names, with the numbers of its rows."""
    rows = count()
    for block in _read_pictures(preprocess, iter(preprocess.source.paths_in(table)), size):
        named = [path or str(table) for path in block.inputs]
        yield replace(block, inputs=named, rows=[next(rows) for _ in named])


def _decode_pictures(
    preprocess: Preprocess, paths: Sequence[str]
) -> list[tuple[str, Tensor | None, str]]:
    done: list[tuple[str, Tensor | None, str]] = []
    for path in paths:
        sample: Tensor | None = None
        message = ""
        try:
            if not path:
                raise AssayError("the row names no picture")
            sample = preprocess.picture(path)
        except AssayError as error:
            message = error.message.removeprefix(f"{path} ")
        except (
            RuntimeError,
            TypeError,
            ValueError,
            MemoryError,
        ) as error:  # of a custom transform
            message = f"{type(error).__name__}: {error}"
        done.append((path, sample, message))
    return done


def _read_table(
    preprocess: Preprocess,
    path: Path,
    size: int,
    keep: Sequence[str],
) -> Iterator[Block]:
    encoder = preprocess.fitted_encoder()
    options = find_options(path, preprocess.file_options)
    used = {column.name for column in encoder.columns} | set(preprocess.targets)
    note: str | None = None
    # Of texts, which may be long, as many as the model takes at a time.
    rows = size
    if not isinstance(encoder, TextEncoder):
        rows = max(size, min(_ROWS, _CELLS // len(encoder.columns)))
    for chunk in table_chunks(path, encoder, rows, keep, **options):
        if note is None:
            unused = [str(name) for name in chunk if name not in used]
            note = ""
            if unused:
                note = f"{path}: the model does not use {join_first(unused, _NAMED)}"
            if unused and not keep:
                note += "; --keep NAME copies such a column to the output"
        samples, errors, odd = preprocess.encoded(chunk, options["decimal"])
        yield Block(
            [str(path)] * len(chunk),
            chunk.index.tolist(),
            [errors.get(index, "") for index in range(len(chunk))],
            ["" if index in errors else odd.get(index, "") for index in range(len(chunk))],
            samples,
            note,
            kept={name: _as_it_stands(chunk[name]) for name in keep},
        )
        note = ""


def _as_it_stands(column: pd.Series[Any]) -> Any:
    """Numbers, or texts."""
    if is_number(column):
        return column.array
    return column.astype(object).map(str, na_action="ignore").array


def _read_array(preprocess: Preprocess, path: Path, size: int) -> Iterator[Block]:
    """Rows of an array, which .npy files are mapped into memory for."""
    array = np.atleast_1d(read_inputs(path, preprocess.array_names))
    array = array[None] if preprocess.is_single(array.ndim) else array
    for start in range(0, len(array), size):
        part = array[start : start + size]
        samples, _ = preprocess.samples(part)
        none = [""] * len(part)
        yield Block([str(path)] * len(part), range(start, start + len(part)), none, none, samples)


def _no_samples(preprocess: Preprocess) -> Tensor:
    """`[0, *input_shape]`, in the data's own type."""
    dtype = getattr(torch, str(preprocess.spec.get("input_dtype") or ""), None)
    return torch.empty(
        0, *preprocess.input_shape, dtype=dtype if isinstance(dtype, torch.dtype) else None
    )
