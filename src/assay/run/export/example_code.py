"""Python that runs an exported file, for its model card: it makes inputs and prints what the file says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from assay.data.tabular.table_chunks import text_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.run.export.description import Exported
    from assay.run.export.original import Original

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
    """The lines that run the file.

    Args:
        exported: The file.
        original: The run that it came from.
    """
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
    """Python that reads the file, makes inputs and prints what it says of them.

    Args:
        description: Of the file.
        file_name: In the current directory.
        pictures: `RGB` or `L` where inputs are pictures, for Pillow.
        csv: Arguments that read a table as the run does.
    """
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
