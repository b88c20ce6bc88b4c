"""What is read of a run for export."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file

import assay
from assay.run.export.export import export
from assay.run.export.exportable import read_original

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train


def test_half_precision_is_widened(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=iris", "precision=bf16_true", "callbacks=[default]", "trainer.max_epochs=1"),
        "predictions.max_megabytes=0",
    )
    original = read_original(run.run_dir, "best")
    assert {one.dtype for one in original.stored.parameters()} == {torch.bfloat16}
    exported = export(run.run_dir, "onnx", out=tmp_path / "onnx")
    assert exported.notes == ("the weights are bfloat16 in the checkpoint and float32 in the file",)
    export(run.run_dir, "safetensors", out=tmp_path / "weights")
    weights = load_file(tmp_path / "weights" / "model.safetensors")
    bare = assay.load(run.run_dir, map_location="cpu", raw_input=False).state_dict()
    assert all(
        torch.equal(weights[name], bare[name]) and weights[name].dtype == torch.bfloat16 for name in weights
    )
