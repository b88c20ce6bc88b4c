"""`MODEL_CARD.md`: what an exported model takes and gives, how good it is, and code that runs it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from omegaconf import OmegaConf

from assay.analysis.objective import described_metric, format_score
from assay.data.tabular.table_rows import text_columns
from assay.errors import AssayError
from assay.quoting import counted, number_text
from assay.record import predictions_file
from assay.terminal import escape_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.run.export.description import Exported
    from assay.run.export.exportable import Original


_READ = 'rows = pd.read_csv("NEW_ROWS.csv"%s)\n'
_TABLE = """\
columns = {one["name"]: [column["name"] for column in one["columns"]] for one in about["inputs"]}
"""
_DATES = """\
for column in about["inputs"][0]["columns"]:
    if column["kind"] == "date":
        form, unit = (None, column["format"]) if column["format"] in ("s", "ms") else (column["format"], None)
        written = rows[column["date"]] if unit else rows[column["date"]].astype("string").astype(object)
        dates = pd.to_datetime(written, format=form, unit=unit, utc=True).dt.tz_localize(None)
        elapsed = (dates - pd.Timestamp(column["start"])) / pd.Timedelta(days=1)
        rows[column["name"]] = elapsed if column["part"] == "elapsed" else getattr(dates.dt, column["part"])
"""
_DAYS = """\
for column in about["inputs"][0]["columns"]:
    if column["kind"] != "number":  # dates are days since 1970
        dates = pd.to_datetime(rows[column["name"]], utc=True)
        rows[column["name"]] = (dates - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1)
"""
_NUMBERS = """\
inputs["numbers"] = rows[columns["numbers"]].astype("Float64").to_numpy("float32", na_value=np.nan)
"""
_TEXTS = """\
inputs["categories"] = rows[columns["categories"]].astype("string").fillna("").to_numpy(object)
"""
_TOKENS = """\
tokens = about["inputs"][0]["tokens"]
tokenizer = Tokenizer.from_file(tokens["tokenizer"])
tokenizer.enable_truncation(tokens["max_length"])
tokenizer.enable_padding(pad_id=tokens["padding"])
texts = ["put your texts here"]
inputs = {"inputs": np.array([found.ids for found in tokenizer.encode_batch(texts)], "int64")}
"""
_WORDS = """\
inputs["words"] = np.column_stack(
    [
        HashingVectorizer(n_features=column["size"]).transform(rows[column["name"]].fillna("")).toarray()
        for column in about["inputs"][-1]["columns"]
    ]
).astype("float32")
"""
_CODES = """\
texts = rows[columns["codes"]].astype("string").fillna("")
inputs["codes"] = np.column_stack(
    [
        [column["codes"].get(text, column["unknown_code"]) for text in texts[column["name"]]]
        for column in next(one for one in about["inputs"] if one["name"] == "codes")["columns"]
    ]
).astype("int64")
"""


def code_of(exported: Exported, original: Original) -> str:
    """The lines that run the file."""
    mode = OmegaConf.select(original.config, "data.source.mode", default="") if not original.own_data else ""
    pictures = {"RGB": "RGB", "GRAY": "L"}.get(str(mode), "")
    return _how_to_run(exported.description, exported.path.name, pictures=pictures, csv=_csv(original))


def _csv(original: Original) -> str:
    """How the run reads a CSV file, as further arguments of `pandas.read_csv`."""
    preprocess, encoder = original.predictor.preprocess, original.encoder
    if preprocess is None or encoder is None:
        return ""
    options = {**preprocess.file_options, **encoder.csv}
    given = {
        "sep": options.get("separator", ",").replace(",", ""),
        "decimal": options["decimal"].replace(".", ""),
        "encoding": options.get("encoding", "utf-8").replace("utf-8", ""),
        "na_values": list(options.get("na_values", ())),
        "dtype": dict.fromkeys(text_columns(encoder), "str"),
    }
    return "".join(f", {name}={value!r}" for name, value in given.items() if value)


def _how_to_run(description: Mapping[str, Any], file_name: str, *, pictures: str = "", csv: str = "") -> str:
    """Python that reads the file, makes inputs and prints what it says of them."""
    if description["format"] == "safetensors":
        return _weights(file_name)
    onnx, inputs = description["format"] == "onnx", description["inputs"]
    is_table = "columns" in inputs[0]
    imports = ["import json", "", "import numpy as np"]
    imports += ["import onnxruntime"] if onnx else []
    imports += ["import pandas as pd"] if is_table else []
    imports += [] if onnx else ["import torch"]
    imports += ["from PIL import Image"] if pictures else []
    imports += ["from tokenizers import Tokenizer"] if "tokens" in inputs[0] else []
    words = any(one["name"] == "words" for one in inputs)
    imports += ["from sklearn.feature_extraction.text import HashingVectorizer"] if words else []
    lines = [*sorted(imports[2:], key=lambda one: one.startswith("from"))]
    code = "\n".join([*imports[:2], *lines, "", _open(file_name, onnx=onnx)]) + "\n"
    if "tokens" in inputs[0]:
        code += _TOKENS
    else:
        code += _of_table(inputs, csv) if is_table else _of_arrays(inputs[0], pictures)
    if onnx:
        code += "outputs = session.run(None, inputs)[0]\n"
    else:
        code += (
            "outputs = model(*(torch.from_numpy(values) for values in inputs.values())).detach().numpy()\n"
        )
    return code + _said(description)


def _open(file_name: str, *, onnx: bool) -> str:
    if onnx:
        return (
            f"session = onnxruntime.InferenceSession({file_name!r})\n"
            'about = json.loads(session.get_modelmeta().custom_metadata_map["assay"])'
        )
    return (
        'extra = {"assay.json": ""}\n'
        f"model = torch.export.load({file_name!r}, extra_files=extra).module()\n"
        'about = json.loads(extra["assay.json"])'
    )


def _of_table(inputs: list[dict[str, Any]], csv: str) -> str:
    code, names = _READ % csv + _TABLE + "inputs = {}\n", [one["name"] for one in inputs]
    if "numbers" in names:
        kinds = {column["kind"] for column in inputs[0]["columns"]}
        code += _DATES if "date" in kinds else _DAYS if len(kinds) > 1 or "number" not in kinds else ""
        code += _NUMBERS
    code += _TEXTS if "categories" in names else _CODES if "codes" in names else ""
    return code + (_WORDS if "words" in names else "")


def _of_arrays(described: dict[str, Any], pictures: str) -> str:
    name, dtype, shape = described["name"], described["dtype"], described["shape"][1:]
    if pictures and dtype == "uint8":
        code = f'picture = Image.open("PICTURE.png").convert({pictures!r})\n'
        if isinstance(shape[-1], int):
            code += f"picture = picture.resize({(shape[2], shape[1])})\n"
        turned = "np.asarray(picture).transpose(2, 0, 1)" if shape[0] == 3 else "np.asarray(picture)[None]"
        return code + f"inputs = {{{name!r}: np.ascontiguousarray({turned}[None])}}\n"
    sizes = ", ".join(str(size) if isinstance(size, int) else "64" for size in shape)
    what = "of 0 to 255" if dtype == "uint8" else "as the training data had them"
    return f"inputs = {{{name!r}: np.zeros((1, {sizes}), {dtype!r})}}  # put yours here: {what}\n"


def _said(description: Mapping[str, Any]) -> str:
    names, kind = description["names"], description["output"]["kind"]
    if kind != "probabilities" or not names:
        return "print(outputs)\n"
    if not description["one_of_classes"]:
        return (
            "for row in outputs:\n"
            '    print([name for name, share in zip(about["names"], row) if share > 0.5])\n'
        )
    return 'for row in outputs:\n    print(about["names"][row.argmax()], row.max())\n'


def _weights(file_name: str) -> str:
    return (
        "import assay\n"
        "from safetensors.torch import load_model\n\n"
        f'model = assay.load("RUN", raw_input=False)  # or any model of the same architecture\n'
        f"load_model(model, {file_name!r})\n"
        "model.eval()  # takes inputs that are encoded, transformed and normalised already\n"
    )


MARK: Final = "<!-- Written by assay export, which replaces it. -->"
_MOST_CLASSES: Final = 100
_WEAKEST: Final = 5


def model_card(exported: Exported, original: Original) -> str:
    """The card, in Markdown."""
    about = exported.description
    run = about["run"]
    words = "a task of its own" if original.task is None else original.task.in_words(original.spec)
    model = escape_markdown(run["choices"].get("model") or "a model of its own")
    title = f"{escape_markdown(run['name'])}: {model}"
    rounded = ", rounded to 8-bit integers" if exported.quantized else ""
    parameters = original.record.model.get("parameters")
    sections = [
        f"{MARK}\n# {title}",
        f"A {escape_markdown(about['task'] or 'trained')} model ({words}"
        f"{f', {parameters:,} parameters' if parameters else ''}), "
        f"`{exported.path.name}` in {about['format']} format{rounded}. Exported by assay from run "
        f"{escape_markdown(run['run_id'])}, {run['checkpoint']} checkpoint.",
        "## What it takes and gives\n\n" + "\n".join(_interface(exported, original)),
        f"## How to run it\n\n```python\n{code_of(exported, original)}```",
        "## Scores\n\n" + "\n".join(_scores(exported, original)),
        "## Training data\n\n" + "\n".join(_data(original)),
        "## Limits\n\n" + "\n".join(f"- {one}" for one in _limits(exported, original)),
        "## Where it came from\n\n" + _table(("", ""), _provenance(exported)),
    ]
    return "\n\n".join(sections) + "\n"


def _interface(exported: Exported, original: Original) -> Iterable[str]:
    about = exported.description
    for one in about["inputs"]:
        shape = ", ".join(map(str, one["shape"]))
        values = ""
        if "range" in one:
            values = f", from {one['range'][0]} to {one['range'][1]}"
        elif "range_seen" in one:
            low, high = map(number_text, one["range_seen"])
            values = f", from {low} to {high} in the samples checked"
        if tokens := one.get("tokens"):
            values = (
                f", token ids that `{tokens['tokenizer']}` beside the file makes of texts, from 0 (padding "
                f"at the end) to {tokens['vocab_size'] - 1}; at most {tokens['max_length']} of a text"
            )
        prepared = ", encoded, transformed and normalised already" if one.get("prepared") else ""
        yield f"- Input `{one['name']}`: {one['dtype']} [{shape}]{values}{prepared}."
    yield f"- Output `{about['output']['name']}`: {_output(about, original)}."
    if about["inside"]:
        yield f"- The file does on its own: {'; '.join(map(escape_markdown, about['inside']))}."
    for one in about["inputs"]:
        if "columns" in one:
            rows = [
                (
                    column["name"],
                    f"{len(column['categories']):,} categories"
                    if column["kind"] == "category"
                    else column["kind"],
                    "not allowed: NaN comes out" if column["missing"] is None else column["missing"],
                )
                for column in one["columns"]
            ]
            yield f"\nColumns of `{one['name']}`, in this order:\n"
            yield _table(("column", "kind", "a missing value counts as"), rows)


def _output(about: dict[str, Any], original: Original) -> str:
    names = ", ".join(map(escape_markdown, about["names"][:_MOST_CLASSES]))
    names += ", …" if len(about["names"]) > _MOST_CLASSES else ""
    what = "class" if about["one_of_classes"] else "label"
    if original.codec is not None:
        return (
            f"logits [batch, length, {int(original.spec['vocab_size'])}] of the token that follows each; the "
            "tokenizer beside the file says what text each token stands for, and texts begin after token 0"
        )
    return {
        "probabilities": f"the probability of each {what} ({names})",
        "values": f"the predicted values ({names}), in the target's own unit",
        "embeddings": "a vector per sample; samples of one class lie together",
        "reconstructions": "for each sample the error, the latent vector, and then the reconstruction as one "
        "row, in the inputs' own unit",
        "scores": "what the model returns: its loss does not say what probabilities are",
        "raw": "what the bare model returns" + (" (logits)" if original.kind == "probabilities" else ""),
    }[about["output"]["kind"]]


def _scores(exported: Exported, original: Original) -> Iterable[str]:
    names = exported.description["names"]

    def in_words(name: str) -> str:
        node: Any = OmegaConf.select(original.config, f"metrics.eval.metrics.{name.removeprefix('test/')}")
        target, average = (str((node or {}).get(key) or "") for key in ("_target_", "average"))
        return described_metric(name, target, average, str(names[1]) if len(names) == 2 else "class 1")

    run = exported.description["run"]
    tested = "best" if run["best"] else "last"  # whose weights a run tests in its end
    of_test = {name: value for name, value in run["metrics"].items() if name.startswith("test/")}
    if of_test and run["checkpoint"] == tested:
        yield _table(("score", ""), [(in_words(name), format_score(name, of_test[name])) for name in of_test])
    elif run["checkpoint"] != tested:
        yield f"The run's test scores are of its {tested} checkpoint, not of this file."
    else:
        yield "The run has no test scores."
    yield f"\nThe file was compared with the original: {agreement_in_words(exported)}."


def agreement_in_words(exported: Exported) -> str:
    """What the comparison with the original came to."""
    agreement, words = exported.agreement, []
    where = f"{exported.subset} samples" if exported.subset else "made-up samples"
    words.append(f"{agreement.num_samples:,} {where}")
    taken = "" if agreement.tolerance is None else f" (up to {agreement.tolerance:.1g} is taken)"
    words.append(f"largest difference {agreement.largest_difference:.2g}{taken}")
    if agreement.same_labels is not None:
        words.append(f"{100 * agreement.same_labels:.6g} % of labels agree")
    if agreement.accuracy is not None and agreement.exported_accuracy is not None:
        before = f" (original {100 * agreement.accuracy:.2f} %)" if exported.quantized else ""
        words.append(f"accuracy {100 * agreement.exported_accuracy:.2f} %{before}")
    if agreement.error is not None and agreement.exported_error is not None:
        before = f" (original {number_text(agreement.error)})" if exported.quantized else ""
        words.append(f"root mean squared error {number_text(agreement.exported_error)}{before}")
    return ", ".join(words)


def _data(original: Original) -> Iterable[str]:
    spec = original.spec
    if not spec:
        yield "Its datamodule does not describe it."
        return
    yield (
        f"`data={escape_markdown(original.record.choices.get('data'))}`: {spec['num_train']:,} training, "
        f"{spec['num_val']:,} validation and {spec['num_test']:,} test samples."
    )
    names, counts = spec["class_names"], spec["class_counts"]
    if names and len(names) == len(counts):
        ordered = sorted(zip(names, counts, strict=True), key=lambda one: -one[1])
        shown = [(name, f"{count:,}") for name, count in ordered[:_MOST_CLASSES]]
        rest = len(ordered) - len(shown)
        yield ""
        yield _table(("class", "training samples"), [*shown, *([(f"… {rest:,} more", "")] if rest else [])])


def _limits(exported: Exported, original: Original) -> Iterable[str]:
    about, spec = exported.description, original.spec
    yield "It was trained and tested on the data above alone; of data that differs, nothing is known."
    if about["one_of_classes"] and about["output"]["kind"] == "probabilities":
        yield "Whatever it is given, it names one of its classes; it does not say that it knows none."
    counts = spec.get("class_counts") or ()
    if counts and min(counts) * 10 <= max(counts):
        rarest = spec["class_names"][list(counts).index(min(counts))]
        yield (
            f"The classes are imbalanced: {escape_markdown(rarest)} has "
            f"{counted(min(counts), 'training sample')}, the most frequent class {max(counts):,}."
        )
    yield from _weak_classes(original)
    if spec and spec["num_test"] < 100:
        yield f"There were {counted(spec['num_test'], 'test sample')}: the scores are rough."
    if about["output"]["kind"] == "probabilities":
        yield "Whether its probabilities are calibrated was not looked at."
    for one in about["inputs"]:
        for column in one.get("columns", ()):
            if column["kind"] == "category":
                name = escape_markdown(column["name"])
                yield f"A category of {name} that training lacked {column['unknown']}."
    yield from map(escape_markdown, exported.notes)


def _weak_classes(original: Original) -> Iterable[str]:
    """The classes that the run's own test found least of, where it has kept its predictions."""
    path = original.run_dir / predictions_file.FILE
    if original.task is None or not original.task.by_class or original.checkpoint != "best":
        return
    try:
        kept = predictions_file.read(path)
    except AssayError:
        yield "The run has kept no predictions: which classes it is weak at is not known."
        return
    targets, names = kept.targets, kept.class_names
    if targets is None or kept.outputs.shape[1] != len(names):
        return
    right = kept.outputs.argmax(1) == targets
    found = [(float(right[targets == at].mean()), at) for at in range(len(names)) if (targets == at).any()]
    weakest = ", ".join(
        f"{escape_markdown(names[at])} ({100 * recall:.0f} % of {int((targets == at).sum()):,})"
        for recall, at in sorted(found)[:_WEAKEST]
        if recall < 1
    )
    if weakest:
        yield f"Of the run's test samples it finds these classes least often: {weakest}."


def _provenance(exported: Exported) -> Sequence[tuple[str, str]]:
    run = exported.description["run"]
    command = " ".join(["assay train", *map(shlex.quote, run["overrides"])])
    best = run["best"]
    rows = [
        ("run", run["run_id"]),
        ("started", run["started"]),
        ("command", command),
        ("checkpoint", f"{run['checkpoint']}, {best.get('monitor', '')} {best.get('value', '')}"),
        ("seed", str(run["seed"])),
        ("fingerprint of the config", run["fingerprint"]),
        ("SHA-256 of the data", run["data_sha256"]),
        ("git commit", run["git_commit"]),
        ("packages", ", ".join(f"{name} {version}" for name, version in run["packages"].items())),
    ]
    return [(name, value) for name, value in rows if value]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
