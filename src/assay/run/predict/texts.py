"""How texts go on, for `assay predict`: prompts that were typed, and those of text files, a line each."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pandas as pd

from assay.errors import AssayError, ConfigError
from assay.quoting import to_utf8
from assay.run.predict.output_file import check_name
from assay.run.predict.predict import write_rows

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
    notes = [*predictor.notes]

    def frames() -> Iterator[pd.DataFrame]:
        lines = _read_prompts(prompts, inputs)
        first = islice(lines, limit)
        while pending := list(islice(first, _BLOCK)):
            notes.extend(note for _, _, text, _ in pending for note in predictor.unknown_in(text))
            yield _frame(predictor, pending, sampling)
        if next(lines, None) is not None:
            notes.append(f"the first {limit:,} texts are here; --out FILE writes all of them")

    return write_rows(run_dir, frames(), out, notes)


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


def _frame(
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
