"""Files of torch.export and safetensors come back as they were."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

from assay.run.export.export import (
    METADATA,
    open_torch_export,
    read_safetensors,
    write_safetensors,
    write_torch_export,
)

if TYPE_CHECKING:
    from pathlib import Path


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
