"""A traced model as a file of `torch.export`, and a model's weights as a safetensors file."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final

import torch

from assay.errors import first_line
from assay.run.export.trace import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn
    from torch.export import ExportedProgram

METADATA: Final = "assay.json"
"""What the description is called among the file's extra files."""


def write_torch_export(path: Path, program: ExportedProgram, metadata: Mapping[str, Any]) -> None:
    """Write a traced model.

    Args:
        path: The file.
        program: The traced model.
        metadata: Kept as JSON in the extra file `assay.json`.
    """
    # Into memory first: where the disk is full, torch's own writer ends the process (SIGABRT).
    content = io.BytesIO()
    with quiet():
        torch.export.save(
            program, content, extra_files={METADATA: json.dumps(dict(metadata), ensure_ascii=False)}
        )
    path.write_bytes(content.getbuffer())


def open_torch_export(path: Path) -> Callable[[Mapping[str, NDArray[Any]]], NDArray[np.float32]]:
    """A file as a function of its inputs, on the CPU."""
    with quiet():
        module = torch.export.load(path).module()

    def run(inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        with torch.no_grad():
            outputs: NDArray[np.float32] = module(*map(torch.from_numpy, inputs.values())).numpy()
        return outputs

    return run


def write_safetensors(path: Path, model: nn.Module, metadata: Mapping[str, Any]) -> None:
    """Write the weights in the type they have.

    Args:
        path: The file.
        model: The bare model.
        metadata: Kept as JSON under the key `assay`.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_model

    text = json.dumps(dict(metadata), ensure_ascii=False)
    try:
        save_model(model, str(path), metadata={"format": "pt", "assay": text})
    except SafetensorError as error:
        raise OSError(first_line(error)) from error


def read_safetensors(path: Path, model: nn.Module) -> None:
    """Load a file's weights into a model; whatever it had is gone before.

    Raises:
        RuntimeError: The file does not fit.
    """
    from safetensors.torch import load_model

    for tensor in model.state_dict().values():
        tensor.zero_()
    load_model(model, str(path), strict=True)
