"""Weights beside the graph, texts looked up by the graph, weights of 8 bits."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import pytest
import torch
from safetensors import safe_open
from torch import Tensor, nn

from assay.data.normalize import Normalize
from assay.data.tabular.table_encoder import Column
from assay.data.transforms import Transforms
from assay.errors import AssayError
from assay.run.export import export
from assay.run.export.export import (
    METADATA,
    open_onnx,
    open_torch_export,
    quantize_weights,
    read_safetensors,
    write_onnx,
    write_safetensors,
    write_torch_export,
)
from assay.run.export.exportable import Exportable, trace
from assay.run.predict.predictor import Predictor

if TYPE_CHECKING:
    from pathlib import Path

    from torch.export import ExportedProgram

BATCH = torch.export.Dim("batch")


def traced(model: nn.Module, *example: torch.Tensor) -> ExportedProgram:
    return torch.export.export(model.eval(), example, dynamic_shapes=tuple({0: BATCH} for _ in example))


def test_large_weights_lie_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_IN_ONE_FILE", 1000)
    model, inputs = nn.Sequential(nn.Linear(40, 50), nn.ReLU(), nn.Linear(50, 3)), torch.randn(5, 40)
    path = tmp_path / "large.onnx"
    write_onnx(path, traced(model, inputs), names=["inputs"], output="values", metadata={"names": ["ü"]})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["large.onnx", "large.onnx.data"]
    assert (tmp_path / "large.onnx.data").stat().st_size > 8000 > path.stat().st_size
    found = open_onnx(path)({"inputs": inputs[:2].numpy()})
    np.testing.assert_allclose(found, model(inputs[:2]).detach().numpy(), atol=1e-6)
    session = onnxruntime.InferenceSession(str(path))
    assert json.loads(session.get_modelmeta().custom_metadata_map["names"]) == ["ü"]
    assert (session.get_inputs()[0].shape, session.get_outputs()[0].shape) == (["batch", 40], ["batch", 3])


class Codes(nn.Module):
    def forward(self, numbers: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
        return torch.cat([numbers, codes.float()], 1)


def test_texts_become_codes(tmp_path: Path) -> None:
    columns = [
        Column("town", "category", codes={"Süd": 0, "b": 1}, other=1),
        Column("floor", "category", fill="2", codes={"1": 0, "2": 1}),
    ]
    path = tmp_path / "texts.onnx"
    program = traced(Codes(), torch.ones(3, 1), torch.ones(3, 2, dtype=torch.int64))
    names = ["numbers", "codes"]
    write_onnx(path, program, names=names, output="values", categories=columns, metadata={})
    texts = np.array([["Süd", "2.0"], ["Mars", ""], ["", "9"]], dtype=object)
    found = open_onnx(path)({"numbers": np.zeros((3, 1), np.float32), "categories": texts})
    assert found.tolist() == [[0, 0, 1], [0, 1, 1], [0, -2, -1]]
    onnx.checker.check_model(str(path), full_check=True)


def test_weights_of_8_bits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    convolved = [nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2)]
    model = nn.Sequential(*convolved, nn.Flatten(), nn.Linear(128, 5))
    inputs, path = torch.randn(20, 3, 8, 8), tmp_path / "model.onnx"
    write_onnx(path, traced(model, inputs), names=["inputs"], output="values", metadata={"names": []})
    before = path.stat().st_size
    whole = open_onnx(path)({"inputs": inputs.numpy()})
    quantize_weights(path)
    assert path.stat().st_size < before
    rounded = open_onnx(path)({"inputs": inputs.numpy()})
    assert 0 < np.abs(rounded - whole).max() < 0.1 * np.abs(whole).max()
    assert "assay" in onnxruntime.InferenceSession(str(path)).get_modelmeta().custom_metadata_map
    assert {"ConvInteger", "MatMulInteger"} <= {node.op_type for node in onnx.load(path).graph.node}


def test_nothing_to_round(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    write_onnx(path, traced(nn.ReLU(), torch.ones(3, 2)), names=["inputs"], output="values", metadata={})
    with pytest.raises(AssayError, match="has no weights that could be rounded"):
        quantize_weights(path)


def test_an_operation_that_onnx_lacks(tmp_path: Path) -> None:
    class Lacking(nn.Module):
        def forward(self, inputs: torch.Tensor) -> Any:
            return torch.linalg.eigvals(inputs[:, None] * inputs[:, :, None]).real

    with pytest.raises(AssayError, match="cannot be written as ONNX") as caught:
        write_onnx(
            tmp_path / "x.onnx",
            traced(Lacking(), torch.randn(3, 4)),
            names=["inputs"],
            output="values",
            metadata={},
        )
    assert "\n" not in caught.value.message
    assert not list(tmp_path.iterdir())


def test_torch_export(tmp_path: Path) -> None:
    model, inputs = nn.Linear(4, 2), torch.randn(3, 4)
    shapes = ({0: torch.export.Dim("batch")},)
    write_torch_export(
        tmp_path / "m.pt2", torch.export.export(model, (inputs,), dynamic_shapes=shapes), {"a": "ü"}
    )
    found = open_torch_export(tmp_path / "m.pt2")({"inputs": inputs[:1].numpy()})
    np.testing.assert_allclose(found, model(inputs[:1]).detach().numpy(), atol=1e-7)
    extra = {METADATA: ""}
    torch.export.load(tmp_path / "m.pt2", extra_files=extra)
    assert json.loads(extra[METADATA]) == {"a": "ü"}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.register_buffer("count", torch.tensor(7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_safetensors(tmp_path: Path, dtype: torch.dtype) -> None:
    model = Tied().to(dtype)
    write_safetensors(tmp_path / "m.safetensors", model, {"b": 1})
    fresh = copy.deepcopy(model)
    read_safetensors(tmp_path / "m.safetensors", fresh)
    for name, value in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)
        assert fresh.state_dict()[name].dtype == value.dtype
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        assert json.loads(file.metadata()["assay"]) == {"b": 1}
    with pytest.raises(RuntimeError, match=r"size mismatch|Missing"):
        read_safetensors(tmp_path / "m.safetensors", nn.Linear(4, 4))


def exportable(forward: Any) -> Exportable:
    class Own(nn.Module):
        def forward(self, inputs: Tensor) -> Any:
            return forward(inputs)

    return Exportable(Predictor(Own()), normalize=Normalize(), transforms=Transforms()).eval()


def test_a_batch_of_any_size() -> None:
    program = trace(exportable(lambda inputs: inputs * 2), (torch.ones(3, 4),))
    for size in (1, 2, 50):
        assert torch.equal(program.module()(torch.ones(size, 4)), torch.full((size, 4), 2.0))


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda inputs: (inputs, inputs), r"returns a tuple for 3 samples; expected a tensor \[N, …\]"),
        (lambda inputs: inputs.sum(0), r"returns shape \[4\] for 3 samples"),
        (lambda inputs: inputs if inputs.sum() > 0 else -inputs, "cannot be traced"),
        (lambda inputs: inputs.reshape(3, 4) * 2, "cannot be traced"),
        (lambda inputs: inputs @ torch.ones(7, 7), "cannot be traced: RuntimeError"),
    ],
)
def test_what_cannot_be_exported(forward: Any, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AssayError, match=message) as caught:
        trace(exportable(forward), (torch.ones(3, 4),))
    assert caught.value.hint
    assert "\n" not in caught.value.message
    assert capfd.readouterr() == ("", "")
