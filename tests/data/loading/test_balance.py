"""`data.balance`: rare classes drawn as often as frequent ones, or counted more in the loss."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.conftest import unchanged_process

import assay
from assay.config.yaml_file import load_mapping
from assay.data.batch_order import BatchOrder
from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path


def test_each_class_is_drawn_as_often() -> None:
    targets = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    weights = 1 / targets.bincount()[targets].double()
    order = BatchOrder(1000, 50, seed=3, shuffle=True, weights=weights)
    drawn = torch.cat([targets[order.epoch(epoch)] for epoch in range(20)]).bincount()
    assert (drawn.double() / drawn.sum() - 1 / 3).abs().max() < 0.02
    assert torch.equal(order.epoch(4), order.epoch(4)), "a pure function of the epoch"
    assert not torch.equal(order.epoch(4), order.epoch(5))
    halves = [
        BatchOrder(1000, 25, 3, True, rank=rank, world_size=2, even=True, weights=weights) for rank in (0, 1)
    ]
    both = torch.stack([torch.cat(half.batches(4)) for half in halves], 1).flatten()
    assert torch.equal(both, order.epoch(4)), "two ranks share what one draws"


def rare(folder: Path) -> list[str]:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(2000, 3))
    ill = draw.random(2000) < 1 / (1 + np.exp(-(inputs[:, 0] * 1.5 - 4)))
    pd.DataFrame(inputs, columns=list("abc")).assign(ill=np.where(ill, "yes", "no")).to_csv(
        folder / "rare.csv", index=False
    )
    source = ["data=table", "data.source.path=rare.csv", "data.source.target=ill", "hydra.run.dir=run"]
    return [*source, "model=linear", "device=cpu", "trainer.max_epochs=10", "baseline=none"]


@pytest.mark.parametrize(("balance", "weight"), [("none", None), ("sampler", None), ("weights", "balanced")])
def test_rare_ones_are_found(tmp_path: Path, balance: str, weight: str | None) -> None:
    with chdir(tmp_path), unchanged_process():
        result: Any = assay.train([*rare(tmp_path), f"data.balance={balance}"])
        assert load_mapping(tmp_path / "run" / "config.yaml").loss.pos_weight == weight
    assert (result.metrics["test/recall"] > 0.5) == (balance != "none")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["data=diabetes", "data.balance=sampler"], "only classes can be balanced; this is regression"),
        (["data=diabetes", "data.balance=weights"], "MSELoss takes no weights of classes"),
        (["data=iris", "data.balance=sample"], "none or weights or sampler was expected"),
    ],
)
def test_what_is_refused(tmp_path: Path, overrides: list[str], says: str) -> None:
    with chdir(tmp_path), unchanged_process(), pytest.raises(AssayError, match=says) as caught:
        assay.train([*overrides, "device=cpu", "trainer.max_epochs=1"])
    assert "data.balance" in str(caught.value)
    assert not (tmp_path / "outputs").exists()
