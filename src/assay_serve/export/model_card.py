"""`MODEL_CARD.md`: what an exported model takes and gives, how good it is, and code that runs it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from assay.data.encoder_file import TOKENIZER_FILE as TOKENIZER
from assay.data.table.category import Category
from assay.data.text.tokenizer import PAD
from assay.quoting import command
from assay.record.scores import describe_threshold, format_score
from assay.terminal import escape_markdown, printable
from assay_serve.export.exportable import NO_CLASS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from assay.data.table.column import Column
    from assay_serve.export.exportable import Original

MARK = "<!-- Written by assay export, which replaces it. -->"
_MOST_CLASSES = 100


def model_card(exported: Exported, original: Original) -> str:
    """The card, in Markdown."""
    about = exported.description
    run = about["run"]
    words = "a custom task"
    if original.task is not None:
        words = original.task.in_words(original.spec)
    model = escape_markdown(run["choices"].get("model") or "a custom model")
    provenance = {
        name: value for name, value in run.items() if isinstance(value, str | int)
    } | run["packages"]
    sections = [
        f"{MARK}\n# {escape_markdown(run['name'])}: {model}",
        f"A {escape_markdown(about['task'] or 'trained')} model ({words}), `{exported.path.name}` in "
        f"{about['format']} format, exported by assay.",
        f"## Inputs and outputs\n\n{_interface(about)}\n\n{_MEANINGS}",
        f"## How to run it\n\n```python\n{example_code(exported)}```",
        "## Scores\n\n" + "\n".join(_scores(exported)),
        "## Provenance\n\n" + _table(("", ""), [row for row in provenance.items() if row[1]]),
    ]
    return "\n\n".join(sections) + "\n"


_MEANINGS = f"""\
A missing number is NaN, a missing text is empty; each counts as `missing` says, and null gives NaN.
`elapsed` are days since `start`, Monday is 0, and `sine` and `cosine` are of 2π times the share of the
day, `year_sine` of the year, `week_sine` of the week, that has passed. `logits` are what the model
returns before its sigmoid or softmax. `prediction` is the index of the class, by the threshold if there
is one, or of each label 0 or 1; {NO_CLASS} for a row without one. Of a language model, `scores` are the
logits of the token that follows each, and texts begin after token 0."""
_IN_CARD = ("inputs", "output", "outputs", "names", "one_of_classes", "threshold", "inside")


def _interface(about: Mapping[str, Any]) -> str:
    """As JSON, of which no line can end the block, and without tags."""
    shown = {**{key: about[key] for key in _IN_CARD}, "names": about["names"][:_MOST_CLASSES]}
    # Of a column of many categories the metadata has them all.
    short = json.loads(
        json.dumps(shown),
        object_hook=lambda field: {key: field[key] for key in field if key != "categories"},
    )
    text = json.dumps(short, indent=1, ensure_ascii=False).replace("<", "\\u003c")
    return f"```json\n{printable(text)}\n```"


def _scores(exported: Exported) -> Iterable[str]:
    run = exported.description["run"]
    # whose weights a run tests in its end
    tested = "last"
    if run["best"]:
        tested = "best"
    if len(run["members"]) > 1:
        yield f"The mean of {len(run['members'])} runs. Of the first one alone:\n"
    of_test = {name: value for name, value in run["metrics"].items() if name.startswith("test/")}
    if run["checkpoint"] != tested:
        yield f"The run's test scores are of its {tested} checkpoint, not of this file."
    else:
        yield _table(
            ("score", ""), [(name, format_score(name, value)) for name, value in of_test.items()]
        )
    if threshold := exported.description["threshold"]:
        yield f"\nThreshold: {escape_markdown(describe_threshold(threshold))}."
    yield f"\nCompared with the original: {agreement_in_words(exported)}."
    yield from (f"\n{escape_markdown(note)}." for note in exported.notes)


def agreement_in_words(exported: Exported) -> str:
    """The result of the comparison with the original."""
    agreement = exported.agreement
    if agreement is None:
        return "the weights as they are in the checkpoint"
    words = (
        f"{agreement.num_samples:,} {exported.subset or 'made-up'} samples, largest difference "
        f"{agreement.largest_difference:.2g} (up to {agreement.tolerance:.1g} is allowed)"
    )
    if agreement.relative_difference is None:
        return words
    return f"{words}, largest relative difference {agreement.relative_difference:.2g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [
        head,
        ["---"] * len(head),
        *([escape_markdown(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_OPEN = {
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
        longest = one.get("longest", 64)
        sizes = [size if isinstance(size, int) else longest for size in one["shape"][1:]]
        shape = (1, *sizes)
        array = f"np.zeros({shape}, {one['dtype']!r})"
        if one["dtype"] == "string":
            array = f"np.full({shape}, '', object)"
        parts.append(f'"{one["name"]}": {array}')
    text = _OPEN[exported.description["format"]]
    outputs = "(outputs,)"
    if others := exported.description["outputs"][1:]:
        outputs = ", ".join(["outputs", *others])
    return text.format(file=exported.path.name, inputs=f"{{{', '.join(parts)}}}", outputs=outputs)


SCHEMA_VERSION = 1
_OF_RECORD = (
    "run_id",
    "name",
    "best",
    "status",
    "metrics",
    "choices",
    "overrides",
    "seed",
    "fingerprint",
    "data_sha256",
    "started",
)
_PACKAGES = ("assay", "torch", "torchvision", "lightning", "numpy")


@final
@dataclass(frozen=True)
class Agreement:
    """How an exported file and the original compare over samples.

    Attributes:
        num_samples: How many were compared.
        largest_difference: Of any output.
        tolerance: What it may be.
        relative_difference: The largest one of probabilities above 1e-30; null for other outputs.
    """

    num_samples: int
    largest_difference: float
    tolerance: float
    relative_difference: float | None = None


@final
@dataclass(frozen=True)
class Exported:
    """What an export came to.

    Attributes:
        path: The file.
        card: Its model card.
        description: As in the file's metadata.
        size: Bytes of the file.
        agreement: With the original; see `assay_serve.export.model_card`. None of weights alone.
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
    file_format = "safetensors"
    kind = "raw"
    outputs = ["outputs"]
    steps = []
    if raw is not None:
        file_format = "onnx"
        kind = original.kind
        outputs = list(original.output_names)
        if original.encoder is not None:
            steps.append("imputation and encoding of columns")
        if inside:
            names = (type(transform).__name__ for transform in original.transforms.transforms)
            steps.append(", ".join(names))
        if original.normalize.mean:
            steps.append("normalisation")
        if spec.get("target_mean"):
            steps.append("the target's own unit")
        elif kind == "probabilities":
            steps.append("probabilities")
        elif kind == "embeddings":
            steps.append("embeddings as the loss compares them")
    return {
        "schema_version": SCHEMA_VERSION,
        "format": file_format,
        "task": spec.get("task", ""),
        "one_of_classes": original.task is not None and original.task.by_class,
        "names": list(original.predictor.names),
        "inputs": _inputs(original, raw, inside=inside),
        "output": {"name": outputs[0], "kind": kind},
        "outputs": outputs,
        "threshold": dict(original.predictor.about_threshold),
        "inside": [step for step in steps if step],
        "preprocessing": {
            key: list(spec.get(key) or ()) for key in ("mean", "std", "target_mean", "target_std")
        },
        "run": {
            **{name: getattr(record, name) for name in _OF_RECORD},
            "members": [path.name for path in original.members],
            "checkpoint": original.checkpoint,
            "monitor": f"{record.best.get('monitor', '')} {record.best.get('value', '')}".strip(),
            "command": command("train", *record.overrides, config_dir=record.config_dir),
            "git_commit": (record.git or {}).get("commit", ""),
            "packages": {
                name: record.packages[name] for name in _PACKAGES if name in record.packages
            },
        },
    }


def _inputs(original: Original, raw: Any, *, inside: bool) -> list[dict[str, Any]]:
    spec = original.spec
    texts = original.texts
    if raw is None:
        shape = list(spec.get("input_shape") or ())
        dtype = "float32"
        if spec.get("vocab_size"):
            dtype = spec["input_dtype"]
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


def describe_columns(columns: Sequence[Column], na_values: Sequence[str]) -> list[dict[str, Any]]:
    """Inputs of a file that takes rows of a table."""
    entries: dict[str, list[dict[str, Any]]] = {"numbers": [], "categories": []}
    for column in columns:
        inputs = "categories" if isinstance(column, Category) else "numbers"
        entries[inputs] += column.describe(na_values)
    types = {"numbers": "float64", "categories": "string"}
    return [
        {"name": name, "dtype": types[name], "shape": ["batch", len(some)], "columns": some}
        for name, some in entries.items()
        if some
    ]
