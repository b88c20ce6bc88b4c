"""From a run to a file that runs without assay, checked before it gets its name."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import pandas as pd
import torch

from assay.assemble.assembly import open_data
from assay.assemble.node import build
from assay.data.core.data_module import DataModule
from assay.data.core.loaders import KeyedDataset, input_of
from assay.data.core.normalize import stored_type
from assay.data.core.placement import padded_length
from assay.data.core.source import subset_of
from assay.data.core.source_info import info_of
from assay.data.core.transforms import Transforms
from assay.data.encoder_file import TOKENIZER_FILE
from assay.data.table.category import Category, category_texts
from assay.data.table.number import Number, format_amount, is_amount, missing_numbers
from assay.errors import AssayError, ConfigError, explain_write_errors, first_line
from assay.targets.resolve import require
from assay.targets.trust import check_addresses, trust
from assay_serve.export.exportable import (
    Original,
    quiet,
    table_inputs,
    text_codes,
    trace,
    unknown_code,
)
from assay_serve.export.model_card import MARK, Agreement, Exported, describe, model_card
from assay_serve.output import write_together
from assay_serve.threshold import set_threshold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch.export import ExportedProgram

    from assay.figure import Array

    Outputs = dict[str, Array]
    _Run = Callable[[Mapping[str, Array]], Outputs]

Format = Literal["onnx", "safetensors"]
SUFFIXES: Mapping[str, str] = {"onnx": ".onnx", "safetensors": ".safetensors"}
CARD = "MODEL_CARD.md"
_NEEDS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "safetensors": ("safetensors",)}
_IN_ONE_FILE = 1_500_000_000
"""Bytes of weights; protobuf, in which the graph is written, ends at 2 GiB."""
_MOST = 1000
_MOST_BYTES = 256 << 20
_BATCH = 64
_MADE_UP = 256
_MOST_CODES = 20
TOLERANCE = 1e-4
"""Of probabilities; of other outputs times the largest of them."""
_SMALLEST = 1e-30
"""Probability from which on a relative difference counts."""
RESIZED_TOLERANCE = 1e-2
"""As `TOLERANCE`, where the file resizes pictures: a value may be rounded to the neighbouring grey level."""


def export(
    run_dir: Path,
    file_format: Format = "onnx",
    *,
    out: Path | None = None,
    checkpoint: Literal["best", "last"] = "best",
    threshold: str | None = None,
    trusted_packages: Sequence[str] = (),
) -> Exported:
    """Export a run's model with what its data does to raw input."""
    for name in _NEEDS[file_format]:
        require("export", f"--format {file_format}", name)
    path = _target(run_dir, file_format, out)
    _check_replaced(path)
    original = Original(run_dir, checkpoint, trusted_packages)
    if original.is_mean and file_format != "onnx":
        raise ConfigError(
            f"{run_dir} has {len(original.members)} runs, whose weights are not one model",
            key="--format",
            hint=f"--format onnx; or export one run, such as {original.members[0]}",
        )
    if threshold is not None:
        set_threshold(original.predictor, run_dir, threshold, trusted_packages)
    tokenizers: dict[str, Any] = {}  # the library `tokenizers` reads those of byte pairs
    if original.texts is not None:
        tokenizers = {TOKENIZER_FILE: original.texts.tokenizer}
    elif original.codec is not None:
        tokenizers = {f"{path.stem}.tokenizer.json": original.codec}
    for name in tokenizers:
        _check_replaced(path.with_name(name))
    with explain_write_errors(path.parent), write_together(path) as folder:
        write = _write_checked
        if file_format == "safetensors":
            write = _write_safetensors
        written = write(original, folder / path.name)
        exported = replace(
            written,
            path=path,
            card=path.with_name(CARD),
            size=sum(one.stat().st_size for one in folder.iterdir()),
            notes=(*written.notes, *original.predictor.notes),
        )
        (folder / CARD).write_text(model_card(exported, original), encoding="utf-8")
        for name, tokenizer in tokenizers.items():
            (folder / name).write_text(tokenizer.to_json(), encoding="utf-8")
    return exported


def _target(run_dir: Path, file_format: str, out: Path | None) -> Path:
    suffix = SUFFIXES[file_format]
    if out is None:
        folder = run_dir / "export" / file_format
        if not folder.resolve().is_relative_to(run_dir.resolve()):
            raise AssayError(
                f"{folder} is a link to a folder outside of the run", hint="--out FOLDER"
            )
        return folder / f"model{suffix}"
    if out.suffix == suffix and not out.is_dir():
        return out
    if not out.is_dir() and (out.exists() or out.suffix in SUFFIXES.values()):
        raise ConfigError(
            f"expected a folder or a file that ends in {suffix}, got {out}", key="--out"
        )
    return out / f"model{suffix}"


def _check_replaced(path: Path) -> None:
    """Refuse to replace a file, or the card beside it, that assay export has not written."""
    card = path.with_name(CARD)
    if card.is_file() and card.read_text("utf-8", "replace").startswith(MARK):
        return
    for one in (path, card):
        if one.exists():
            raise AssayError(
                f"{one} exists and was not written by assay export; refusing to overwrite",
                hint="--out another folder, or rename it",
            )


def _write_checked(original: Original, path: Path) -> Exported:
    """Write an ONNX file and compare it; with the transforms inside, where that is possible and right."""
    samples = read_samples(original)
    notes = []
    if samples.note:
        notes = [samples.note]
    widened = sorted(
        str(dtype).removeprefix("torch.") for dtype in original.dtypes - {torch.float32}
    )
    if widened:
        notes.append(
            f"the weights are {', '.join(widened)} in the checkpoint and float32 in the file"
        )
    if original.transforms:
        try:
            if not original.takes_any_size and len({raw.shape[1:] for raw in samples.raw}) > 1:
                raise AssayError("samples have several shapes before them")
            return _write(original, samples, path, notes, inside=True)
        except AssayError as error:
            names = ", ".join(
                type(transform).__name__ for transform in original.transforms.transforms
            )
            notes.append(
                f"the file takes pictures after {names} (data.transform.eval): {error.message}"
            )
    return _write(original, samples, path, notes, inside=not original.transforms)


def _write(
    original: Original,
    samples: CheckSamples,
    path: Path,
    notes: Sequence[str],
    *,
    inside: bool,
) -> Exported:
    metadata = describe(original, samples.raw[0], inside=inside)
    first = _prepared(original, samples.raw[0], with_transforms=inside)
    lookups: Mapping[str, Sequence[Category]] = {}
    if "categories" in first:  # texts are looked up before the traced model
        codes = np.zeros(first.pop("categories").shape, np.int64)
        lookups = original.lookups
        first |= dict.fromkeys(lookups, codes)
    if original.codec is not None:  # a trace takes the longest text for the only length
        first = {
            name: values[:, : max(2, values.shape[1] // 2)] for name, values in first.items()
        }
    # Three samples: a trace takes one sample for a constant.
    example = tuple(
        torch.from_numpy(np.concatenate([values[:1]] * 3)) for values in first.values()
    )
    sizes: dict[int, Any] = {}
    if inside and original.takes_any_size:
        sizes = dict.fromkeys((2, 3), torch.export.Dim.DYNAMIC)
    elif original.codec is not None:
        sizes[1] = torch.export.Dim.DYNAMIC
    elif original.texts is not None and original.texts.max_length > 1:
        sizes[1] = torch.export.Dim("length", max=original.texts.max_length)
    program = trace(original.exportable(with_transforms=inside), example, sizes)
    write_onnx(
        path,
        program,
        names=list(first),
        outputs=original.output_names,
        lookups=lookups,
        na_values=original.na_values,
        metadata=metadata,
    )
    agreement = compare(original, samples, path, inside=inside)
    return Exported(path, path, metadata, 0, agreement, samples.subset, tuple(notes))


def _write_safetensors(original: Original, path: Path) -> Exported:
    """Write the weights in the type they have."""
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    metadata = describe(original, None, inside=False)
    loss = original.predictor.loss
    text = json.dumps(metadata, ensure_ascii=False)
    try:
        save_model(original.stored, str(path), metadata={"format": "pt", "assay": text})
    except SafetensorError as error:
        raise OSError(first_line(error)) from error
    learnt = []
    if loss is not None:
        learnt = sorted(f"loss.{name}" for name in loss.state_dict())
    notes: tuple[str, ...] = ()
    if learnt:
        lacking = (
            f"the file lacks {', '.join(learnt)}, which the run's loss needs for probabilities"
        )
        notes = (f"{lacking}; --format onnx has them",)
    return Exported(path, path, metadata, 0, None, "", notes)


def write_onnx(
    path: Path,
    program: ExportedProgram,
    *,
    names: Sequence[str],
    outputs: Sequence[str],
    lookups: Mapping[str, Sequence[Category]] = MappingProxyType({}),
    na_values: Sequence[str] = (),
    metadata: Mapping[str, Any],
) -> None:
    """Write a traced model; large weights go into a file `<name>.data` beside it."""
    import onnx

    weights = sum(value.nbytes for value in program.state_dict.values())
    try:
        with quiet(), torch.no_grad():
            exported = torch.onnx.export(
                program,
                dynamo=True,
                verbose=False,
                input_names=list(names),
                output_names=list(outputs),
                custom_translation_table={torch.ops.aten.sigmoid.default: _sigmoid},
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
    names_of_sizes = dict(zip(sizes, words, strict=False))
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = names_of_sizes.get(dim.dim_param, dim.dim_param)
    if lookups:
        model = _with_texts(model, lookups, na_values)
    for key, value in {"assay": metadata, "names": metadata.get("names", ())}.items():
        model.metadata_props.add(key=key, value=json.dumps(value, ensure_ascii=False))
    onnx.save(model, path)


def _sigmoid(values: Any) -> Any:
    """Sigmoid with the relative precision of float32: ONNX Runtime's own is 0 from some -17 on."""
    from onnxscript import opset18

    op: Any = opset18  # its types do not take what it takes
    ends = op.Exp(op.Min(values, op.CastLike(op.Constant(value_float=0.0), values)))
    return op.Div(
        ends,
        op.Add(op.Exp(op.Neg(op.Abs(values))), op.CastLike(op.Constant(value_float=1.0), values)),
    )


def _with_texts(
    model: Any, lookups: Mapping[str, Sequence[Category]], na_values: Sequence[str]
) -> Any:
    """The model behind a graph that turns `categories`, texts `[B, C]`, into the codes that it takes."""
    from onnx import TensorProto, compose, helper

    width = len(next(iter(lookups.values())))
    shape = ("batch", width)
    texts = [f"categories/text_{index}" for index in range(width)]
    nodes = [helper.make_node("Split", ["categories"], texts, axis=1, num_outputs=width)]
    outputs = []
    for name, columns in lookups.items():
        codes = [f"categories/{name}_{index}" for index in range(width)]
        for column, text, code in zip(columns, texts, codes, strict=True):
            known = text_codes(column, na_values)
            node = helper.make_node(
                *("LabelEncoder", [text], [code]),
                domain="ai.onnx.ml",
                keys_strings=list(known),
                values_int64s=list(known.values()),
                default_int64=unknown_code(column),
            )
            nodes.append(node)
        nodes.append(helper.make_node("Concat", codes, [f"categories/{name}"], axis=1))
        outputs.append(
            helper.make_tensor_value_info(f"categories/{name}", TensorProto.INT64, shape)
        )
    categories = helper.make_tensor_value_info("categories", TensorProto.STRING, shape)
    lookup = helper.make_model(
        helper.make_graph(nodes, "categories", [categories], outputs),
        opset_imports=[*model.opset_import, helper.make_opsetid("ai.onnx.ml", 2)],
        ir_version=model.ir_version,
    )
    io_map = [(f"categories/{name}", name) for name in lookups]
    return compose.merge_models(lookup, model, io_map=io_map)


def open_onnx(path: Path) -> _Run:
    """A file as a function of its inputs to its outputs by name, on the CPU."""
    import onnxruntime  # type: ignore[import-untyped]  # ships no types

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


@final
@dataclass(frozen=True, eq=False)
class CheckSamples:
    """Batches of samples on which file and original are compared; of made-up ones `subset` is empty."""

    raw: list[Any]
    subset: str = ""
    note: str = ""
    num_odd: int = 0


def read_samples(original: Original) -> CheckSamples:
    """Up to 1,000 samples of the run's test subset; made-up ones where its data cannot be read."""
    try:
        check_addresses(original.config, trust(()))
        with quiet():
            datamodule: Any = open_data(original.config, prepare=False)
            if isinstance(datamodule, DataModule):
                return _read_subset(original, datamodule)
            batch = datamodule.on_after_batch_transfer(
                next(iter(datamodule.test_dataloader())), 0
            )
            return CheckSamples([input_of(batch)], "test")
    except (AssayError, OSError, AttributeError, StopIteration) as error:
        if not original.spec:
            raise AssayError(
                f"the run's data gives no test batch: {first_line(error)}"
            ) from error
        return CheckSamples(
            made_up(original), note=f"the run's data cannot be read: {first_line(error)}"
        )


def _read_subset(original: Original, datamodule: DataModule) -> CheckSamples:
    name = next(
        name for name in ("test", "val", "train") if getattr(datamodule.spec, f"num_{name}")
    )
    subset = datamodule.subset(name)
    data = subset.data
    read_as = name
    # also where the source has a test that folds leave out
    if data is datamodule.splits.data["train"]:
        read_as = "train"
    input_bytes = 1 << 18
    if data.in_memory:
        input_bytes = data.inputs[0].nbytes
    most = min(_MOST, max(_BATCH, _MOST_BYTES // input_bytes))
    positions = (
        torch.linspace(0, len(subset.rows) - 1, min(len(subset.rows), most)).round().long()
    )
    note = ""
    if original.record.data_sha256 not in ("", datamodule.digest()):
        note = "the data is not what the run was trained on: its SHA-256 differs"
    rows = subset.rows[positions]
    if original.encoder is not None:
        table = subset_of(datamodule.source.read(), read_as)
        rows_of_file = as_in_files(table.raw.iloc[rows.numpy()], original)
        num_odd = len(rows_of_file) - len(rows)
        return CheckSamples(list(_cut(rows_of_file)), name, note, num_odd)
    if data.lengths is not None:  # from short to long: batches differ in length
        rows = rows[data.lengths[rows].argsort(stable=True)]
    dataset: Any = _unscaled(original, read_as) or KeyedDataset(data, Transforms(), 0)
    keyed = isinstance(dataset, KeyedDataset)
    inputs = [input_of(dataset[(0, row, row) if keyed else row]) for row in rows.tolist()]
    if data.in_memory and stored_type(data.inputs.dtype) == "int64":
        inputs = [tensor.long() for tensor in inputs]
    raw = [tensor[None] for tensor in inputs]
    if len({tensor.shape for tensor in inputs}) == 1:
        raw = list(_cut(torch.cat(raw)))
    if original.texts is not None:  # padded as a batch of evaluation
        raw = [tensor[:, : padded_length(int((tensor != 0).sum(1).max()))] for tensor in raw]
    return CheckSamples(raw, name, note)


def as_in_files(rows: pd.DataFrame, original: Original) -> pd.DataFrame:
    """Rows as users have them: a row more for each column and each way in which a value may be odd."""
    encoder: Any = original.encoder
    rows = rows.reset_index(drop=True)
    odd_rows: list[pd.DataFrame] = []
    for column in encoder.columns:
        odd: list[Any] = [None]
        if isinstance(column, Number) and is_amount(column.form):
            odd += [format_amount(-1e6, column.form)]
        elif isinstance(column, Number):
            rows[column.name] = rows[column.name].astype("float64")
            odd += [*missing_numbers(original.na_values), np.inf, -1e300]
        elif isinstance(column, Category):
            rows[column.name] = category_texts(rows[column.name]).astype(object)
            unknown = max(column.codes, key=len, default="") + "?"
            odd += ["", *original.na_values, unknown, *list(column.codes)[:_MOST_CODES]]
        row = rows.iloc[[len(odd_rows) % len(rows)] * len(odd)].copy()
        row[column.name] = pd.Series(odd, row.index, dtype=row[column.name].dtype)
        odd_rows.append(row)
    return pd.concat([rows, *odd_rows], ignore_index=True)


def _unscaled(original: Original, name: str) -> Any:
    """Pictures before they are scaled to `data.source.image_size`, in the same order; None of other data."""
    source = original.config.data.source
    if (
        info_of(str(source.get("_target_"))).raw_input != "images"
        or source.get("image_size") is None
    ):
        return None
    config = original.config.copy()
    config.data.source.update({"image_size": None, "in_memory": False})
    return subset_of(build(config, "data.source").read(), name).inputs


def _cut(samples: Any) -> Iterator[Any]:
    yield samples[:1]
    for start in range(1, len(samples), _BATCH):
        yield samples[start : start + _BATCH]


def made_up(original: Original) -> list[Any]:
    """Batches of samples that look like the training data in type, shape and scale."""
    spec = original.spec
    draw = torch.Generator().manual_seed(0)
    if original.encoder is not None:
        table = {column.name: column.make_up(_MADE_UP) for column in original.encoder.columns}
        return list(_cut(as_in_files(pd.DataFrame(table), original)))
    shape = (_MADE_UP, *spec["input_shape"])
    dtype = getattr(torch, spec["input_dtype"])
    if dtype.is_floating_point:
        samples = original.normalize.denormalize(torch.randn(shape, generator=draw))
    else:
        highest = 256
        if dtype != torch.uint8:
            highest = int(spec.get("vocab_size") or 2)
        lowest = int(original.texts is not None)
        samples = torch.randint(lowest, highest, shape, generator=draw)
    return list(_cut(samples.to(dtype)))


def _prepared(original: Original, raw: Any, *, with_transforms: bool) -> dict[str, Array]:
    """A batch as an exported file takes it."""
    if original.encoder is not None:
        return table_inputs(raw, original.encoder.columns)
    if not with_transforms:
        raw = original.transforms.transform_inputs(raw)
    return {"inputs": raw.contiguous().numpy()}


def compare(original: Original, samples: CheckSamples, path: Path, *, inside: bool) -> Agreement:
    """Run file and original on the same samples; refuse a file whose outputs are others."""
    run = open_onnx(path)
    pairs: list[tuple[Outputs, Outputs]] = []
    for raw in samples.raw:
        try:
            theirs = run(_prepared(original, raw, with_transforms=inside))
        except Exception as error:  # whatever the runtime raises
            raise AssayError(
                f"the file does not run: {type(error).__name__}: {first_line(error)}"
            ) from error
        ours = original.outputs(raw)
        if original.gives_logits and not np.array_equal(
            original.decide(theirs["probabilities"]), theirs["prediction"]
        ):
            raise AssayError("the predictions of the file do not match its probabilities")
        for name, values in ours.items():
            if theirs[name].shape != values.shape:
                raise AssayError(
                    f"the file gives {name} {theirs[name].shape}, the original {values.shape}"
                )
            if not np.array_equal(np.isfinite(theirs[name]), np.isfinite(values)):
                raise AssayError(f"the file and the original differ in which {name} are finite")
        pairs.append((ours, theirs))
    limit = TOLERANCE
    if inside and original.takes_any_size:
        limit = RESIZED_TOLERANCE
    outputs, from_file = _flat(pairs, original.kind)
    tolerance = limit
    if original.kind != "probabilities":
        tolerance *= float(np.abs(outputs).max(initial=0.0))
    difference = _largest(original.kind, from_file - outputs, tolerance)
    relative = None
    # an absolute difference of probabilities does not see rare events
    if "logits" in original.output_names:
        logits, of_file = _flat(pairs, "logits")
        margin = limit * float(np.abs(logits).max(initial=0.0))
        _largest("logits", of_file - logits, margin)
        # beside one sigmoid stands 1 - p, whose last digits are those of 1
        if len(logits) < len(outputs):
            outputs, from_file = outputs[1::2], from_file[1::2]
        ratios = np.maximum(from_file, _SMALLEST) / np.maximum(outputs, _SMALLEST)
        relative = _largest("relative probabilities", ratios - 1, max(100 * limit, 4 * margin))
    return Agreement(
        sum(map(len, samples.raw)) - samples.num_odd, difference, tolerance, relative
    )


def _flat(pairs: Sequence[tuple[Outputs, Outputs]], name: str) -> list[NDArray[np.float64]]:
    """An output of the original, and of the file."""
    return [
        np.concatenate(
            [np.nan_to_num(outputs[name].astype(np.float64)).ravel() for outputs in side]
        )
        for side in zip(*pairs, strict=True)
    ]


def _largest(name: str, differences: NDArray[np.float64], tolerance: float) -> float:
    largest = float(np.abs(differences).max(initial=0.0))
    if largest > tolerance:
        raise AssayError(
            f"{name} of the file differ from the original's by {largest:.3g}; up to {tolerance:.3g} is "
            "allowed",
            hint="nothing was kept",
        )
    return largest
