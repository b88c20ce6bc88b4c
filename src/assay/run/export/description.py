"""What an exported file is, as plain data: kept in its metadata, and what its model card is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import pandas as pd

from assay.data.tokenizer import PAD
from assay.run.encoder_file import TOKENIZER_FILE as TOKENIZER
from assay.run.export.exportable import text_codes, unknown_code

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.data.tabular.table_encoder import Column
    from assay.data.text_encoder import TextEncoder
    from assay.run.export.agreement import Agreement, CheckSamples
    from assay.run.export.exportable import Original

SCHEMA_VERSION: Final = 1
_ALL_CODES: Final = 10_000


@final
@dataclass(frozen=True)
class Exported:
    """What an export came to.

    Attributes:
        path: The file.
        card: Its model card.
        description: As in the file's metadata.
        size: Bytes of the file.
        agreement: With the original; see `assay.run.export.agreement`.
        subset: Of the run's data that was compared on; empty where samples were made up.
        notes: What a user should know, a sentence each.
        quantized: `int8`, or empty.
    """

    path: Path
    card: Path
    description: dict[str, Any]
    size: int
    agreement: Agreement
    subset: str
    notes: tuple[str, ...] = ()
    quantized: str = ""


def describe(original: Original, samples: CheckSamples, *, file_format: str, inside: bool) -> dict[str, Any]:
    """Inputs, outputs and record of an exported file."""
    record, spec = original.record, original.spec
    whole = file_format != "safetensors"
    inputs = _inputs(original, samples, file_format, inside=inside)
    return {
        "schema_version": SCHEMA_VERSION,
        "format": file_format,
        "task": spec.get("task", ""),
        "one_of_classes": original.task is not None and original.task.by_class,
        "names": list(original.predictor.names),
        "inputs": inputs,
        "output": {"name": original.kind if whole else "outputs", "kind": original.kind if whole else "raw"},
        "inside": [words for words in _steps(original, inside=inside).values() if words] if whole else [],
        "preprocessing": {
            key: list(spec.get(key) or ()) for key in ("mean", "std", "target_mean", "target_std")
        },
        "run": {
            "run_id": record.run_id,
            "name": record.name,
            "checkpoint": original.checkpoint,
            "best": record.best,
            "status": record.status,
            "metrics": record.metrics,
            "choices": record.choices,
            "overrides": record.overrides,
            "seed": record.seed,
            "fingerprint": record.fingerprint,
            "data_sha256": record.data_sha256,
            "git_commit": (record.git or {}).get("commit", ""),
            "started": record.started,
            "packages": {
                name: record.packages[name]
                for name in ("assay", "torch", "torchvision", "lightning", "numpy")
                if name in record.packages
            },
        },
    }


def _steps(original: Original, *, inside: bool) -> dict[str, str]:
    """What the file does beside the model, by what it is called."""
    spec = original.spec
    names = [type(one).__name__ for one in original.transforms.transforms] if inside else []
    loss = {"probabilities": "probabilities", "embeddings": "embeddings as the loss compares them"}
    return {
        "encode": "imputation and one-hot columns" if original.encoder is not None else "",
        "transforms": ", ".join(names),
        "normalize": "normalisation" if original.normalize.mean else "",
        "finish": "the target's own unit" if spec.get("target_mean") else loss.get(original.kind, ""),
    }


def _inputs(
    original: Original, samples: CheckSamples, file_format: str, *, inside: bool
) -> list[dict[str, Any]]:
    spec = original.spec
    if file_format == "safetensors":
        shape = list(spec.get("input_shape") or samples.raw[0].shape[1:])
        dtype = spec["input_dtype"] if spec.get("vocab_size") else "float32"
        return [{"name": "inputs", "dtype": dtype, "shape": ["batch", *shape], "prepared": True}]
    if original.texts is not None:
        return [_describe_tokens(original.texts)]
    if original.encoder is not None:
        return describe_columns(original.encoder.columns, texts=file_format == "onnx")
    first = samples.raw[0]
    dtype = str(first.dtype).removeprefix("torch.")
    shape = list(first.shape[1:])
    if original.transforms and inside:
        if original.takes_any_size:
            shape[1:] = ["height", "width"]
    elif original.transforms:
        shape, dtype = list(spec["input_shape"]), spec["input_dtype"]
    described: dict[str, Any] = {"name": "inputs", "dtype": dtype, "shape": ["batch", *shape]}
    if original.codec is not None:
        length, size = shape[0], spec["vocab_size"]
        return [{**described, "shape": ["batch", "length"], "longest": length, "range": [0, size - 1]}]
    if dtype == "uint8":
        return [{**described, "range": [0, 255]}]
    if samples.subset and (inside or not original.transforms):
        lows, highs = zip(*((float(one.min()), float(one.max())) for one in samples.raw), strict=True)
        described["range_seen"] = [min(lows), max(highs)]
    return [described]


def _describe_tokens(texts: TextEncoder) -> dict[str, Any]:
    return {
        "name": "inputs",
        "dtype": "int64",
        "shape": ["batch", "length"],
        "tokens": {
            "tokenizer": TOKENIZER,
            "vocab_size": texts.vocab_size,
            "max_length": texts.max_length,
            "padding": PAD,
        },
    }


def describe_columns(columns: Sequence[Column], *, texts: bool) -> list[dict[str, Any]]:
    """Inputs of a file that takes rows of a table."""
    numbers = [
        one
        for column in columns
        if column.kind in ("number", "date")
        for one in (
            _parts(column)
            if column.parts
            else [
                {
                    "name": column.name,
                    "kind": "days since 1970-01-01" if column.kind == "date" else "number",
                    "missing": column.fill,
                }
            ]
        )
    ]
    categories = [
        {
            "name": column.name,
            "kind": "category",
            "missing": column.fill,
            "categories": list(column.codes)[:_ALL_CODES],
            "unknown": "counts with the rarest ones" if column.other is not None else "counts as none",
            **({} if texts else {"codes": text_codes(column), "unknown_code": unknown_code(column)}),
        }
        for column in columns
        if column.kind == "category"
    ]
    described = []
    if numbers:
        described.append(
            {"name": "numbers", "dtype": "float32", "shape": ["batch", len(numbers)], "columns": numbers}
        )
    if categories:
        name, dtype = ("categories", "string") if texts else ("codes", "int64")
        described.append(
            {"name": name, "dtype": dtype, "shape": ["batch", len(categories)], "columns": categories}
        )
    if hashed := [column for column in columns if column.kind == "words"]:
        words = [
            {"name": column.name, "kind": "hashed words", "size": column.buckets, "missing": "no words"}
            for column in hashed
        ]
        shape = ["batch", sum(column.buckets for column in hashed)]
        described.append({"name": "words", "dtype": "float32", "shape": shape, "columns": words})
    return described


def _parts(column: Column) -> list[dict[str, Any]]:
    """A date's numbers, each as an entry of its own."""
    start = pd.Timestamp("1970-01-01") + pd.Timedelta(days=column.start)
    about = {"kind": "date", "date": column.name, "format": column.form, "start": start.isoformat()}
    return [
        {
            "name": f"{column.name} ({part})",
            **about,
            "part": part,
            "missing": None if column.fill is None else fill,
        }
        for part, fill in zip(column.parts, column.fills, strict=True)
    ]
