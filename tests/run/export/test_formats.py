"""Weights beside the graph, texts looked up by the graph, weights of 8 bits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import pytest
import torch
from torch import Tensor, nn

from assay.data.normalize import Normalize
from assay.data.transforms import Transforms
from assay.errors import AssayError
from assay.run.export import export
from assay.run.export.export import (
    open_onnx,
    write_onnx,
)
from assay.run.export.exportable import Exportable, trace
from assay.run.predictor import Predictor

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


def exportable(forward: Any) -> Exportable:
    class Own(nn.Module):
        def forward(self, inputs: Tensor) -> Any:
            return forward(inputs)

    return Exportable(Predictor(Own()), normalize=Normalize(), transforms=Transforms()).eval()


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
