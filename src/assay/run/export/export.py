"""From a run to a file that runs without assay, checked before it gets its name."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import torch

from assay.errors import AssayError, ConfigError, first_line
from assay.files.atomic import sync_directory, temporary_folder
from assay.run.encoder_file import TOKENIZER_FILE, write_tokenizer
from assay.run.export.agreement import compare, original_outputs, prepared, read_samples, targets_of
from assay.run.export.exportable import Original, quiet, text_codes, trace, unknown_code
from assay.run.export.model_card import MARK, Exported, describe, model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn
    from torch.export import ExportedProgram

    from assay.data.tabular.table_encoder import Column
    from assay.run.export.agreement import Agreement, CheckSamples

    _Run = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]

Format = Literal["onnx", "safetensors"]
SUFFIXES: Final[Mapping[str, str]] = {"onnx": ".onnx", "safetensors": ".safetensors"}
CARD: Final = "MODEL_CARD.md"
_NEEDS: Final = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "safetensors": ("safetensors",)}
_IN_ONE_FILE: Final = 1_500_000_000
"""Bytes of weights; protobuf, in which the graph is written, ends at 2 GiB."""


def export(
    run_dir: Path,
    file_format: Format = "onnx",
    *,
    out: Path | None = None,
    checkpoint: Literal["best", "last"] = "best",
    trusted_packages: Sequence[str] = (),
) -> Exported:
    """Export a run's model with what its data does to raw input."""
    _check_format(file_format)
    path = _target(run_dir, file_format, out)
    card = path.with_name(CARD)
    _check_replaced(path, card)
    original = Original(run_dir, checkpoint, trusted_packages)
    if original.texts is not None:
        _check_replaced(path.with_name(TOKENIZER_FILE), card)
    samples = read_samples(original)
    with _staging(path.parent) as folder:
        inside, agreement, notes = _write_checked(original, samples, folder / path.name, file_format)
        if original.texts is not None:
            write_tokenizer(folder, original.texts.tokenizer)
        size = sum(one.stat().st_size for one in folder.iterdir())
        widened = ", ".join(
            sorted(str(one).removeprefix("torch.") for one in original.dtypes - {torch.float32})
        )
        notes += [samples.note] if samples.note else []
        notes += [f"the weights are {widened} in the checkpoint and float32 in the file"] if widened else []
        notes += original.predictor.notes
        about = describe(original, samples, file_format=file_format, inside=inside)
        exported = Exported(path, card, about, size, agreement, samples.subset, tuple(notes))
        (folder / CARD).write_text(model_card(exported, original), encoding="utf-8")
        if original.codec is not None:  # `tokenizers` reads that of byte pairs
            tokenizer = folder / path.with_suffix(".tokenizer.json").name
            tokenizer.write_text(original.codec.to_json(), encoding="utf-8")
        _move(folder, path)
    return exported


def _check_format(file_format: str) -> None:
    if file_format not in SUFFIXES:
        raise ConfigError(f"expected one of {', '.join(SUFFIXES)}, got {file_format}", key="--format")
    missing = [name for name in _NEEDS.get(file_format, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise AssayError(
            f"--format {file_format} needs the package {missing[0]}, which is not installed",
            hint="pip install 'assay[export]'",
        )


def _target(run_dir: Path, file_format: str, out: Path | None) -> Path:
    suffix = SUFFIXES[file_format]
    if out is None:
        folder = run_dir / "export" / file_format
        if not folder.resolve().is_relative_to(run_dir.resolve()):
            raise AssayError(f"{folder} leads out of the run by a link", hint="--out FOLDER")
        return folder / f"model{suffix}"
    if out.suffix == suffix and not out.is_dir():
        return out
    if not out.is_dir() and (out.exists() or out.suffix in SUFFIXES.values()):
        raise ConfigError(f"expected a folder or a file that ends in {suffix}, got {out}", key="--out")
    return out / f"model{suffix}"


def _check_replaced(path: Path, card: Path) -> None:
    """Refuse to replace a card or a file that assay export has not written."""
    written = card.is_file() and card.read_text(encoding="utf-8", errors="replace").startswith(MARK)
    for one in (path, card):
        if one.exists() and not written:
            raise AssayError(
                f"{one} exists and was not written by assay export; refusing to replace it",
                hint="--out another folder, or rename it",
            )


def _write_checked(
    original: Original, samples: CheckSamples, path: Path, file_format: str
) -> tuple[bool, Agreement, list[str]]:
    """Write and compare a file; with the transforms inside, where that is possible and right."""
    notes: list[str] = []
    if file_format != "safetensors" and original.transforms:
        try:
            if not original.takes_any_size and len({raw.shape[1:] for raw in samples.raw}) > 1:
                raise AssayError("samples have several shapes before them")
            _write(original, samples, path, file_format, inside=True)
            return True, _compare(original, samples, path, file_format, inside=True), notes
        except AssayError as error:
            names = ", ".join(type(one).__name__ for one in original.transforms.transforms)
            notes.append(f"the file takes pictures after {names} (data.transform.eval): {error.message}")
    loss = original.predictor.loss
    if file_format == "safetensors" and loss is not None and loss.state_dict():
        learnt = ", ".join(sorted(f"loss.{name}" for name in loss.state_dict()))
        told = f"the file lacks {learnt}, with which the run's loss makes probabilities"
        notes.append(f"{told}; --format onnx has them inside")
    inside = file_format != "safetensors" and not original.transforms
    _write(original, samples, path, file_format, inside=inside)
    return inside, _compare(original, samples, path, file_format, inside=inside), notes


def _write(original: Original, samples: CheckSamples, path: Path, file_format: str, *, inside: bool) -> None:
    metadata = describe(original, samples, file_format=file_format, inside=inside)
    if file_format == "safetensors":
        write_safetensors(path, original.stored, metadata)
        return
    first = prepared(original, samples.raw[0], with_transforms=inside)
    if "categories" in first:  # texts are looked up before the traced model
        codes = np.zeros(first["categories"].shape, np.int64)
        first = {("codes" if one == "categories" else one): first[one] for one in first} | {"codes": codes}
    if original.codec is not None:  # a trace takes the longest text for the only length
        first = {name: values[:, : max(2, values.shape[1] // 2)] for name, values in first.items()}
    # Three samples: a trace takes one sample for a constant.
    example = tuple(torch.from_numpy(np.concatenate([values[:1]] * 3)) for values in first.values())
    program = trace(
        original.exportable(with_transforms=inside),
        example,
        any_size=inside and original.takes_any_size,
        any_length=original.codec is not None,
        longest=0 if original.texts is None else original.texts.max_length,
    )
    columns = () if original.encoder is None else original.encoder.columns
    write_onnx(
        path,
        program,
        names=list(first),
        output=metadata["output"]["name"],
        categories=[column for column in columns if column.kind == "category"],
        metadata=metadata,
    )


def _compare(
    original: Original,
    samples: CheckSamples,
    path: Path,
    file_format: str,
    *,
    inside: bool,
) -> Agreement:
    predictor = original.predictor
    if file_format == "safetensors":
        fresh = copy.deepcopy(original.stored)
        read_safetensors(path, fresh)
        reloaded = copy.copy(predictor)
        reloaded.model = fresh.float()
        exported = original_outputs(original, samples, reloaded)
    else:
        run = open_onnx(path)
        try:
            exported = np.concatenate(
                [run(prepared(original, raw, with_transforms=inside)) for raw in samples.raw]
            )
        except Exception as error:  # whatever the runtime raises
            raise AssayError(f"the file does not run: {type(error).__name__}: {first_line(error)}") from error
    return compare(
        original_outputs(original, samples),
        exported,
        targets_of(original, samples),
        kind=original.kind,
        labels=original.task.labels if original.task is not None else lambda _: None,
        resizes=inside and original.takes_any_size,
    )


@contextmanager
def _staging(parent: Path) -> Iterator[Path]:
    """A folder beside the final place, gone in the end."""
    existing = next(one for one in (parent, *parent.resolve().parents) if one.is_dir())
    try:
        with temporary_folder(existing / "export") as folder:
            yield folder
    except OSError as error:
        raise AssayError(f"{parent} cannot be written: {first_line(error)}") from error


def _move(folder: Path, path: Path) -> None:
    """Give the files their names; the model comes last, so that it is never without its weights and card."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for made in sorted(folder.iterdir(), key=lambda one: one.name == path.name):
        with made.open("rb") as file:
            os.fsync(file.fileno())
        made.replace(path.with_name(made.name))
    sync_directory(path.parent)


def write_onnx(
    path: Path,
    program: ExportedProgram,
    *,
    names: Sequence[str],
    output: str,
    categories: Sequence[Column] = (),
    metadata: Mapping[str, Any],
) -> None:
    """Write a traced model; large weights go into a file `<name>.data` beside it."""
    import onnx

    weights = sum(value.nbytes for value in program.state_dict.values())
    try:
        with quiet(), torch.no_grad():
            exported = torch.onnx.export(
                program, dynamo=True, verbose=False, input_names=list(names), output_names=[output]
            )
            exported.save(str(path), external_data=weights > _IN_ONE_FILE)  # type: ignore[union-attr]  # None without dynamo
    except OSError:
        raise
    except Exception as error:  # torch and onnxscript raise what they like
        raise AssayError(
            f"the model cannot be written as ONNX: {type(error).__name__}: {first_line(error)}",
            hint="--format safetensors keeps the weights alone",
        ) from error
    model = onnx.load(path, load_external_data=False)
    graph = model.graph
    sizes = [dim.dim_param for dim in graph.input[0].type.tensor_type.shape.dim]
    words = ("batch", "length") if len(sizes) == 2 else ("batch", "", "height", "width")
    for value in (*graph.input, *graph.output):  # sizes that may differ get names that say what they are
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = dict(zip(sizes, words, strict=False)).get(dim.dim_param, dim.dim_param)
    if categories:
        model = _with_texts(model, categories)
    for key, value in {"assay": metadata, "names": metadata.get("names", ())}.items():
        model.metadata_props.add(key=key, value=json.dumps(value, ensure_ascii=False))
    onnx.save(model, path)


def _with_texts(model: Any, columns: Sequence[Column]) -> Any:
    """The model behind a graph that turns `categories`, texts `[B, C]`, into the `codes` that it takes."""
    from onnx import TensorProto, compose, helper

    texts, codes = ([f"categories/{what}_{at}" for at in range(len(columns))] for what in ("text", "code"))
    nodes = [helper.make_node("Split", ["categories"], texts, axis=1, num_outputs=len(columns))]
    for column, text, code in zip(columns, texts, codes, strict=True):
        known = text_codes(column)
        node = helper.make_node(
            *("LabelEncoder", [text], [code]),
            domain="ai.onnx.ml",
            keys_strings=list(known),
            values_int64s=list(known.values()),
            default_int64=unknown_code(column),
        )
        nodes.append(node)
    nodes.append(helper.make_node("Concat", codes, ["categories/codes"], axis=1))
    shape = ("batch", len(columns))
    given = helper.make_tensor_value_info("categories", TensorProto.STRING, shape)
    made = helper.make_tensor_value_info("categories/codes", TensorProto.INT64, shape)
    lookup = helper.make_model(
        helper.make_graph(nodes, "categories", [given], [made]),
        opset_imports=[*model.opset_import, helper.make_opsetid("ai.onnx.ml", 2)],
        ir_version=model.ir_version,
    )
    return compose.merge_models(lookup, model, io_map=[("categories/codes", "codes")])


def open_onnx(path: Path) -> _Run:
    """A file as a function of its inputs, on the CPU."""
    import onnxruntime  # type: ignore[import-untyped]  # ships no types

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))[0]


def write_safetensors(path: Path, model: nn.Module, metadata: Mapping[str, Any]) -> None:
    """Write the weights in the type they have."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    text = json.dumps(dict(metadata), ensure_ascii=False)
    try:
        save_model(model, str(path), metadata={"format": "pt", "assay": text})
    except SafetensorError as error:
        raise OSError(first_line(error)) from error


def read_safetensors(path: Path, model: nn.Module) -> None:
    """Load a file's weights into a model; whatever it had is gone before."""
    from safetensors.torch import load_model

    for tensor in model.state_dict().values():
        tensor.zero_()
    load_model(model, str(path), strict=True)
