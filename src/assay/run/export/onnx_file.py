"""A traced model as an ONNX file, and such a file as a function."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from assay.errors import AssayError, first_line
from assay.run.export.exportable import quiet
from assay.run.export.table_inputs import text_codes, unknown_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch.export import ExportedProgram

    from assay.data.tabular.table_encoder import Column

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
    """Write a traced model; large weights go into a file `<name>.data` beside it.

    Args:
        path: The file.
        program: The traced model.
        names: Of the inputs; where there are `categories`, the last one is `codes`.
        output: Name of the output.
        categories: Columns whose texts the graph looks up: it takes `categories` in place of `codes`.
        metadata: Kept as JSON under the key `assay`.

    Raises:
        AssayError: ONNX lacks an operation that the model has.
    """
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
    """Round a file's weights to 8-bit integers; what goes through them is rounded batch by batch.

    Args:
        path: The file, replaced.

    Raises:
        AssayError: Nothing in it can be rounded.
    """
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
