"""Predictions of files and folders: streamed through the model into a file, or the first of them shown."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import torch
from lightning.pytorch.utilities.memory import is_oom_error

from assay.errors import AssayError, ConfigError
from assay.quoting import counted, to_utf8
from assay.run.predict.inputs import blocks
from assay.run.predict.output_file import check_name, writing
from assay.task.prediction.predictions import MOST_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.run.predict.inputs import Block
    from assay.run.predict.output_file import PredictionFile
    from assay.run.predict.predictor import Predictor
    from assay.run.predict.preprocess import Preprocess
    from assay.task.generate import Sampling

_FLAT, _NUMBERS = 4096, 1 << 20
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


def write_rows(
    run_dir: Path,
    frames: Iterable[pd.DataFrame],
    file: PredictionFile | None,
    notes: list[str],
    *,
    most_rows: int | None = None,
) -> Predicted:
    """Write tables of predictions to a file, or keep their first rows."""
    start, count, failed, first_error = time.perf_counter(), 0, 0, ""
    kept: list[pd.DataFrame] = []
    columns: list[str] = []
    for frame in frames:
        columns = list(frame.columns)
        if file is not None:
            file.add(frame)
        elif most_rows is None or count < most_rows:
            kept.append(frame if most_rows is None else frame[: most_rows - count])
        wrong = frame[frame["error"].notna()]
        if not first_error and len(wrong):
            bad = wrong.iloc[0]
            row = "" if pd.isna(bad["row"]) else f", row {bad['row']}"
            first_error = f"{bad['input']}{row}: {bad['error']}"
        count, failed = count + len(frame), failed + len(wrong)
    if not count:
        raise AssayError("there is nothing to predict in the inputs")
    rows = pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()
    if file is None and len(rows) < count:
        notes.append(f"the first {len(rows):,} of {count:,} rows are here; --out FILE writes all of them")
    return Predicted(
        run_dir=run_dir,
        out=None if file is None else file.path,
        num_samples=count,
        num_failed=failed,
        first_error=first_error,
        columns=columns,
        rows=rows.astype(object).where(rows.notna(), None).to_dict("records"),  # type: ignore[arg-type]  # of texts
        notes=[note for note in dict.fromkeys(notes) if note],
        seconds=round(time.perf_counter() - start, 3),
    )


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
    preprocess = predictor.preprocess
    if preprocess is None:
        raise AssayError(
            f"{run_dir} was trained on a custom datamodule, which does not say what its input is",
            hint="assay.load(run) takes what that module gave",
        )
    if out is not None:
        check_name(out, inputs)
    notes = [*predictor.notes]
    if (names := len(predictor.names)) > MOST_COLUMNS:
        notes.append(f"{counted(names, 'class', 'classes')}: only the most likely ones have a column")
    what = "" if predictor.task is None or predictor.kind is None else predictor.task.file_column
    if what and out is None:
        notes.append(f"--out FILE writes each {what} to a file, too")
    with nullcontext() if out is None else writing(out, what) as file:

        def frames() -> Iterable[pd.DataFrame]:
            size = batch_size or predictor.batch_size
            if (
                batch_size is None
                and len(preprocess.input_shape) == 1
                and not preprocess.spec.get("vocab_size")
            ):
                size = max(size, min(_FLAT, _NUMBERS // preprocess.input_shape[0]))
            run = _Batches(predictor, size, may_shrink=batch_size is None)
            seen, looked = 0, False
            with closing(blocks(preprocess, inputs, min(size, limit or size))) as stream:
                for block in stream:
                    notes.append(block.note)
                    if not block.inputs:
                        continue
                    if len(block.samples) and not looked:
                        notes.append(preprocess.far_off(block.samples[:size]))
                        looked = True
                    frame = _frame(predictor, preprocess, block, run, top_k=top_k, file=file)
                    left = len(frame) if limit is None else min(len(frame), limit - seen)
                    seen += left
                    progress(seen)
                    yield frame[:left]
                    if limit is not None and seen >= limit:
                        return

        return write_rows(run_dir, frames(), file, notes, most_rows=most_rows)


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
    predictor: Predictor,
    preprocess: Preprocess,
    block: Block,
    run: _Batches,
    *,
    top_k: int,
    file: PredictionFile | None,
) -> pd.DataFrame:
    """Rows of a block, those without a prediction among them."""
    inputs, errors = list(map(to_utf8, block.inputs)), _texts(block.errors)
    at = np.flatnonzero([error is None for error in errors])
    # Where nothing is predicted, a sample of zeros says which columns there are.
    zeros = block.samples.new_zeros(1, *preprocess.input_shape)
    outputs = run(block.samples) if len(block.samples) else run(zeros)[:0]
    finite = outputs.reshape(len(outputs), -1 if len(outputs) else 0).isfinite().all(1).numpy()
    if not finite.all():
        errors[at[~finite]] = "the model's output is not finite"
        at, outputs = at[finite], outputs[torch.from_numpy(finite)]
    if predictor.kind is None:
        columns = _own_columns(outputs)
    else:
        found = predictor.typed(outputs)
        if block.sizes:
            found = found.resized([size for size, good in zip(block.sizes, finite, strict=True) if good])
        columns = dict(found.columns(top_k))
        if file is not None and file.what:
            columns[file.what] = file.add_files([inputs[row] for row in at.tolist()], found)
    rows = {"input": inputs, "row": pd.array(np.asarray(block.rows), dtype="Int64")}
    if len(at) == len(block.inputs):
        frame = pd.DataFrame(rows | columns)
    else:
        frame = pd.DataFrame(rows).join(pd.DataFrame(columns).set_axis(at))
    if preprocess.encoder is not None:
        frame["warning"] = _texts(block.warnings)
    frame["error"] = errors
    return frame


def _texts(given: Sequence[str]) -> NDArray[np.object_]:
    texts = np.full(len(given), None, dtype=object)
    if any(given):
        texts[:] = [to_utf8(text) or None for text in given]
    return texts


def _own_columns(outputs: Tensor) -> dict[str, Any]:
    """Outputs of a custom module as numbers."""
    if not outputs.is_floating_point() or outputs.ndim > 2:
        raise AssayError(
            f"the run's own module returns {outputs.dtype} [{', '.join(map(str, outputs.shape[1:]))}] a "
            "sample; numbers [N] or [N, K] can be written",
            hint="assay.load(run)(raw) returns them as they come",
        )
    return {f"output_{at}": column.numpy() for at, column in enumerate(outputs.reshape(len(outputs), -1).T)}


_BLOCK = 16


def predict_texts(
    predictor: Predictor,
    run_dir: Path,
    prompts: Sequence[str],
    inputs: Sequence[Path],
    sampling: Sampling,
    *,
    out: Path | None = None,
    limit: int | None = None,
) -> Predicted:
    """Let texts go on."""
    if out is not None:
        check_name(out, inputs)
    notes = [*predictor.notes]

    def frames() -> Iterator[pd.DataFrame]:
        lines = _read_prompts(prompts, inputs)
        first = islice(lines, limit)
        while pending := list(islice(first, _BLOCK)):
            yield _text_frame(predictor, pending, sampling)
        if next(lines, None) is not None:
            notes.append(f"the first {limit:,} texts are here; --out FILE writes all of them")

    with nullcontext() if out is None else writing(out) as file:
        return write_rows(run_dir, frames(), file, notes)


def _read_prompts(
    prompts: Sequence[str], inputs: Sequence[Path]
) -> Iterator[tuple[str, int | None, str, str]]:
    """Where each stands, in which line, the text, and why there is none."""
    for prompt in prompts:
        yield "--prompt", None, to_utf8(prompt), ""
    for path in inputs:
        try:
            with path.open(encoding="utf-8", newline="") as lines:
                row = -1
                for row, line in enumerate(lines):
                    yield str(path), row, line.rstrip("\r\n"), ""
            if row < 0:
                yield str(path), None, "", "the file is empty"
        except (UnicodeDecodeError, OSError) as error:
            reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
            yield str(path), None, "", f"it cannot be read: {reason}"


def _text_frame(
    predictor: Predictor, prompts: Sequence[tuple[str, int | None, str, str]], sampling: Sampling
) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for source, row, text, error in prompts:
        written = None if error else predictor.text(text, sampling)
        rows.append(
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
    frame = pd.DataFrame(rows, dtype=object)
    return frame.astype({"row": "Int64", "num_tokens": "Int64", "bits_per_token": "Float64"})


def check_prompts(
    prompts: Sequence[str], inputs: Sequence[Path], options: dict[str, Any], *, generates: bool
) -> None:
    """Refuse what a run's task has no use for."""
    if not generates and (prompts or options):
        key = "--prompt" if prompts else f"--{next(iter(options)).replace('_', '-')}"
        raise ConfigError("the run's model does not write texts", key=key, hint="leave it out")
    if not prompts and not inputs:
        texts, files = "--prompt TEXT, or a file of a prompt per line", "name files or folders to predict"
        raise AssayError("there is nothing to predict", hint=texts if generates else files)
