"""`MODEL_CARD.md`: what an exported model takes and gives, how good it is, and code that runs it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from omegaconf import OmegaConf

from assay.analysis.objective import described_metric, format_score
from assay.data.tabular.table_file import text_columns
from assay.quoting import counted, number_text
from assay.terminal import escape_markdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.run.export.description import Exported
    from assay.run.export.exportable import Original

MARK: Final = "<!-- Written by assay export, which replaces it. -->"
_MOST_CLASSES: Final = 100


def model_card(exported: Exported, original: Original) -> str:
    """The card, in Markdown."""
    about = exported.description
    run = about["run"]
    words = "a custom task" if original.task is None else original.task.in_words(original.spec)
    model = escape_markdown(run["choices"].get("model") or "a custom model")
    rounded = ", rounded to 8-bit integers" if exported.quantized else ""
    parameters = original.record.model.get("parameters")
    sections = [
        f"{MARK}\n# {escape_markdown(run['name'])}: {model}",
        f"A {escape_markdown(about['task'] or 'trained')} model ({words}"
        f"{f', {parameters:,} parameters' if parameters else ''}), "
        f"`{exported.path.name}` in {about['format']} format{rounded}. Exported by assay from run "
        f"{escape_markdown(run['run_id'])}, {run['checkpoint']} checkpoint.",
        "## Inputs and outputs\n\n" + "\n".join(_interface(about, original)),
        f"## How to run it\n\n```python\n{example_code(exported, original)}```",
        "## Scores\n\n" + "\n".join(_scores(exported, original)),
        "## Training data\n\n" + "\n".join(_data(original)),
        "## Limits\n\n" + "\n".join(f"- {one}" for one in _limits(exported, original)),
        "## Provenance\n\n" + _table(("", ""), _provenance(run)),
    ]
    return "\n\n".join(sections) + "\n"


def _interface(about: dict[str, Any], original: Original) -> Iterable[str]:
    for one in about["inputs"]:
        shape, values = ", ".join(map(str, one["shape"])), ""
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
            missing = [column["missing"] for column in one["columns"]]
            rows = [
                (column["name"], column["kind"], "not allowed: NaN comes out" if fill is None else fill)
                for column, fill in zip(one["columns"], missing, strict=True)
            ]
            yield f"\nColumns of `{one['name']}`, in this order:\n"
            yield _table(("column", "kind", "a missing value counts as"), rows)


def _output(about: dict[str, Any], original: Original) -> str:
    names = ", ".join(map(escape_markdown, about["names"][:_MOST_CLASSES]))
    names += ", …" if len(about["names"]) > _MOST_CLASSES else ""
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


def _scores(exported: Exported, original: Original) -> Iterable[str]:
    names = exported.description["names"]

    def in_words(name: str) -> str:
        node: Any = OmegaConf.select(original.config, f"metrics.eval.metrics.{name.removeprefix('test/')}")
        target, average = (str((node or {}).get(key) or "") for key in ("_target_", "average"))
        return described_metric(name, target, average, str(names[1]) if len(names) == 2 else "class 1")

    run = exported.description["run"]
    tested = "best" if run["best"] else "last"  # whose weights a run tests in its end
    of_test = {name: value for name, value in run["metrics"].items() if name.startswith("test/")}
    if run["checkpoint"] != tested:
        yield f"The run's test scores are of its {tested} checkpoint, not of this file."
    elif of_test:
        yield _table(("score", ""), [(in_words(name), format_score(name, of_test[name])) for name in of_test])
    else:
        yield "The run has no test scores."
    yield f"\nThe file was compared with the original: {agreement_in_words(exported)}."


def agreement_in_words(exported: Exported) -> str:
    """The result of the comparison with the original."""
    agreement = exported.agreement
    where = f"{exported.subset} samples" if exported.subset else "made-up samples"
    taken = "" if agreement.tolerance is None else f" (up to {agreement.tolerance:.1g} is taken)"
    words = [f"{agreement.num_samples:,} {where}"]
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
        ordered = sorted(zip(names, counts, strict=True), key=lambda one: -one[1])[:_MOST_CLASSES]
        yield "\n" + _table(("class", "training samples"), [(name, f"{count:,}") for name, count in ordered])


def _limits(exported: Exported, original: Original) -> Iterable[str]:
    about, spec = exported.description, original.spec
    yield "It was trained and tested on the data above alone; of data that differs, nothing is known."
    if about["output"]["kind"] == "probabilities":
        if about["one_of_classes"]:
            yield "It names one of its classes for any input; it does not say that it knows none."
        yield "Its probabilities have not been checked for calibration."
    counts = spec.get("class_counts") or ()
    if counts and min(counts) * 10 <= max(counts):
        rarest = spec["class_names"][list(counts).index(min(counts))]
        yield (
            f"The classes are imbalanced: {escape_markdown(rarest)} has "
            f"{counted(min(counts), 'training sample')}, the most frequent class {max(counts):,}."
        )
    if spec and spec["num_test"] < 100:
        yield f"There were {counted(spec['num_test'], 'test sample')}: the scores are rough."
    yield from map(escape_markdown, exported.notes)


def _provenance(run: dict[str, Any]) -> list[tuple[str, str]]:
    best = run["best"]
    rows = {
        "run": run["run_id"],
        "started": run["started"],
        "command": shlex.join(["assay", "train", *run["overrides"]]),
        "checkpoint": f"{run['checkpoint']}, {best.get('monitor', '')} {best.get('value', '')}",
        "seed": str(run["seed"]),
        "fingerprint of the config": run["fingerprint"],
        "SHA-256 of the data": run["data_sha256"],
        "git commit": run["git_commit"],
        "packages": ", ".join(f"{name} {version}" for name, version in run["packages"].items()),
    }
    return [(name, value) for name, value in rows.items() if value]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([escape_markdown(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_ONNX = """\
session = onnxruntime.InferenceSession({file!r})
about = json.loads(session.get_modelmeta().custom_metadata_map["assay"])
"""
_TORCH = """\
extra = {{"assay.json": ""}}
model = torch.export.load({file!r}, extra_files=extra).module()
about = json.loads(extra["assay.json"])
"""
_WEIGHTS = """\
import assay
from safetensors.torch import load_model

model = assay.load("RUN", raw_input=False)  # or any model of the same architecture
load_model(model, {file!r})
model.eval()  # takes inputs that are encoded, transformed and normalised already
"""
_TABLE = """\
rows = pd.read_csv("NEW_ROWS.csv"{csv})
inputs = {{}}
for one in about["inputs"]:
    columns, values = one["columns"], []
    for column in columns:
        if column["kind"] == "date":
            form = column["format"]
            options = {{"unit": form}} if form in ("s", "ms") else {{"format": form}}
            dates = pd.to_datetime(rows[column["date"]], utc=True, **options).dt.tz_localize(None)
            days = (dates - pd.Timestamp(column["start"])) / pd.Timedelta(days=1)
            values.append(days if column["part"] == "elapsed" else getattr(dates.dt, column["part"]))
        elif column["kind"] == "number":
            values.append(rows[column["name"]].astype("Float64"))
        else:
            texts = rows[column["name"]].astype("string").fillna("")
            if one["name"] == "words":
                texts = HashingVectorizer(n_features=column["size"]).transform(texts).toarray()
            elif one["name"] == "codes":
                texts = [column["codes"].get(text, column["unknown_code"]) for text in texts]
            values.append(texts)
    if one["name"] == "numbers":
        values = [value.to_numpy("float32", na_value=np.nan) for value in values]
    dtype = object if one["dtype"] == "string" else one["dtype"]
    inputs[one["name"]] = np.column_stack(values).astype(dtype)
"""
_TOKENS = """\
tokens = about["inputs"][0]["tokens"]
tokenizer = Tokenizer.from_file(tokens["tokenizer"])
tokenizer.enable_truncation(tokens["max_length"])
tokenizer.enable_padding(pad_id=tokens["padding"])
texts = ["put your texts here"]
inputs = {"inputs": np.array([found.ids for found in tokenizer.encode_batch(texts)], "int64")}
"""
_RUN = {
    "onnx": "outputs = session.run(None, inputs)[0]\n",
    "torch_export": "outputs = model(*map(torch.from_numpy, inputs.values())).detach().numpy()\n",
}


def example_code(exported: Exported, original: Original) -> str:
    """Python that opens the file, makes inputs and prints the outputs."""
    about, file = exported.description, exported.path.name
    if about["format"] == "safetensors":
        return _WEIGHTS.format(file=file)
    is_onnx, first = about["format"] == "onnx", about["inputs"][0]
    modules = ["json\n", "numpy as np", "onnxruntime" if is_onnx else "torch"]
    extra, prepare = "", ""
    if "columns" in first:
        modules.insert(3 if is_onnx else 2, "pandas as pd")
        if about["inputs"][-1]["name"] == "words":
            extra = "from sklearn.feature_extraction.text import HashingVectorizer\n"
        prepare = _TABLE.format(csv=_csv_arguments(original))
    elif "tokens" in first:
        extra, prepare = "from tokenizers import Tokenizer\n", _TOKENS
    else:
        mode = {"RGB": "RGB", "GRAY": "L"}.get(str(OmegaConf.select(original.config, "data.source.mode")), "")
        is_picture = bool(mode) and not original.own_data and first["dtype"] == "uint8"
        extra = "from PIL import Image\n" if is_picture else ""
        prepare = _array_code(first, mode if is_picture else "")
    imports = "".join(f"import {name}\n" for name in modules)
    opening = (_ONNX if is_onnx else _TORCH).format(file=file)
    show = "print(outputs)\n"
    if about["output"]["kind"] == "probabilities" and about["names"]:
        chosen = '[name for name, share in zip(about["names"], row) if share > 0.5]'
        if about["one_of_classes"]:
            chosen = 'about["names"][row.argmax()], row.max()'
        show = f"for row in outputs:\n    print({chosen})\n"
    return f"{imports}{extra}\n{opening}{prepare}{_RUN[about['format']]}{show}"


def _csv_arguments(original: Original) -> str:
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


def _array_code(described: dict[str, Any], mode: str) -> str:
    """Code that makes an array, of a picture in a mode of Pillow where there is one."""
    channels, *size = described["shape"][1:]
    if mode:
        fixed = isinstance(size[0], int)
        resize = f"picture = picture.resize({(size[1], size[0])})\n" if fixed else ""
        turned = "np.asarray(picture).transpose(2, 0, 1)" if channels == 3 else "np.asarray(picture)[None]"
        return (
            f'picture = Image.open("PICTURE.png").convert({mode!r})\n{resize}'
            f'inputs = {{"inputs": np.ascontiguousarray({turned}[None])}}\n'
        )
    sizes = ", ".join(str(size) if isinstance(size, int) else "64" for size in described["shape"][1:])
    return f'inputs = {{"inputs": np.zeros((1, {sizes}), {described["dtype"]!r})}}  # put yours here\n'
