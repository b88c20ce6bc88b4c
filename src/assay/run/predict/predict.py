"""Predictions of files and folders: streamed through the model into a file, or the first of them shown."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from lightning.pytorch.utilities.memory import is_oom_error

from assay.errors import AssayError, ConfigError, cannot_write
from assay.files.atomic import temporary_folder
from assay.quoting import counted, to_utf8
from assay.run.predict.inputs import Block, blocks
from assay.run.predict.output_file import check_name, writing
from assay.task.prediction.prediction_batch import MOST_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.run.predict.predictor import Predictor
    from assay.run.predict.preprocess import Preprocess
    from assay.task.prediction.prediction_batch import PredictionBatch

    _Write = Callable[[PredictionBatch[Any]], Mapping[str, Any]]


@final
class Beside:
    """Writes the files of predictions."""

    def __init__(self, folder: Path, unfinished: Path, what: str) -> None:
        self.folder, self._unfinished, self.what = folder, unfinished, what
        self._names: set[str] = set()
        self._is_finished = False

    def add(self, inputs: Sequence[str], found: PredictionBatch[Any]) -> list[str]:
        """Write a file for each prediction, called as its input."""
        return [
            self._write(Path(name).stem, found.file_of(at), found.file_suffix)
            for at, name in enumerate(inputs)
        ]

    def _write(self, stem: str, content: bytes, suffix: str) -> str:
        name, number = f"{stem}{suffix}", 1
        while name.casefold() in self._names:  # which some file systems hold for the same
            number += 1
            name = f"{stem}_{number}{suffix}"
        self._names.add(name.casefold())
        (self._unfinished / name).write_bytes(content)
        return f"{self.folder.name}/{name}"

    def finish(self) -> None:
        """Put the files where they will be, if there are any: before the table that names them."""
        if self._names:
            self.folder.mkdir(parents=True)
            self._unfinished.rename(self.folder)  # an empty folder is replaced
            self._is_finished = True

    def undo(self) -> None:
        """Take away what `finish` has put there."""
        if self._is_finished:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def writing_beside(table: Path, what: str) -> Iterator[Beside]:
    """Open a folder of files beside a table; `Beside.finish` puts it there, a failure leaves nothing."""
    folder = table.with_name(f"{table.stem}_{what}s")
    if os.path.lexists(folder):
        raise ConfigError(
            f"{folder} is there already, with other predictions",
            key="--out",
            hint="remove it, or choose another name",
        )
    existing = next(one for one in folder.absolute().parents if one.is_dir())
    try:
        with temporary_folder(existing / folder.name) as unfinished:
            beside = Beside(folder, unfinished, what)
            try:
                yield beside
            except BaseException:
                beside.undo()
                raise
    except OSError as error:
        why = cannot_write(error) or error.strerror or str(error)
        raise AssayError(f"{folder} cannot be written: {why}", hint="nothing was left there") from error


_FLAT, _NUMBERS = 4096, 1 << 20
"""Samples of one dimension in a batch, and the numbers in them: a few at a time leave a processor idle."""
_OF_ROWS = ("inputs", "rows", "errors", "warnings", "sizes")


@final
@dataclass(frozen=True)
class Predicted:
    """What came of predicting files and folders.

    Attributes:
        run_dir: Whose model it was.
        out: The file that has all rows; null where there is none.
        num_samples: Samples seen.
        num_failed: Those that have an error in the place of a prediction.
        first_error: Of the first of these; empty where none failed.
        columns: Names of the columns.
        rows: The predictions, by column, or the first of them (a note says so then); empty where a file has
            them.
        notes: What there is to know about all of them.
        seconds: It took, without loading the model.
    """

    run_dir: Path
    out: Path | None
    num_samples: int
    num_failed: int
    first_error: str
    columns: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    notes: Sequence[str]
    seconds: float


@final
class Tally:
    """Counts rows as they are made, and what went wrong in them."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self.count = self._num_failed = 0
        self._first_error = ""
        self._columns: list[str] = []

    def see(self, frame: pd.DataFrame) -> None:
        """Take in some rows."""
        self._columns = list(frame.columns)
        wrong = frame["error"].notna()
        if not self._first_error and wrong.any():
            bad = frame[wrong].iloc[0]
            self._first_error = f"{_place(bad)}: {bad['error']}"
        self.count, self._num_failed = self.count + len(frame), self._num_failed + int(wrong.sum())

    def result(
        self, run_dir: Path, out: Path | None, rows: pd.DataFrame | None, notes: Sequence[str]
    ) -> Predicted:
        """What came of them all."""
        return Predicted(
            run_dir=run_dir,
            out=out,
            num_samples=self.count,
            num_failed=self._num_failed,
            first_error=self._first_error,
            columns=self._columns,
            rows=[] if rows is None else _plain(rows),
            notes=[note for note in dict.fromkeys(notes) if note],
            seconds=round(time.perf_counter() - self._began, 3),
        )


def _plain(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {str(name): value for name, value in row.items()}
        for row in rows.astype(object).where(rows.notna(), None).to_dict("records")
    ]


def predict(
    predictor: Predictor,
    run_dir: Path,
    inputs: Sequence[Path],
    *,
    out: Path | None = None,
    top_k: int = 3,
    batch_size: int | None = None,
    limit: int | None = None,
    most_rows: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Predicted:
    """Predict every sample of files and folders."""
    if predictor.preprocess is None:
        raise AssayError(
            f"{run_dir} was trained on a datamodule of its own, which does not say what its input is",
            hint="assay.load(run) takes what that module gave",
        )
    if out is not None:
        check_name(out, inputs)
    notes = _notes(predictor)
    options: Any = {"top_k": top_k, "batch_size": batch_size, "limit": limit, "notes": notes}
    tally, kept = Tally(), list[pd.DataFrame]()

    def keep(frame: pd.DataFrame) -> None:
        if most_rows is None or tally.count < most_rows:
            kept.append(frame if most_rows is None else frame[: most_rows - tally.count])

    with ExitStack() as stack:
        files: Beside | None = None
        what = "" if predictor.task is None or predictor.kind is None else predictor.task.file_column
        if what and out is not None:
            files = stack.enter_context(writing_beside(out, what))
        elif what:
            notes.append(f"--out FILE writes each {what} to a file, too")
        add = (
            keep
            if out is None
            else stack.enter_context(writing(out) if files is None else writing(out, files.finish))
        )
        options |= {"files": files, "progress": progress}
        with closing(_frames(predictor, predictor.preprocess, inputs, **options)) as frames:
            for whole in frames:
                frame = whole if limit is None else whole[: limit - tally.count]
                add(frame)
                tally.see(frame)
        if not tally.count:
            raise AssayError("there is nothing to predict in the inputs")
    rows = pd.concat(kept, ignore_index=True) if kept else None
    if out is None and (shown := 0 if rows is None else len(rows)) < tally.count:
        notes.append(f"the first {shown:,} of {tally.count:,} rows are here; --out FILE writes all of them")
    return tally.result(run_dir, out, rows, notes)


def _notes(predictor: Predictor) -> list[str]:
    notes = [*predictor.notes]
    if (names := len(predictor.names)) > MOST_COLUMNS:
        notes.append(f"{counted(names, 'class', 'classes')}: only the most likely ones have a column")
    return notes


def _place(row: Any) -> str:
    return f"{row['input']}" if pd.isna(row["row"]) else f"{row['input']}, row {row['row']}"


def _frames(
    predictor: Predictor,
    preprocess: Preprocess,
    inputs: Sequence[Path],
    *,
    top_k: int,
    batch_size: int | None,
    limit: int | None,
    notes: list[str],
    files: Beside | None,
    progress: Callable[[int], None],
) -> Generator[pd.DataFrame]:
    """Tables of the same columns, of several batches each; the last one may have more rows than the limit."""
    size = batch_size or predictor.batch_size
    if batch_size is None and len(preprocess.input_shape) == 1 and not preprocess.spec.get("vocab_size"):
        size = max(size, min(_FLAT, _NUMBERS // preprocess.input_shape[0]))
    run = _Batches(predictor, size, may_shrink=batch_size is None)
    waiting = _Waiting()
    seen, far = 0, None
    with closing(blocks(preprocess, inputs, min(size, limit or size))) as stream:
        for block in stream:
            notes.append(block.note)
            if not block.inputs:
                continue
            if len(block.samples) and far is None:
                notes.append(far := preprocess.far_off(block.samples[:size]))
            waiting.add(block, run(block.samples) if len(block.samples) else None)
            seen += len(block.inputs)
            progress(seen if limit is None else min(seen, limit))
            if limit is not None and seen >= limit:
                break
            if waiting.is_full:
                yield _frame(predictor, *waiting.taken(run, preprocess), top_k, files)
    if waiting.blocks:
        yield _frame(predictor, *waiting.taken(run, preprocess), top_k, files)


@final
class _Waiting:
    """Blocks with their outputs that become rows together: to make and write a table takes milliseconds."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._outputs: list[Tensor] = []

    def add(self, block: Block, outputs: Tensor | None) -> None:
        self.blocks.append(replace(block, samples=block.samples[:0]))
        self._outputs += [] if outputs is None else [outputs]

    @property
    def is_full(self) -> bool:
        rows = sum(len(block.inputs) for block in self.blocks)
        return rows >= _FLAT or sum(outputs.numel() for outputs in self._outputs) >= _NUMBERS

    def taken(self, run: _Batches, preprocess: Preprocess) -> tuple[Block, Tensor]:
        """All as one block; where nothing is predicted, a sample of zeros says which columns there are."""
        parts, outputs = self.blocks, self._outputs
        self.blocks, self._outputs = [], []
        if not outputs:
            outputs = [run(parts[0].samples.new_zeros(1, *preprocess.input_shape))[:0]]
        if len(parts) == 1:
            return parts[0], outputs[0]
        together: Any = {name: [one for part in parts for one in getattr(part, name)] for name in _OF_ROWS}
        return replace(parts[0], **together), torch.cat(outputs)


@final
class _Batches:
    """A model over samples, a batch at a time; the batches shrink to what the device has room for."""

    def __init__(self, predictor: Predictor, size: int, *, may_shrink: bool) -> None:
        self._predictor, self._size, self._may_shrink = predictor, size, may_shrink

    def __call__(self, samples: Tensor) -> Tensor:
        done: list[Tensor] = []
        start = 0
        while start < len(samples):
            batch = samples[start : start + self._size]
            try:
                done.append(self._predictor.outputs(batch))
                start += len(batch)
            except RuntimeError as error:
                if not (isinstance(error, torch.OutOfMemoryError) or is_oom_error(error)):
                    raise
                if not self._may_shrink or len(batch) == 1:
                    smaller = len(batch) // 2
                    raise AssayError(
                        f"the device has no room for {counted(len(batch), 'sample')} at a time",
                        hint=f"--batch-size {smaller}" if smaller else "use a device with more memory",
                    ) from error
                self._size = len(batch) // 2
        return torch.cat(done) if len(done) > 1 else done[0]


def _frame(
    predictor: Predictor, block: Block, outputs: Tensor, top_k: int, files: Beside | None
) -> pd.DataFrame:
    """Rows of a block, those without a prediction among them."""
    inputs, errors = list(map(to_utf8, block.inputs)), _texts(block.errors)
    at = np.flatnonzero([error is None for error in errors])
    finite = outputs.reshape(len(outputs), -1 if len(outputs) else 0).isfinite().all(1).numpy()
    if not finite.all():
        errors[at[~finite]] = "the model's output is not finite"
        at, outputs = at[finite], outputs[torch.from_numpy(finite)]
    sizes = [size for size, good in zip(block.sizes, finite, strict=True) if good] if block.sizes else ()

    def write(found: PredictionBatch[Any]) -> dict[str, Any]:
        if files is None:
            return {}
        return {files.what: files.add([inputs[row] for row in at.tolist()], found)}

    columns = dict(_columns(predictor, outputs, top_k, sizes, write))
    rows = {"input": inputs, "row": pd.array(np.asarray(block.rows), dtype="Int64")}
    if len(at) == len(block.inputs):
        frame = pd.DataFrame(rows | columns)
    else:
        frame = pd.DataFrame(rows).join(pd.DataFrame(columns).set_axis(at))
    if predictor.preprocess is not None and predictor.preprocess.encoder is not None:
        frame["warning"] = _texts(block.warnings)
    frame["error"] = errors
    return frame


def _texts(given: Sequence[str]) -> NDArray[np.object_]:
    texts = np.full(len(given), None, dtype=object)
    if any(given):
        texts[:] = [to_utf8(text) or None for text in given]
    return texts


def _columns(
    predictor: Predictor, outputs: Tensor, top_k: int, sizes: Sequence[tuple[int, int]], write: _Write
) -> Mapping[str, Any]:
    if predictor.kind is not None:
        found = predictor.typed(outputs)
        found = found.resized(sizes) if sizes else found
        return {**found.columns(top_k), **write(found)}
    if not outputs.is_floating_point() or outputs.ndim > 2:
        raise AssayError(
            f"the run's own module returns {outputs.dtype} [{', '.join(map(str, outputs.shape[1:]))}] a "
            "sample; numbers [N] or [N, K] can be written",
            hint="assay.load(run)(raw) returns them as they come",
        )
    return {f"output_{at}": column.numpy() for at, column in enumerate(outputs.reshape(len(outputs), -1).T)}
