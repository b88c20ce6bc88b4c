"""`MODEL_CARD.md`: what an exported model takes and gives, how good it is, and code that runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import pandas as pd

from assay.analysis.objective import describe_threshold, format_score
from assay.data.tokenizer import PAD
from assay.quoting import command
from assay.run.encoder_file import TOKENIZER_FILE as TOKENIZER
from assay.run.export.exportable import NO_CLASS, missing_numbers
from assay.terminal import escape_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.data.tabular.table_encoder import Column
    from assay.run.export.exportable import Original

MARK: Final = "<!-- Written by assay export, which replaces it. -->"
_MOST_CLASSES: Final = 100


def model_card(exported: Exported, original: Original) -> str:
    """The card, in Markdown."""
    about = exported.description
    run = about["run"]
    words = "a custom task" if original.task is None else original.task.in_words(original.spec)
    model = escape_markdown(run["choices"].get("model") or "a custom model")
    provenance = {name: value for name, value in run.items() if isinstance(value, str | int)} | run[
        "packages"
    ]
    sections = [
        f"{MARK}\n# {escape_markdown(run['name'])}: {model}",
        f"A {escape_markdown(about['task'] or 'trained')} model ({words}), `{exported.path.name}` in "
        f"{about['format']} format, exported by assay.",
        "## Inputs and outputs\n\n" + "\n".join(_interface(about, original)),
        f"## How to run it\n\n```python\n{example_code(exported)}```",
        "## Scores\n\n" + "\n".join(_scores(exported)),
        "## Provenance\n\n" + _table(("", ""), [row for row in provenance.items() if row[1]]),
    ]
    return "\n\n".join(sections) + "\n"


def _interface(about: dict[str, Any], original: Original) -> Iterable[str]:
    for field in about["inputs"]:
        shape = ", ".join(map(str, field["shape"]))
        values = ""
        if "range" in field:
            values = f", from {field['range'][0]} to {field['range'][1]}"
        if tokens := field.get("tokens"):
            values = (
                f", token ids that `{tokens['tokenizer']}` beside the file makes of texts, from 0 (padding "
                f"at the end) to {tokens['vocab_size'] - 1}; at most {tokens['max_length']} of a text"
            )
        prepared = ", encoded, transformed and normalised already" if field.get("prepared") else ""
        yield f"- Input `{field['name']}`: {field['dtype']} [{shape}]{values}{prepared}."
    yield f"- Output `{about['output']['name']}`: {_output(about, original)}."
    if original.gives_logits and len(about["outputs"]) > 1:
        yield (
            "- Output `logits`: what the model returns before its sigmoid or softmax, to rank by where "
            "probabilities are too close to 0 or 1."
        )
        yield f"- Output `prediction`: {_prediction(about)}; {NO_CLASS} for a row without a prediction."
    if about["inside"]:
        yield f"- The file does on its own: {'; '.join(map(escape_markdown, about['inside']))}."
    for field in about["inputs"]:
        if "columns" in field:
            yield f"\nColumns of `{field['name']}`, in this order, and what a missing value counts as:\n"
            yield _table(("column", "kind", "missing"), map(_column_row, field["columns"]))


def _column_row(column: Mapping[str, Any]) -> tuple[str, str, Any]:
    """Name, kind with what the part of a date counts, and what a missing value counts as."""
    start = str(column.get("start")).removesuffix("T00:00:00")
    of_day = "of 2π times the share of the day that has passed"
    units = {
        "elapsed": f", days since {start}",
        "day_of_week": ", 0 is Monday",
        "hours": ", since midnight",
        "sine": f", {of_day}",
        "cosine": f", {of_day}",
    }
    unit = f" in {column['unit']}" if "unit" in column else ""
    missing = "NaN comes out" if column["missing"] is None else column["missing"]
    missing = f"{missing}, and is marked" if column.get("marked") else missing
    if codes := column.get("missing_codes"):
        missing = f"{missing}; also written {', '.join(map(str, codes))}"
    return column["name"], f"{column['kind']}{unit}{units.get(str(column.get('part')), '')}", missing


def _output(about: dict[str, Any], original: Original) -> str:
    names = ", ".join(map(escape_markdown, about["names"][:_MOST_CLASSES]))
    if original.codec is not None:
        return (
            f"logits [batch, length, {int(original.spec['vocab_size'])}] of the token that follows each; the "
            "tokenizer beside the file says what text each token stands for, and texts begin after token 0"
        )
    what = "class" if about["one_of_classes"] else "label"
    return {
        "probabilities": f"the probability of each {what} ({names})",
        "values": f"the predicted values ({names}), in the target's own unit",
        "embeddings": "a vector per sample; samples of one class lie together",
        "reconstructions": "for each sample the error, the latent vector and the reconstruction as one row, "
        "in the inputs' own unit",
        "scores": "what the model returns: its loss does not say what probabilities are",
        "raw": "what the bare model returns" + (" (logits)" if original.kind == "probabilities" else ""),
    }[about["output"]["kind"]]


def _prediction(about: Mapping[str, Any]) -> str:
    if not about["one_of_classes"]:
        return "for each label 1 where its probability is above 0.5, else 0"
    if not (threshold := about["threshold"]):
        return "the index of the most likely class, from 0"
    return (
        f"1 ({escape_markdown(threshold['class'])}) from a probability of {threshold['value']:.4g} on, else 0"
    )


def _scores(exported: Exported) -> Iterable[str]:
    run = exported.description["run"]
    tested = "best" if run["best"] else "last"  # whose weights a run tests in its end
    of_test = {name: value for name, value in run["metrics"].items() if name.startswith("test/")}
    if run["checkpoint"] != tested:
        yield f"The run's test scores are of its {tested} checkpoint, not of this file."
    else:
        yield _table(("score", ""), [(name, format_score(name, value)) for name, value in of_test.items()])
    if threshold := exported.description["threshold"]:
        yield f"\nThreshold: {escape_markdown(describe_threshold(threshold))}."
    yield f"\nCompared with the original: {agreement_in_words(exported)}."
    yield from (f"\n{escape_markdown(note)}." for note in exported.notes)


def agreement_in_words(exported: Exported) -> str:
    """The result of the comparison with the original."""
    agreement = exported.agreement
    if agreement is None:
        return "the weights as they are in the checkpoint"
    where = f"{exported.subset} samples" if exported.subset else "made-up samples"
    difference = f"{agreement.largest_difference:.2g} (up to {agreement.tolerance:.1g} is allowed)"
    words = f"{agreement.num_samples:,} {where}, largest difference {difference}"
    if agreement.relative_difference is None:
        return words
    ranks = f"rank correlation {agreement.rank_correlation:.6g}"
    return f"{words}, largest relative difference {agreement.relative_difference:.2g}, {ranks}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_OPEN: Final = {
    "onnx": """\
import json
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession({file!r})
about = json.loads(session.get_modelmeta().custom_metadata_map["assay"])  # columns, names of the outputs
inputs = {inputs}  # put yours here
{outputs} = session.run(None, inputs)
""",
    "safetensors": """\
import assay
from safetensors.torch import load_model

model = assay.load("RUN", raw_input=False)  # or any model of the same architecture
load_model(model, {file!r})
model.eval()  # takes inputs that are encoded, transformed and normalised already
""",
}


def example_code(exported: Exported) -> str:
    """Python that opens the file and runs it on made-up inputs."""
    parts = []
    for one in exported.description["inputs"]:
        # One sample; a size that may differ is at most that of the longest text, or of a picture.
        shape = (1, *(size if isinstance(size, int) else one.get("longest", 64) for size in one["shape"][1:]))
        array = (
            f"np.full({shape}, '', object)"
            if one["dtype"] == "string"
            else f"np.zeros({shape}, {one['dtype']!r})"
        )
        parts.append(f'"{one["name"]}": {array}')
    text = _OPEN[exported.description["format"]]
    outputs = "outputs, logits, prediction" if len(exported.description["outputs"]) > 1 else "(outputs,)"
    return text.format(file=exported.path.name, inputs=f"{{{', '.join(parts)}}}", outputs=outputs)


SCHEMA_VERSION: Final = 1
_ALL_CODES: Final = 10_000
_OF_RECORD: Final = (
    *("run_id", "name", "best", "status", "metrics", "choices", "overrides", "seed", "fingerprint"),
    *("data_sha256", "started"),
)
_PACKAGES: Final = ("assay", "torch", "torchvision", "lightning", "numpy")


@final
@dataclass(frozen=True)
class Agreement:
    """How an exported file and the original compare over samples.

    Attributes:
        num_samples: How many were compared.
        largest_difference: Of any output.
        tolerance: What it may be.
        relative_difference: The largest one of probabilities above 1e-30; null for other outputs.
        rank_correlation: Spearman's, of the class or label where it is lowest; null for other outputs.
    """

    num_samples: int
    largest_difference: float
    tolerance: float
    relative_difference: float | None = None
    rank_correlation: float | None = None


@final
@dataclass(frozen=True)
class Exported:
    """What an export came to.

    Attributes:
        path: The file.
        card: Its model card.
        description: As in the file's metadata.
        size: Bytes of the file.
        agreement: With the original; see `assay.run.export.model_card`. None of weights alone.
        subset: Of the run's data that was compared on; empty where samples were made up.
        notes: What a user should know, a sentence each.
    """

    path: Path
    card: Path
    description: dict[str, Any]
    size: int
    agreement: Agreement | None
    subset: str
    notes: tuple[str, ...] = ()


def describe(original: Original, raw: Any, *, inside: bool) -> dict[str, Any]:
    """Inputs, outputs and record of an ONNX file that takes such batches; without one of bare weights."""
    record = original.record
    spec = original.spec
    kind = "raw"
    steps = []
    if raw is not None:
        kind = original.kind
        meanings = {"probabilities": "probabilities", "embeddings": "embeddings as the loss compares them"}
        steps = [
            "imputation and one-hot columns" if original.encoder is not None else "",
            ", ".join(type(transform).__name__ for transform in original.transforms.transforms)
            if inside
            else "",
            "normalisation" if original.normalize.mean else "",
            "the target's own unit" if spec.get("target_mean") else meanings.get(kind, ""),
        ]
    return {
        "schema_version": SCHEMA_VERSION,
        "format": "safetensors" if raw is None else "onnx",
        "task": spec.get("task", ""),
        "one_of_classes": original.task is not None and original.task.by_class,
        "names": list(original.predictor.names),
        "inputs": _inputs(original, raw, inside=inside),
        "output": {"name": "outputs" if kind == "raw" else kind, "kind": kind},
        "outputs": ["outputs"] if kind == "raw" else list(original.output_names),
        "threshold": dict(original.predictor.about_threshold),
        "inside": [step for step in steps if step],
        "preprocessing": {
            key: list(spec.get(key) or ()) for key in ("mean", "std", "target_mean", "target_std")
        },
        "run": {
            **{name: getattr(record, name) for name in _OF_RECORD},
            "checkpoint": original.checkpoint,
            "monitor": f"{record.best.get('monitor', '')} {record.best.get('value', '')}".strip(),
            "command": command("train", *record.overrides, config_dir=record.config_dir),
            "git_commit": (record.git or {}).get("commit", ""),
            "packages": {name: record.packages[name] for name in _PACKAGES if name in record.packages},
        },
    }


def _inputs(original: Original, raw: Any, *, inside: bool) -> list[dict[str, Any]]:
    spec = original.spec
    texts = original.texts
    if raw is None:
        shape = list(spec.get("input_shape") or ())
        dtype = "float32"
        dtype = spec["input_dtype"] if spec.get("vocab_size") else dtype
        return [{"name": "inputs", "dtype": dtype, "shape": ["batch", *shape], "prepared": True}]
    if texts is not None:
        sizes = {"vocab_size": texts.vocab_size, "max_length": texts.max_length, "padding": PAD}
        tokens = {"name": "inputs", "dtype": "int64", "shape": ["batch", "length"]}
        return [{**tokens, "tokens": {"tokenizer": TOKENIZER, **sizes}}]
    if original.encoder is not None:
        return describe_columns(original.encoder.columns, original.na_values)
    shape = list(raw.shape[1:])
    dtype = str(raw.dtype).removeprefix("torch.")
    if original.transforms and not inside:
        shape = list(spec["input_shape"])
        dtype = spec["input_dtype"]
    elif original.takes_any_size:
        shape[1:] = ["height", "width"]
    described: dict[str, Any] = {"name": "inputs", "dtype": dtype, "shape": ["batch", *shape]}
    if original.codec is not None:
        described["shape"] = ["batch", "length"]
        described |= {"longest": shape[0], "range": [0, spec["vocab_size"] - 1]}
    elif dtype == "uint8":
        described["range"] = [0, 255]
    return [described]


def describe_columns(columns: Sequence[Column], na_values: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Inputs of a file that takes rows of a table."""
    entries: dict[str, list[dict[str, Any]]] = {"numbers": [], "categories": []}
    for column in columns:
        entry: dict[str, Any] = {"name": column.name, "kind": column.kind, "missing": column.fill}
        entry |= {"marked": True} if column.marks_gaps else {}
        entry |= {"unit": column.form[1:]} if column.kind == "number" and column.form[1:] else {}
        codes = {"number": missing_numbers(na_values), "category": list(na_values)}.get(column.kind)
        entry |= {"missing_codes": codes} if codes else {}
        if column.kind == "category":
            entry["categories"] = list(column.codes)[:_ALL_CODES]
            entry["unknown"] = "counts as none" if column.other is None else "counts with the rarest ones"
            entries["categories"].append(entry)
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
    for name, some in entries.items():
        dtype = "string" if name == "categories" else "float64"
        if some:
            described.append({"name": name, "dtype": dtype, "shape": ["batch", len(some)], "columns": some})
    return described
