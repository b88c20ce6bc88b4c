"""assay.load gives back the model that was trained."""

from __future__ import annotations

import os
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # scikit-learn ships no types

import assay
from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained


def accuracy_by_hand(run: Trained, model: torch.nn.Module) -> float:
    """On the raw digits, with the rows of the run's split and the scale it noted down."""
    images, targets = load_digits(return_X_y=True)
    data: Any = run.assembly.datamodule
    rows = data._parts.rows["test"]
    spec = run.assembly.config.spec
    inputs = torch.from_numpy(images[rows]).float().reshape(-1, 1, 8, 8)
    with torch.no_grad():
        logits = model((inputs - spec.mean[0]) / spec.std[0])
    return float((logits.argmax(1) == torch.from_numpy(targets[rows])).double().mean())


def test_same_accuracy_as_on_record(digits_run: Trained, tmp_path: Path) -> None:
    with chdir(tmp_path):
        model = assay.load(digits_run.run_dir)
    assert not any(module.training for module in model.modules())
    assert {p.device.type for p in model.parameters()} == {
        "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    }
    accuracy = accuracy_by_hand(digits_run, model.cpu())
    assert accuracy == pytest.approx(digits_run.record["metrics"]["test/accuracy"], abs=1e-7)
    assert accuracy > 0.8


def test_relative_to_where_the_run_was_made(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=digits", "model=linear", "callbacks=[checkpoint]", "trainer.limit_train_batches=2"),
        "hydra.run.dir=outputs/mine",
        cwd=tmp_path,
    )
    assert os.fspath(run.run_dir) == "outputs/mine"
    moved = (tmp_path / "outputs" / "mine").rename(tmp_path / "elsewhere")
    model = assay.load(moved, map_location="cpu")
    assert all(torch.equal(value, run.weights[f"model.{name}"]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("where", ["cpu", torch.device("cpu")])
def test_map_location(digits_run: Trained, where: str | torch.device) -> None:
    model = assay.load(digits_run.run_dir, map_location=where)
    assert {p.device for p in model.parameters()} == {torch.device("cpu")}


def test_best_or_last(digits_run: Trained) -> None:
    for role in ("best", "last"):
        model = assay.load(digits_run.run_dir, checkpoint=role, map_location="cpu")
        saved = digits_run.checkpoint(role)["state_dict"]
        assert all(torch.equal(value, saved[f"model.{name}"]) for name, value in model.state_dict().items())


def test_what_is_no_run_is_refused(train: Train, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="is no run directory"):
        assay.load(tmp_path)
    run = train("data=digits", "model=linear", "trainer.limit_train_batches=1")
    with pytest.raises(AssayError, match="holds no checkpoint"):
        assay.load(run.run_dir)
