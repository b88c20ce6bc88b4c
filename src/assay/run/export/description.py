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
    from assay.run.export.agreement import Agreement, CheckSamples
    from assay.run.export.exportable import Original

SCHEMA_VERSION: Final = 1
_ALL_CODES: Final = 10_000
_OF_RECORD: Final = (
    *("run_id", "name", "best", "status", "metrics", "choices", "overrides", "seed", "fingerprint"),
    *("data_sha256", "started"),
)
_PACKAGES: Final = ("assay", "torch", "torchvision", "lightning", "numpy")


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
    kind, steps = "raw", []
    if file_format != "safetensors":
        kind = original.kind
        meanings = {"probabilities": "probabilities", "embeddings": "embeddings as the loss compares them"}
        steps = [
            "imputation and one-hot columns" if original.encoder is not None else "",
            ", ".join(type(one).__name__ for one in original.transforms.transforms) if inside else "",
            "normalisation" if original.normalize.mean else "",
            "the target's own unit" if spec.get("target_mean") else meanings.get(kind, ""),
        ]
    return {
        "schema_version": SCHEMA_VERSION,
        "format": file_format,
        "task": spec.get("task", ""),
        "one_of_classes": original.task is not None and original.task.by_class,
        "names": list(original.predictor.names),
        "inputs": _inputs(original, samples, file_format, inside=inside),
        "output": {"name": "outputs" if kind == "raw" else kind, "kind": kind},
        "inside": [step for step in steps if step],
        "preprocessing": {
            key: list(spec.get(key) or ()) for key in ("mean", "std", "target_mean", "target_std")
        },
        "run": {
            **{name: getattr(record, name) for name in _OF_RECORD},
            "checkpoint": original.checkpoint,
            "git_commit": (record.git or {}).get("commit", ""),
            "packages": {name: record.packages[name] for name in _PACKAGES if name in record.packages},
        },
    }


def _inputs(
    original: Original, samples: CheckSamples, file_format: str, *, inside: bool
) -> list[dict[str, Any]]:
    spec, first, texts = original.spec, samples.raw[0], original.texts
    if file_format == "safetensors":
        shape = list(spec.get("input_shape") or first.shape[1:])
        dtype = spec["input_dtype"] if spec.get("vocab_size") else "float32"
        return [{"name": "inputs", "dtype": dtype, "shape": ["batch", *shape], "prepared": True}]
    if texts is not None:
        sizes = {"vocab_size": texts.vocab_size, "max_length": texts.max_length, "padding": PAD}
        tokens = {"name": "inputs", "dtype": "int64", "shape": ["batch", "length"]}
        return [{**tokens, "tokens": {"tokenizer": TOKENIZER, **sizes}}]
    if original.encoder is not None:
        return describe_columns(original.encoder.columns, texts=file_format == "onnx")
    shape, dtype = list(first.shape[1:]), str(first.dtype).removeprefix("torch.")
    if original.transforms and not inside:
        shape, dtype = list(spec["input_shape"]), spec["input_dtype"]
    elif original.takes_any_size:
        shape[1:] = ["height", "width"]
    described: dict[str, Any] = {"name": "inputs", "dtype": dtype, "shape": ["batch", *shape]}
    if original.codec is not None:
        described["shape"] = ["batch", "length"]
        described |= {"longest": shape[0], "range": [0, spec["vocab_size"] - 1]}
    elif dtype == "uint8":
        described["range"] = [0, 255]
    elif samples.subset and (inside or not original.transforms):
        lows, highs = zip(*((float(one.min()), float(one.max())) for one in samples.raw), strict=True)
        described["range_seen"] = [min(lows), max(highs)]
    return [described]


def describe_columns(columns: Sequence[Column], *, texts: bool) -> list[dict[str, Any]]:
    """Inputs of a file that takes rows of a table."""
    entries: dict[str, list[dict[str, Any]]] = {"numbers": [], "categories": [], "words": []}
    for column in columns:
        entry: dict[str, Any] = {"name": column.name, "kind": column.kind, "missing": column.fill}
        if column.kind == "category":
            entry["categories"] = list(column.codes)[:_ALL_CODES]
            entry["unknown"] = "counts as none" if column.other is None else "counts with the rarest ones"
            if not texts:
                entry |= {"codes": text_codes(column), "unknown_code": unknown_code(column)}
            entries["categories"].append(entry)
        elif column.kind == "words":
            entry |= {"kind": "hashed words", "size": column.buckets, "missing": "no words"}
            entries["words"].append(entry)
        elif column.kind == "date":
            start = pd.Timestamp("1970-01-01") + pd.Timedelta(days=column.start)
            entry |= {"date": column.name, "format": column.form, "start": start.isoformat()}
            for part, fill in zip(column.parts or ("elapsed",), column.fills, strict=True):
                missing = None if column.fill is None else fill
                name = f"{column.name} ({part})"
                entries["numbers"].append({**entry, "name": name, "part": part, "missing": missing})
        else:
            entries["numbers"].append(entry)
    described = []
    named = {"numbers": ("numbers", "float32"), "words": ("words", "float32")}
    named["categories"] = ("categories", "string") if texts else ("codes", "int64")
    for kind, some in entries.items():
        (name, dtype), shape = named[kind], ["batch", sum(one.get("size", 1) for one in some)]
        if some:
            described.append({"name": name, "dtype": dtype, "shape": shape, "columns": some})
    return described
