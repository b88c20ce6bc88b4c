"""Files and folders as a stream of blocks: larger than memory, and one that is bad does not end it."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor
from torchvision.datasets.folder import IMG_EXTENSIONS  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.array_file import read_inputs
from assay.data.picture_folder import images_below
from assay.data.tabular.table_encoder import judge_rows
from assay.data.tabular.table_file import columns_of, found_options, is_texts, table_chunks
from assay.data.text_encoder import TextEncoder
from assay.errors import AssayError, DataError
from assay.quoting import counted
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from assay.run.predict.preprocess import Preprocess

_Listed = tuple[list[str], list[str]]

_PACKED = ("", ".gz", ".bz2", ".xz", ".zst", ".zip")
_TABLES = (
    *(f"{text}{packed}" for text in (".csv", ".tsv") for packed in _PACKED),
    *(".jsonl", ".ndjson", ".parquet", ".pq", ".feather", ".xlsx"),
)
_ARRAYS = (".npy", ".npz")
_ROWS, _CELLS = 1 << 15, 1 << 19
"""Of a table that are read at a time, at most: each chunk costs as much as some thousand rows."""
_THREADS, _NAMED = 16, 10
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

    @classmethod
    def failed(cls, source: str, error: str, samples: Tensor, row: int | None = None) -> Block:
        """Of an input that cannot be read, or cannot be read on."""
        return cls([source], [row], [error], [""], samples)


def blocks(preprocess: Preprocess, paths: Sequence[Path], size: int) -> Generator[Block]:
    """What files and folders hold, read ahead while the model is busy."""
    with ThreadPoolExecutor(1) as pool:
        stream = _blocks(preprocess, paths, size)
        upcoming = pool.submit(next, stream, None)
        while (block := upcoming.result()) is not None:
            upcoming = pool.submit(next, stream, None)
            yield block


def _blocks(preprocess: Preprocess, paths: Sequence[Path], size: int) -> Iterator[Block]:
    none = preprocess.no_samples()
    below = {path: _below(preprocess, path) for path in paths if path.is_dir()}
    for folder, (taken, others) in below.items():
        if taken and others:
            kinds = Counter(Path(name).suffix.lower() or "no suffix" for name in others)
            listed = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common(_NAMED))
            note = f"{folder}: {counted(kinds.total(), 'file')} passed over ({listed})"
            yield Block([], [], [], [], none, note)
    for form, some in groupby(_found(preprocess, paths, below), key=lambda found: found[0]):
        for path, error in ((path, error) for _, path, error in some) if form != "picture" else ():
            if error:
                yield Block.failed(path, error, none)
                continue
            read, row = _of_table if form == "table" else _of_array, 0
            try:
                for block in read(preprocess, Path(path), size):
                    row += len(block.inputs)
                    yield block
                if not row:
                    yield Block.failed(path, "it has no rows", none)
            except AssayError as problem:
                yield Block.failed(path, problem.message.removeprefix(path).lstrip(": "), none, row or None)
        if form == "picture":
            yield from _of_pictures(preprocess, (path for _, path, _ in some), size)


def _found(
    preprocess: Preprocess, paths: Iterable[Path], below: Mapping[Path, _Listed]
) -> Iterator[tuple[str, str, str]]:
    """Each file with its form, and an error where there is none to read."""
    for path in paths:
        name = str(path)
        if path in below:
            taken, _ = below[path]
            yield from ((_form(preprocess, found), found, "") for found in taken)
            if not taken:
                yield "nothing", name, f"nothing in this folder is for the model: {_taken(preprocess)}"
        elif path.is_file():
            form = _form(preprocess, name)
            yield form, name, "" if form != "nothing" else f"it is not for the model: {_taken(preprocess)}"
        else:
            yield "nothing", name, "it is not a regular file" if path.exists() else "there is no such file"


def _below(preprocess: Preprocess, folder: Path) -> _Listed:
    """Files below a folder that are of the kind of the run's data, and all others that are not hidden."""
    # Text, not paths: pathlib takes as long for the name of a small picture as decoding it does.
    walk = ((parent, name) for parent, _, names in os.walk(folder) for name in names if name[0] != ".")
    every = [os.path.join(parent, name) for parent, name in walk]  # noqa: PTH118 - text, see above
    suffixes = _TABLES if preprocess.encoder is not None else _ARRAYS
    suffixes += (".txt",) if isinstance(preprocess.encoder, TextEncoder) else ()
    files = [path for path in every if path.lower().endswith(suffixes)]
    files.sort(key=lambda path: Path(path).parts)
    pictures = images_below(folder)[0] if preprocess.takes_pictures else []
    own: list[str] = []
    if preprocess.takes_arrays:  # beside them may lie targets
        own = [path for path in files if Path(path).stem in preprocess.array_names] or files
    taken = own or pictures or files
    known = set(taken)
    return taken, [path for path in every if path not in known]


def _taken(preprocess: Preprocess) -> str:
    if preprocess.encoder is not None:
        files = "CSV, JSONL, Parquet, Feather or Excel files"
        is_text = isinstance(preprocess.encoder, TextEncoder)
        return f"it takes {files}, or .txt files of a text per line" if is_text else f"it takes {files}"
    sizes = ", ".join(map(str, preprocess.input_shape))
    pictures = "pictures, or " if preprocess.takes_pictures else ""
    return f"it takes {pictures}.npy or .npz files of arrays [N, {sizes}]"


def _form(preprocess: Preprocess, path: str) -> str:
    """`table`, `array` or `picture`; `nothing` for what is plainly something else than the model takes."""
    name = path.lower()
    if preprocess.encoder is not None:
        return "table" if not name.endswith((*_ARRAYS, *IMG_EXTENSIONS)) else "nothing"
    if name.endswith(_ARRAYS):
        return "array"
    return "picture" if preprocess.takes_pictures and not name.endswith(_TABLES) else "nothing"


def _of_pictures(preprocess: Preprocess, paths: Iterator[str], size: int) -> Iterator[Block]:
    """Pictures, decoded by several threads two blocks ahead."""
    # Transforms that draw are seeded through the process's only generators.
    threads = min(_THREADS, os.cpu_count() or 1) if preprocess.transforms.deterministic else 1
    share = max(1, min(_AT_ONCE, size // threads))
    has_masks = task_of(preprocess.spec["task"]).has_masks
    with ThreadPoolExecutor(threads) as pool:

        def decoding() -> list[Future[list[tuple[str, Tensor | None, str]]]]:
            block = list(islice(paths, size))
            parts = (block[start : start + share] for start in range(0, len(block), share))
            return [pool.submit(_pictures, preprocess, part) for part in parts]

        now, upcoming = decoding(), decoding()
        while now:
            done = [one for future in now for one in future.result()]
            now, upcoming = upcoming, decoding()
            good = [sample for _, sample, _ in done if sample is not None]
            samples = torch.cat(good) if good else preprocess.no_samples()
            errors = [error for _, _, error in done]
            decoded = [Path(one) for one, _, error in done if not error]
            sizes = preprocess.sizes(decoded) if has_masks and decoded else ()
            none = [""] * len(done)
            yield Block([one for one, _, _ in done], [None] * len(done), errors, none, samples, sizes=sizes)


def _pictures(preprocess: Preprocess, paths: Sequence[str]) -> list[tuple[str, Tensor | None, str]]:
    done: list[tuple[str, Tensor | None, str]] = []
    for path in paths:
        try:
            done.append((path, preprocess.picture(path), ""))
        except AssayError as error:
            done.append((path, None, error.message.removeprefix(f"{path} ")))
        except (RuntimeError, TypeError, ValueError, MemoryError) as error:  # of a custom transform
            done.append((path, None, f"{type(error).__name__}: {error}"))
    return done


def _of_table(preprocess: Preprocess, path: Path, size: int) -> Iterator[Block]:
    encoder, options = preprocess.fitted_encoder(), found_options(path, preprocess.file_options)
    names = [] if is_texts(path, encoder) else columns_of(path, **options)
    used = {column.name for column in encoder.columns} | set(preprocess.targets)
    others = [name for name in names if name not in used]
    more = ", …" if len(others) > _NAMED else ""
    note = f"{path}: the model does not use {', '.join(others[:_NAMED])}{more}" if others else ""
    # Of texts, which may be long, as many as the model takes at a time.
    rows = size if isinstance(encoder, TextEncoder) else max(size, min(_ROWS, _CELLS // len(encoder.columns)))
    for chunk in table_chunks(path, encoder, rows, **options):
        judged = judge_rows(chunk, encoder.columns, decimal=options["decimal"])
        rows_here, frame = chunk.index.tolist(), judged.frame
        errors = {rows_here[at]: error for at, error in judged.errors.items()}
        warned = {rows_here[at]: warning for at, warning in judged.warnings.items()}
        if judged.errors:
            frame = frame.iloc[[at for at in range(len(frame)) if at not in judged.errors]]
        samples = preprocess.encoded(frame)
        if isinstance(encoder, TextEncoder):
            for at, odd in encoder.odd(samples).items():
                row = rows_here[frame.index[at]]
                warned[row] = f"{warned[row]}; {odd}" if row in warned else odd
        yield Block(
            [str(path)] * len(rows_here),
            rows_here,
            [errors.get(row, "") for row in rows_here],
            ["" if row in errors else warned.get(row, "") for row in rows_here],
            samples,
            note,
        )
        note = ""


def _of_array(preprocess: Preprocess, path: Path, size: int) -> Iterator[Block]:
    """Rows of an array, which .npy files are mapped into memory for."""
    array = read_inputs(path, preprocess.array_names)
    if not array.ndim:
        raise DataError("it holds a single number")
    array = preprocess.array_batch(array)
    for start in range(0, len(array), size):
        part = array[start : start + size]
        samples, _ = preprocess.samples(part)
        none = [""] * len(part)
        yield Block([str(path)] * len(part), range(start, start + len(part)), none, none, samples)
