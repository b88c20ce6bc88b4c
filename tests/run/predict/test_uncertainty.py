"""How far the members of an ensemble differ, against numpy over networks of one member each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch

import assay
from assay_serve.predict import predict

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tests.conftest import Train, Trained

SHORT = ("model=table_mlp", "callbacks=[checkpoint]", "trainer.limit_train_batches=4")


def values_of_members(run: Trained, inputs: torch.Tensor) -> NDArray[np.float32]:
    """What each member answers, `[members, N, num_outputs]`."""
    model: Any = run.module.model.eval()
    with torch.no_grad():
        return np.stack([model.member_outputs(inputs)[:, k].numpy() for k in range(model.members)])


def predicted(run: Trained, path: Path, out: Path) -> tuple[pd.DataFrame, torch.Tensor, Any]:
    """Written predictions, inputs of the network, and predictions from Python."""
    predictor = assay.load(run.run_dir, map_location="cpu")
    predict(predictor, run.run_dir, [path], out=out, batch_size=64)
    rows = pd.read_csv(path)
    assert predictor.preprocess is not None
    return pd.read_parquet(out), predictor.preprocess(rows), predictor(rows)


@pytest.fixture(scope="module")
def price_run(train: Train, table: Path) -> Trained:
    """Four members for one value."""
    return train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=price", *SHORT),
        *("data.source.missing=impute", "data.source.exclude=[kind]", "model.members=4"),
    )


def test_of_values_in_the_unit_of_the_target(price_run: Trained, table: Path, tmp_path: Path) -> None:
    run = price_run
    frame, inputs, found = predicted(run, table / "rows.csv", tmp_path / "found.parquet")
    spec = run.datamodule.spec
    members = values_of_members(run, inputs)[:, :, 0] * spec.target_std[0] + spec.target_mean[0]
    np.testing.assert_allclose(frame["uncertainty"], members.std(0), rtol=1e-3)
    np.testing.assert_allclose(frame["prediction"], members.mean(0), rtol=1e-5)
    assert frame["uncertainty"].min() > 1  # in the unit of prices, not of standardised ones
    np.testing.assert_allclose(found.uncertainty[:, 0], frame["uncertainty"], rtol=1e-4)
    assert found[3].uncertainty == found.uncertainty[3]
    assert found[3].to_frame()["uncertainty"].item() == found.uncertainty[3].item()


def test_of_the_probability_of_the_predicted_class(train: Train, table: Path, tmp_path: Path) -> None:
    run = train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=kind", *SHORT),
        *("data.source.missing=impute", "data.source.exclude=[price]", "model.members=4"),
    )
    frame, inputs, found = predicted(run, table / "rows.csv", tmp_path / "found.parquet")
    logits = values_of_members(run, inputs)
    shares = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    names = list(run.datamodule.spec.class_names)
    chosen = [names.index(name) for name in frame["prediction"]]
    expected = shares.std(0)[np.arange(len(frame)), chosen]
    np.testing.assert_allclose(frame["uncertainty"], expected, atol=1e-6)
    np.testing.assert_allclose(found.uncertainty, expected, atol=1e-6)
    assert found[5].to_frame()["uncertainty"].item() == found.uncertainty[5]
    assert expected.std() > 0


@pytest.mark.parametrize("model", [("model=mlp",), ("model=table_mlp", "model.members=1")])
def test_a_single_network_has_none(model: tuple[str, ...], train: Train, table: Path, tmp_path: Path) -> None:
    run = train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=price", *SHORT),
        *("data.source.missing=impute", "data.source.exclude=[kind]", *model),
    )
    frame, _, found = predicted(run, table / "rows.csv", tmp_path / "found.parquet")
    assert "uncertainty" not in frame
    assert found.uncertainty is None


def test_a_model_is_asked_once_for_its_output_and_its_spread(
    price_run: Trained, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = assay.load(price_run.run_dir, map_location="cpu")
    model: Any = predictor.model
    original = model.member_outputs
    sizes = []

    def count(inputs: torch.Tensor) -> torch.Tensor:
        sizes.append(len(inputs))
        return original(inputs)  # type: ignore[no-any-return]  # of any model

    monkeypatch.setattr(model, "member_outputs", count)
    num_rows = len(pd.read_csv(table / "rows.csv"))
    found = predict(
        predictor, price_run.run_dir, [table / "rows.csv"], out=tmp_path / "found.csv", batch_size=64
    )
    assert (found.num_samples, sum(sizes)) == (num_rows, num_rows)
