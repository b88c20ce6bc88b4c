"""Predictions are gathered over batches and processes, each sample once and in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from assay.data.batch_order import BatchOrder
from assay.run.kept_predictions import KeepPredictions

NUM, CLASSES = 45, 3
OUTPUTS = torch.rand(NUM, CLASSES, generator=torch.Generator().manual_seed(0)).softmax(1)
TARGETS = torch.arange(NUM) % CLASSES
NAMES = [f"sample{index}" for index in range(NUM)]


MODULE: Any = SimpleNamespace(prediction_kind="probabilities")


def evaluated_on(task: str, loader: Any) -> Any:
    """What is asked of a trainer."""
    data = SimpleNamespace(spec=SimpleNamespace(task=task))
    return SimpleNamespace(test_dataloaders=loader, datamodule=data, world_size=1)


def gathered(rank: int, world_size: int, max_bytes: int = 10**6, limit: int = 1000) -> KeepPredictions:
    """What one process has gathered when its test is over."""
    order = BatchOrder(NUM, batch_size=2, rank=rank, world_size=world_size)
    trainer = evaluated_on("multiclass", SimpleNamespace(order=order))
    keep = KeepPredictions(max_bytes)
    keep.on_test_start(trainer, MODULE)
    for index, rows in enumerate(order.batches(0)):
        if index < limit:
            outputs = {"predictions": OUTPUTS[rows], "targets": TARGETS[rows]}
            keep.on_test_batch_end(trainer, MODULE, outputs, None, index)
    keep.on_test_end(trainer, MODULE)
    return keep


@pytest.mark.parametrize("max_bytes", [10**6, 300])
def test_several_processes_come_to_the_same_as_one(max_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = gathered(0, 1, max_bytes)
    every = [gathered(rank, 3, max_bytes) for rank in range(3)]
    sent = [(one.problem, one.num_seen, one._kept) for one in every]

    def gather(into: list[Any], own: Any) -> None:
        assert own == sent[0]
        into[:] = sent

    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    trainer: Any = SimpleNamespace(world_size=3, is_global_zero=True)
    every[0].on_test_end(trainer, trainer)
    one, other = (keep.predictions("abc", NAMES, "test") for keep in (alone, every[0]))
    assert one.keys == other.keys
    np.testing.assert_array_equal(one.outputs, other.outputs)
    np.testing.assert_array_equal(one.targets, other.targets)
    positions = alone.positions()
    assert one.keys == tuple(NAMES[position] for position in positions)
    np.testing.assert_array_equal(one.outputs, OUTPUTS[positions])
    assert one.num_evaluated == other.num_evaluated == (0 if max_bytes == 10**6 else NUM)
    assert len(one.keys) == (NUM if max_bytes == 10**6 else 300 // 20)
