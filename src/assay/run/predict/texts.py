"""How texts go on, for `assay predict`: prompts that were typed, and those of text files, a line each."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd

from assay.errors import AssayError, ConfigError
from assay.quoting import to_utf8
from assay.run.predict.output_file import check_name, writing
from assay.run.predict.predict import Tally

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from assay.run.predict.predict import Predicted
    from assay.run.predict.predictor import Predictor
    from assay.task.generate import Sampling

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
    tally, kept, notes = Tally(), list[pd.DataFrame](), [*predictor.notes]
    with nullcontext(kept.append) if out is None else writing(out) as add:
        for frame in _frames(predictor, prompts, inputs, sampling, notes, limit):
            add(frame)
            tally.see(frame)
        if not tally.count:
            raise AssayError("there is nothing to predict in the inputs", hint="--prompt TEXT")
    return tally.result(run_dir, out, pd.concat(kept, ignore_index=True) if kept else None, notes)


def _frames(  # noqa: PLR0917 - what `predict_texts` has
    predictor: Predictor,
    prompts: Sequence[str],
    inputs: Sequence[Path],
    sampling: Sampling,
    notes: list[str],
    limit: int | None,
) -> Iterator[pd.DataFrame]:
    every = _prompts(prompts, inputs)
    stream = islice(every, limit)
    while pending := list(islice(stream, _BLOCK)):
        yield _frame(predictor, pending, sampling, notes)
    if next(every, None) is not None:
        notes.append(f"the first {limit:,} texts are here; --out FILE writes all of them")


def _prompts(prompts: Sequence[str], inputs: Sequence[Path]) -> Iterator[tuple[str, int | None, str, str]]:
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
        except UnicodeDecodeError as error:
            yield str(path), None, "", f"it is not UTF-8: {error.reason} at byte {error.start}"
        except OSError as error:
            yield str(path), None, "", f"it cannot be read: {error.strerror}"


def _frame(
    predictor: Predictor,
    prompts: Sequence[tuple[str, int | None, str, str]],
    sampling: Sampling,
    notes: list[str],
) -> pd.DataFrame:
    sources, rows, texts, errors = (list(column) for column in zip(*prompts, strict=True))
    frame = pd.DataFrame({"input": list(map(to_utf8, sources)), "row": pd.array(rows, dtype="Int64")})
    written = [
        None if error else predictor.text(text, sampling) for text, error in zip(texts, errors, strict=True)
    ]
    notes += [note for text in texts for note in predictor.unknown_in(text)]
    columns: dict[str, tuple[str, list[Any]]] = {
        "prompt": ("object", [text if one else None for text, one in zip(texts, written, strict=True)]),
        "prediction": ("object", [one and one.text for one in written]),
        "num_tokens": ("Int64", [one and one.num_tokens for one in written]),
        "bits_per_token": ("Float64", [one and one.bits_per_token for one in written]),
        "error": ("object", [error or None for error in errors]),
    }
    return frame.assign(**{name: pd.Series(values, dtype=dtype) for name, (dtype, values) in columns.items()})


def check_prompts(
    prompts: Sequence[str], inputs: Sequence[Path], options: dict[str, Any], *, generates: bool
) -> None:
    """Refuse what a run's task has no use for."""
    if not generates and (prompts or options):
        key = "--prompt" if prompts else f"--{next(iter(options)).replace('_', '-')}"
        raise ConfigError("the run's model does not write texts", key=key, hint="leave it out")
    if not prompts and not inputs:
        what = (
            "--prompt TEXT, or a file of a prompt per line"
            if generates
            else "name files or folders to predict"
        )
        raise AssayError("there is nothing to predict", hint=what)
