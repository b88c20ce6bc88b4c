"""From a run to a file that runs without assay, checked before it gets its name."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import io
import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import torch

from assay.errors import AssayError, ConfigError, first_line
from assay.files.atomic import sync_directory, temporary_folder
from assay.run.encoder_file import TOKENIZER_FILE, write_tokenizer
from assay.run.export.agreement import compare, original_outputs, prepared, read_samples, targets_of
from assay.run.export.description import Exported, describe
from assay.run.export.exportable import codes_of, quiet, read_original, text_codes, trace, unknown_code
from assay.run.export.model_card import MARK, model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn
    from torch.export import ExportedProgram

    from assay.data.tabular.table_encoder import Column
    from assay.run.export.agreement import Agreement, CheckSamples
    from assay.run.export.exportable import Original

    _Run = Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]


_IN_ONE_FILE: Final = 1_500_000_000
"""Bytes of weights; protobuf, in which the graph is written, ends at 2 GiB."""


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
    import torch

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
            hint="--format torch_export takes every model that can be traced",
        ) from error
    graph = onnx.load(path, load_external_data=False)
    del graph.graph.value_info[:]  # quantising changes shapes that would stand here
    _name_sizes(graph.graph)
    if categories:
        graph = _with_texts(graph, categories)
    for key, value in {"assay": metadata, "names": metadata.get("names", ())}.items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value, ensure_ascii=False)
    onnx.save(graph, path)


def _name_sizes(graph: Any) -> None:
    """Give the sizes that may differ from call to call names that say what they are."""
    dims = graph.input[0].type.tensor_type.shape.dim
    called = ("batch", "length") if len(dims) == 2 else ("batch", "", "height", "width")
    names = dict(zip([dim.dim_param for dim in dims], called, strict=False))
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names.get(dim.dim_param, dim.dim_param)


def _with_texts(graph: Any, columns: Sequence[Column]) -> Any:
    """The graph behind one that turns `categories`, texts `[B, C]`, into the `codes` that it takes."""
    from onnx import TensorProto, compose, helper

    name, nodes, parts = "categories", [], []
    for position, column in enumerate(columns):
        texts = text_codes(column)
        index = helper.make_tensor("", TensorProto.INT64, [1], [position])
        nodes += [
            helper.make_node("Constant", [], [f"{name}/position_{position}"], value=index),
            helper.make_node(
                "Gather", [name, f"{name}/position_{position}"], [f"{name}/text_{position}"], axis=1
            ),
            helper.make_node(
                "LabelEncoder",
                [f"{name}/text_{position}"],
                [f"{name}/code_{position}"],
                domain="ai.onnx.ml",
                keys_strings=list(texts),
                values_int64s=list(texts.values()),
                default_int64=unknown_code(column),
            ),
        ]
        parts.append(f"{name}/code_{position}")
    nodes.append(helper.make_node("Concat", parts, [f"{name}/codes"], axis=1))
    shape: tuple[str | int, ...] = ("batch", len(columns))
    lookup = helper.make_model(
        helper.make_graph(
            nodes,
            "categories",
            [helper.make_tensor_value_info(name, TensorProto.STRING, shape)],
            [helper.make_tensor_value_info(f"{name}/codes", TensorProto.INT64, shape)],
        ),
        opset_imports=[*graph.opset_import, helper.make_opsetid("ai.onnx.ml", 2)],
        ir_version=graph.ir_version,
    )
    return compose.merge_models(lookup, graph, io_map=[(f"{name}/codes", "codes")])


def quantize(path: Path) -> None:
    """Round a file's weights to 8-bit integers; what goes through them is rounded batch by batch."""
    import onnx
    from onnxruntime.quantization import (  # type: ignore[import-untyped]  # ships no types
        QuantType,
        quantize_dynamic,
    )

    rounded = path.with_name("rounded.onnx")
    try:
        with quiet():
            # onnxruntime convolves unsigned weights only.
            quantize_dynamic(path, rounded, weight_type=QuantType.QUInt8)
    except Exception as error:
        raise AssayError(
            f"the model cannot be quantized: {type(error).__name__}: {first_line(error)}"
        ) from error
    integers = {"MatMulInteger", "ConvInteger", "DynamicQuantizeLSTM", "QGemm"}
    if not integers & {node.op_type for node in onnx.load(rounded, load_external_data=False).graph.node}:
        raise AssayError("the model has no weights that could be rounded", hint="leave out --quantize")
    rounded.replace(path)


def open_onnx(path: Path) -> Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]:
    """A file as a function of its inputs, on the CPU."""
    import onnxruntime  # type: ignore[import-untyped]  # ships no types

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        outputs: NDArray[np.float32] = session.run(None, dict(inputs))[0]
        return outputs

    return run


METADATA: Final = "assay.json"
"""What the description is called among the file's extra files."""


def write_torch_export(path: Path, program: ExportedProgram, metadata: Mapping[str, Any]) -> None:
    """Write a traced model."""
    # Into memory first: where the disk is full, torch's own writer ends the process (SIGABRT).
    content = io.BytesIO()
    with quiet():
        torch.export.save(
            program, content, extra_files={METADATA: json.dumps(dict(metadata), ensure_ascii=False)}
        )
    path.write_bytes(content.getbuffer())


def open_torch_export(path: Path) -> _Run:
    """A file as a function of its inputs, on the CPU."""
    with quiet():
        module = torch.export.load(path).module()

    def run(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        with torch.no_grad():
            outputs: NDArray[np.float32] = module(*map(torch.from_numpy, inputs.values())).numpy()
        return outputs

    return run


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


Format = Literal["onnx", "torch_export", "safetensors"]
SUFFIXES: Final[Mapping[str, str]] = {"onnx": ".onnx", "torch_export": ".pt2", "safetensors": ".safetensors"}
CARD: Final = "MODEL_CARD.md"
TOKENIZER: Final = ".tokenizer.json"
"""Of a language model: `tokenizers` reads that of byte pairs."""
_NEEDS: Final = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "safetensors": ("safetensors",)}


def export(
    run_dir: Path,
    file_format: Format = "onnx",
    *,
    out: Path | None = None,
    checkpoint: Literal["best", "last"] = "best",
    quantize: Literal["int8"] | None = None,
    trusted_packages: Sequence[str] = (),
) -> Exported:
    """Export a run's model with what its data does to raw input."""
    _check_choices(file_format, quantize)
    path = _target(run_dir, file_format, out, quantize)
    if out is None and not path.resolve().is_relative_to(run_dir.resolve()):
        raise AssayError(f"{path.parent} leads out of the run by a link", hint="--out FOLDER")
    _check_replaced(path, path.with_name(CARD))
    original = read_original(run_dir, checkpoint, trusted_packages)
    if original.texts is not None:
        _check_replaced(path.with_name(TOKENIZER_FILE), path.with_name(CARD))
    samples = read_samples(original)
    outputs = original_outputs(original, samples)
    with _unfinished(path.parent) as folder:
        made = folder / path.name
        inside, notes = _write_checked(original, samples, outputs, made, file_format)
        agreement = _compare(original, samples, outputs, made, file_format, inside=inside)
        if quantize:
            agreement = _quantize(original, samples, outputs, made, inside=inside)
        if original.texts is not None:
            write_tokenizer(folder, original.texts.tokenizer)
        size = sum(one.stat().st_size for one in folder.iterdir())
        description = describe(original, samples, file_format=file_format, inside=inside)
        notes = tuple(note for note in (*notes, samples.note, *_notes(original)) if note)
        exported = Exported(
            path, path.with_name(CARD), description, size, agreement, samples.subset, notes, quantize or ""
        )
        (folder / CARD).write_text(model_card(exported, original), encoding="utf-8")
        if original.codec is not None:
            beside = folder / path.with_suffix(TOKENIZER).name
            beside.write_text(original.codec.to_json(), encoding="utf-8")
        _move(folder, path)
    return exported


def _check_choices(file_format: str, quantize: str | None) -> None:
    if file_format not in SUFFIXES:
        raise ConfigError(f"{file_format}: one of {', '.join(SUFFIXES)} was expected", key="--format")
    if quantize not in (None, "int8"):
        raise ConfigError(f"{quantize}: int8 was expected", key="--quantize")
    if quantize and file_format != "onnx":
        raise ConfigError(
            f"int8 is for ONNX files; {file_format} was asked for",
            key="--quantize",
            hint="--format onnx, or leave out --quantize",
        )
    missing = [name for name in _NEEDS.get(file_format, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise AssayError(
            f"--format {file_format} needs the package {missing[0]}, which is not installed",
            hint="pip install 'assay[export]'",
        )


def _target(run_dir: Path, file_format: str, out: Path | None, quantize: str | None) -> Path:
    suffix = SUFFIXES[file_format]
    if out is None:
        return run_dir / "export" / "-".join(filter(None, (file_format, quantize))) / f"model{suffix}"
    if out.suffix == suffix and not out.is_dir():
        return out
    if out.suffix in SUFFIXES.values() and not out.is_dir():
        raise ConfigError(f"{out}: a file of --format {file_format} ends in {suffix}", key="--out")
    if out.exists() and not out.is_dir():
        raise ConfigError(
            f"{out} is a file; one that ends in {suffix}, or a folder, was expected", key="--out"
        )
    return out / f"model{suffix}"


def _check_replaced(path: Path, card: Path) -> None:
    """Refuse to replace a card that somebody has written, and a file without a card of ours."""
    if path.exists() and not card.exists():
        raise AssayError(
            f"{path} is there, without the card that assay export writes beside it: it would be replaced",
            hint="--out another folder, or rename it",
        )
    with suppress(FileNotFoundError, NotADirectoryError):
        if not card.read_text(encoding="utf-8", errors="replace").startswith(MARK):
            raise AssayError(
                f"{card} is there and was not written by assay export: it would be replaced",
                hint="--out another folder, or rename it",
            )


def _notes(original: Original) -> list[str]:
    stored = {one.dtype for one in original.stored.state_dict().values() if one.is_floating_point()}
    widened = ", ".join(sorted(str(one).removeprefix("torch.") for one in stored - {torch.float32}))
    return [
        f"the weights are {widened} in the checkpoint and float32 in the file" if widened else "",
        *original.predictor.notes,
    ]


def _write_checked(
    original: Original, samples: CheckSamples, outputs: NDArray[np.float32], made: Path, file_format: str
) -> tuple[bool, tuple[str, ...]]:
    """Write the file; with the transforms of evaluation inside, where that is possible and right."""
    if file_format == "safetensors":
        _write(original, samples, made, file_format, inside=False)
        loss = original.predictor.loss
        learnt = [] if loss is None else [f"loss.{name}" for name in loss.state_dict()]
        told = f"the file lacks {', '.join(sorted(learnt))}, with which the run's loss makes probabilities"
        return False, (f"{told}; --format onnx has them inside",) if learnt else ()
    if not original.transforms:
        _write(original, samples, made, file_format, inside=True)
        return True, ()
    try:
        if not original.takes_any_size and len({raw.shape[1:] for raw in samples.raw}) > 1:
            raise AssayError("samples have several shapes before them")
        _write(original, samples, made, file_format, inside=True)
        _compare(original, samples, outputs, made, file_format, inside=True)
    except AssayError as error:
        _write(original, samples, made, file_format, inside=False)
        names = ", ".join(type(one).__name__ for one in original.transforms.transforms)
        return False, (f"the file takes pictures after {names} (data.transform.eval): {error.message}",)
    return True, ()


def _write(original: Original, samples: CheckSamples, made: Path, file_format: str, *, inside: bool) -> None:
    metadata = describe(original, samples, file_format=file_format, inside=inside)
    if file_format == "safetensors":
        write_safetensors(made, original.stored, metadata)
        return
    example = tuple(
        map(torch.from_numpy, _numeric(original, _example(original, samples, inside=inside)).values())
    )
    program = trace(
        original.exportable(with_transforms=inside),
        example,
        any_size=inside and original.takes_any_size,
        any_length=original.codec is not None,
        longest=0 if original.texts is None else original.texts.max_length,
    )
    if file_format == "torch_export":
        write_torch_export(made, program, metadata)
        return

    columns = () if original.encoder is None else original.encoder.columns
    write_onnx(
        made,
        program,
        names=[{"categories": "codes"}.get(one["name"], one["name"]) for one in metadata["inputs"]],
        output=metadata["output"]["name"],
        categories=[column for column in columns if column.kind == "category"],
        metadata=metadata,
    )


def _example(original: Original, samples: CheckSamples, *, inside: bool) -> dict[str, NDArray[Any]]:
    """Inputs of three samples: a trace takes one sample for a constant."""
    first = prepared(original, samples.raw[0], with_transforms=inside)
    if original.codec is not None:  # a trace takes the longest text for the only length
        first = {name: values[:, : max(2, values.shape[1] // 2)] for name, values in first.items()}
    return {name: np.concatenate([values[:1]] * 3) for name, values in first.items()}


def _numeric(original: Original, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Inputs of a traced model: codes in place of texts."""
    if original.encoder is None:
        return inputs
    columns = original.encoder.columns
    return {
        ("codes" if name == "categories" else name): codes_of(values, columns)
        if name == "categories"
        else values
        for name, values in inputs.items()
    }


def _compare(
    original: Original,
    samples: CheckSamples,
    outputs: NDArray[np.float32],
    made: Path,
    file_format: str,
    *,
    inside: bool,
    int8: bool = False,
) -> Agreement:
    if file_format == "safetensors":
        exported = _reloaded_outputs(original, samples, made)
    else:
        run = _opened(made, file_format)
        batches = (prepared(original, raw, with_transforms=inside) for raw in samples.raw)
        if file_format == "torch_export":
            batches = (_numeric(original, batch) for batch in batches)
        try:
            exported = np.concatenate([run(batch) for batch in batches])
        except Exception as error:  # whatever the runtime raises
            raise AssayError(f"the file does not run: {type(error).__name__}: {first_line(error)}") from error
    return compare(
        outputs,
        exported,
        targets_of(original, samples),
        kind=original.kind,
        labels=original.task.labels if original.task is not None else lambda _: None,
        int8=int8,
        resizes=inside and original.takes_any_size,
    )


def _opened(made: Path, file_format: str) -> _Run:
    if file_format == "onnx":
        return open_onnx(made)

    return open_torch_export(made)


def _reloaded_outputs(original: Original, samples: CheckSamples, made: Path) -> NDArray[np.float32]:

    fresh = copy.deepcopy(original.stored)
    read_safetensors(made, fresh)
    predictor = copy.copy(original.predictor)
    predictor.model = fresh.float()
    return original_outputs(dataclasses.replace(original, predictor=predictor), samples)


def _quantize(
    original: Original, samples: CheckSamples, outputs: NDArray[np.float32], made: Path, *, inside: bool
) -> Agreement:

    quantize(made)
    return _compare(original, samples, outputs, made, "onnx", inside=inside, int8=True)


@contextmanager
def _unfinished(parent: Path) -> Iterator[Path]:
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
        descriptor = os.open(made, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        made.replace(path.with_name(made.name))
    sync_directory(path.parent)
