"""Predictions of files and folders: streamed through the model into a file, or the first of them shown."""

from __future__ import annotations

import json
import os
import time
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from rich.text import Text

from assay.errors import AssayError, ConfigError, first_line, write_failure
from assay.files.symlinks import OWN_FILES
from assay.quoting import format_number, pluralize, to_utf8
from assay.record.scores import describe_threshold
from assay.task.language_modelling import Sampling
from assay.task.predictions import MOST_COLUMNS
from assay.terminal import make_table, printable
from assay_analysis.comparison import spreadsheet_frame
from assay_serve.output import write_together
from assay_serve.raw_files import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from rich.table import Table
    from torch import Tensor

    from assay.data.preprocess import Preprocess
    from assay.run.predictor import Predictor
    from assay.task.predictions import Predictions
    from assay_serve.raw_files import Block

SUFFIXES = (".parquet", ".csv", ".jsonl")


def check_name(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a file that predictions cannot be written to, before any are made."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(
            f"expected a name that ends in {', '.join(SUFFIXES)}, got {path}",
            key="--out",
            hint=f"--out {path.with_suffix('.csv')}",
        )
    records = [path.absolute().with_name(name) for name in ("record.json", "journal.jsonl")]
    reason = ""
    if path.is_dir():
        reason = "a folder"
    elif path.exists() and not path.is_file():
        reason = "not a regular file"
    elif path.name in OWN_FILES and any(record.exists() for record in records):
        reason = "a file that the run or sweep itself writes"
    elif any(source.exists() and path.exists() and source.samefile(path) for source in inputs):
        reason = "one of the inputs"
    if reason:
        raise ConfigError(
            f"{path} is {reason}", key="--out", hint="give the name of another file"
        )


@final
class PredictionFile:
    """A table that is written as its rows come, and files such as masks in a folder beside it."""

    def __init__(self, path: Path, unfinished: Path, kind: str) -> None:
        self.path = path
        self.what = kind
        self._table = unfinished / path.name
        self.folder = unfinished / f"{path.stem}_{kind}s"
        self._parquet: Any = None
        self._names: set[str] = set()

    def add(self, frame: pd.DataFrame) -> None:
        """Write more rows."""
        suffix = self.path.suffix.lower()
        first = not self._table.exists()
        if suffix == ".csv":
            spreadsheet_frame(frame).to_csv(
                self._table,
                mode="a",
                index=False,
                header=first,
                lineterminator="\n",
                errors="surrogateescape",
            )
        elif suffix == ".jsonl":
            # Not DataFrame.to_json, which has decimals, not digits: of 1e-12 little would be left.
            rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
            with self._table.open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
        else:
            import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types

            self._parquet = self._parquet or _parquet_writer(self._table, frame)
            schema = self._parquet.schema
            try:
                table = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            except pa.ArrowException as error:
                raise AssayError(
                    f"not all inputs have the same kind of values in a column to keep: {first_line(error)}",
                    hint="--out FILE.csv holds numbers and texts in one column",
                ) from error
            self._parquet.write_table(table)

    def add_files(self, inputs: Sequence[str], predictions: Predictions) -> list[str]:
        """Write a file for each prediction, called as its input; returns their places."""
        places = []
        self.folder.mkdir(exist_ok=True)
        for index, given in enumerate(inputs):
            stem = free = Path(given).stem
            number = 1
            while free.casefold() in self._names:  # which some file systems hold for the same
                number += 1
                free = f"{stem}_{number}"
            self._names.add(free.casefold())
            place = self.folder / f"{free}{predictions.file_suffix}"
            place.write_bytes(predictions.file_of(index))
            places.append(f"{self.folder.name}/{place.name}")
        return places

    def close(self) -> None:
        """Write the end of a Parquet file, which its writer would else do whenever it is collected."""
        if self._parquet is not None:
            self._parquet.close()


@contextmanager
def open_predictions(path: Path, kind: str = "") -> Iterator[PredictionFile]:
    """Open a file of predictions, with a folder of files beside it if they have some."""
    try:
        with write_together(path) as unfinished:
            file = PredictionFile(path, unfinished, kind)
            if kind and os.path.lexists(path.with_name(file.folder.name)):
                raise ConfigError(
                    f"{path.with_name(file.folder.name)} exists, with other predictions",
                    key="--out",
                    hint="remove it, or choose another name",
                )
            with closing(file):
                yield file
    except OSError as error:
        why = write_failure(error) or error.strerror or str(error)
        raise AssayError(
            f"{path} cannot be written: {why}", hint="nothing was written"
        ) from error


def _parquet_writer(path: Path, frame: pd.DataFrame) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types

    text = [name for name in frame.columns if frame[name].dtype == object]
    known = pa.Schema.from_pandas(frame.drop(columns=text), preserve_index=False)
    types = {field.name: field.type for field in known}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in frame.columns])
    # A dictionary of numbers, each of which occurs once, is built and thrown away.
    return pq.ParquetWriter(str(path), schema, use_dictionary=text)


_PER_CLASS = ("probability ", "score ")
"""Beginnings of the columns that there is one of for each class."""
_MOST = 12


def as_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
    """A table of what matters most: no column in which nothing stands, and not one of each class."""
    shown = [name for name in columns if any(row[name] is not None for row in rows)]
    if any(word.strip() in columns for word in _PER_CLASS):
        shown = [name for name in shown if not name.startswith(_PER_CLASS)]
    if len(shown) > _MOST:
        shown = [*shown[: _MOST - 1], *shown[-1:]]
    table = make_table(
        shown, [name for name in shown if any(isinstance(row[name], float) for row in rows)]
    )
    for row in rows:
        table.add_row(*(Text(printable(_cell_text(row[name]))) for name in shown))
    for column in table.columns:
        column.header = Text(printable(str(column.header)))
    return table


def _cell_text(value: Any) -> str:
    if isinstance(value, float):
        return format_number(value)
    if value is None:
        return ""
    return str(value)


_TEXTS = 16
"""In a frame of what a language model writes."""
_FLAT = 4096
_NUMBERS = 1 << 20
"""Samples of one dimension in a batch, and the numbers in them: a few at a time leave a processor idle."""


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
        threshold: Of two classes, the probability from which on the second one is predicted, and how it was
            chosen; empty where the more likely class is predicted.
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
    threshold: Mapping[str, Any]
    seconds: float


def predict(
    predictor: Predictor,
    run_dir: Path,
    inputs: Sequence[Path],
    *,
    prompts: Sequence[str] = (),
    sampling: Sampling | None = None,
    out: Path | None = None,
    top_k: int = 3,
    batch_size: int | None = None,
    limit: int | None = None,
    keep: Sequence[str] = (),
    progress: Callable[[int], None] = lambda _: None,
) -> Predicted:
    """Predict every sample of files and folders, or the first ones, beside columns of tables to `keep`."""
    preprocess = predictor.preprocess
    if preprocess is None:
        raise AssayError(
            f"{run_dir} was trained on a custom datamodule, whose input is unknown",
            hint="assay.load(run) takes what that module gave",
        )
    if out is not None:
        check_name(out, inputs)
    if keep and (preprocess.encoder is None or predictor.generates):
        raise ConfigError("the model reads no tables", key="--keep", hint="leave it out")
    kind = "" if predictor.task is None or predictor.kind is None else predictor.task.file_column
    notes = _first_notes(predictor, kind * (out is None))
    size = batch_size or predictor.batch_size
    if (
        batch_size is None
        and len(preprocess.input_shape) == 1
        and not preprocess.spec.get("vocab_size")
    ):
        size = max(size, min(_FLAT, _NUMBERS // preprocess.input_shape[0]))

    def frames(file: PredictionFile | None) -> Iterator[pd.DataFrame]:
        if predictor.generates:
            yield from _text_frames(predictor, prompts, inputs, sampling or Sampling(), limit)
            return
        looked = False
        with closing(blocks(preprocess, inputs, min(size, limit or size), keep)) as stream:
            for block in stream:
                notes.append(block.note)
                if not block.inputs:
                    continue
                if len(block.samples) and not looked:
                    notes.append(preprocess.far_off(block.samples[:size]))
                    looked = True
                yield _frame(predictor, preprocess, block, size, top_k=top_k, file=file)

    start = time.perf_counter()
    count = 0
    failed = 0
    first_error = ""
    warned = 0
    shown = list[pd.DataFrame]()
    columns = list[str]()
    with nullcontext() if out is None else open_predictions(out, kind) as file:
        for whole in frames(file):
            frame = whole if limit is None else whole[: limit - count]
            columns = list(frame.columns)
            if file is not None:
                file.add(frame)
            elif len(frame):
                shown.append(frame)
            wrong = frame[frame["error"].notna()]
            if not first_error and len(wrong):
                first_error = _describe_error(wrong.iloc[0])
            count += len(frame)
            failed += len(wrong)
            if file is not None and "warning" in frame:
                warned += int(frame["warning"].notna().sum())
            progress(count)
            if len(frame) < len(whole):
                notes.append(f"showing the first {limit:,} rows; --out FILE writes all")
                break
        if not count:
            raise AssayError("there is nothing to predict in the inputs")
    if warned:
        notes.append(f"rows with a warning: {warned:,} of {count:,}, see column warning")
    rows = pd.concat(shown, ignore_index=True) if shown else pd.DataFrame()
    return Predicted(
        run_dir=run_dir,
        out=out,
        num_samples=count,
        num_failed=failed,
        first_error=first_error,
        columns=columns,
        rows=rows.astype(object).where(rows.notna(), None).to_dict("records"),  # type: ignore[arg-type]  # of texts
        notes=[note for note in dict.fromkeys(notes) if note],
        threshold=dict(predictor.about_threshold),
        seconds=round(time.perf_counter() - start, 3),
    )


def _describe_error(row: pd.Series[Any]) -> str:
    place = ""
    if not pd.isna(row["row"]):
        place = f", row {row['row']}"
    return f"{row['input']}{place}: {row['error']}"


def _first_notes(predictor: Predictor, kind: str) -> list[str]:
    """What there is to know before anything is predicted; `kind` of files that are not written."""
    notes = [*predictor.notes]
    names = predictor.names
    if predictor.about_threshold:
        notes.append(f"threshold {describe_threshold(predictor.about_threshold)}")
    if len(names) > MOST_COLUMNS:
        notes.append(
            f"{pluralize(len(names), 'class', 'classes')}: only the most likely ones have a column"
        )
    if kind:
        notes.append(f"--out FILE writes each {kind} to a file, too")
    return notes


def _outputs_and_spread(
    predictor: Predictor, samples: Tensor, size: int
) -> tuple[Tensor, Tensor | None]:
    try:
        return predictor.outputs_and_spread(samples, size)
    except torch.OutOfMemoryError as error:
        raise AssayError(
            f"the device has no room for {pluralize(min(size, len(samples)), 'sample')} at a time",
            hint="--batch-size with a smaller number",
        ) from error


def _frame(
    predictor: Predictor,
    preprocess: Preprocess,
    block: Block,
    size: int,
    *,
    top_k: int,
    file: PredictionFile | None,
) -> pd.DataFrame:
    """Rows of a block, those without a prediction among them."""
    inputs = list(map(to_utf8, block.inputs))
    errors = _text_array(block.errors)
    usable = np.flatnonzero([error is None for error in errors])
    # Where nothing is predicted, a sample of zeros says which columns there are.
    zeros = block.samples.new_zeros(1, *preprocess.input_shape)
    samples = block.samples if len(block.samples) else zeros
    outputs, spread = _outputs_and_spread(predictor, samples, size)
    outputs = outputs[: len(block.samples)]
    finite = outputs.reshape(len(outputs), -1 if len(outputs) else 0).isfinite().all(1).numpy()
    if not finite.all():
        errors[usable[~finite]] = "the model's output is not finite"
        usable = usable[finite]
        outputs = outputs[torch.from_numpy(finite)]
    if predictor.kind is None:
        numbers = outputs.reshape(len(outputs), -1).numpy()
        columns: dict[str, Any] = {
            f"output_{at}": numbers[:, at] for at in range(numbers.shape[1])
        }
    else:
        if spread is not None:
            spread = spread[: len(block.samples)][torch.from_numpy(finite)]
        predictions = predictor.typed(outputs, spread)
        if block.sizes:
            predictions = predictions.resized(
                [size for size, good in zip(block.sizes, finite, strict=True) if good]
            )
        columns = dict(predictions.columns(top_k))
        if predictor.about_threshold:
            columns["threshold"] = np.full(len(usable), predictor.threshold)
        if file is not None and file.what:
            columns[file.what] = file.add_files(
                [inputs[row] for row in usable.tolist()], predictions
            )
    rows = {"input": inputs, "row": pd.array(np.asarray(block.rows), dtype="Int64")}
    taken = {*rows, *columns, "warning", "error"}
    rows |= {f"{'input ' * (name in taken)}{name}": values for name, values in block.kept.items()}
    if len(usable) == len(block.inputs):
        frame = pd.DataFrame(rows | columns)
    else:
        frame = pd.DataFrame(rows).join(pd.DataFrame(columns).set_axis(usable))
    if preprocess.encoder is not None:
        frame["warning"] = _text_array(block.warnings)
    frame["error"] = errors
    return frame


def _text_array(given: Sequence[str]) -> NDArray[np.object_]:
    texts = np.full(len(given), None, dtype=object)
    if any(given):
        texts[:] = [to_utf8(text) or None for text in given]
    return texts


def _text_frames(
    predictor: Predictor,
    prompts: Sequence[str],
    inputs: Sequence[Path],
    sampling: Sampling,
    limit: int | None,
) -> Iterator[pd.DataFrame]:
    """Frames of up to 16 texts; beyond the limit one more row, which says that there are more."""
    rows = enumerate(_read_prompts(prompts, inputs))
    while block := list(islice(rows, _TEXTS)):
        records = []
        for position, (source, row, text, error) in block:
            written = None
            if not error and (limit is None or position < limit):
                written = predictor.text(text, sampling)
            records.append(
                {
                    "input": to_utf8(source),
                    "row": row,
                    "prompt": text if written else None,
                    "prediction": written and written.text,
                    "num_tokens": written and written.num_tokens,
                    "bits_per_token": written and written.bits_per_token,
                    "error": error or None,
                }
            )
        frame = pd.DataFrame(records, dtype=object)
        yield frame.astype({"row": "Int64", "num_tokens": "Int64", "bits_per_token": "Float64"})


def _read_prompts(
    prompts: Sequence[str], inputs: Sequence[Path]
) -> Iterator[tuple[str, int | None, str, str]]:
    """Where each stands, in which line, the text, and why there is none."""
    for prompt in prompts:
        yield "--prompt", None, to_utf8(prompt), ""
    for path in inputs:
        try:
            texts = path.read_text(encoding="utf-8-sig").removesuffix("\n")
        except (UnicodeDecodeError, OSError) as error:
            yield str(path), None, "", f"it cannot be read: {first_line(error)}"
            continue
        lines = []
        if texts:
            lines = texts.split("\n")
        yield from ((str(path), row, text, "") for row, text in enumerate(lines))


def check_prompts(
    prompts: Sequence[str],
    inputs: Sequence[Path],
    options: dict[str, Any],
    *,
    generates: bool,
) -> None:
    """Refuse what a run's task has no use for."""
    if not generates and (prompts or options):
        key = "--prompt"
        if not prompts:
            key = f"--{next(iter(options)).replace('_', '-')}"
        raise ConfigError("the run's model does not write texts", key=key, hint="leave it out")
    if not prompts and not inputs:
        texts = "--prompt TEXT, or a file of a prompt per line"
        files = "name files or folders to predict"
        raise AssayError("there is nothing to predict", hint=texts if generates else files)
