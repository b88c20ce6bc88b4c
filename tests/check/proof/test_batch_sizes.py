from __future__ import annotations

import itertools
from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.check.real_step import batch_sizes
from assay.data.batch_order import BatchOrder


def sizes_of(num_samples: int, batch_size: int, processes: int, **options: Any) -> set[int]:
    orders = [
        BatchOrder(num_samples, batch_size, rank=rank, world_size=processes, **options)
        for rank in range(processes)
    ]
    return {len(batch) for order in orders for batch in order.batches(0)}


@pytest.mark.parametrize("drop_last", [True, False])
def test_they_are_those_of_the_batch_order(monkeypatch: pytest.MonkeyPatch, drop_last: bool) -> None:
    for train, val, size, processes in itertools.product((7, 9, 40, 41), (0, 1, 5, 17), (3, 4, 8), (1, 2, 3)):
        monkeypatch.setattr("assay.check.real_step.world_size", lambda _, n=processes: n)
        data = {"_target_": "assay.data.data_module.DataModule", "batch_size": size, "eval_batch_size": size}
        config = OmegaConf.create(
            {
                "data": {**data, "drop_last": drop_last},
                "spec": {"num_train": train, "num_val": val, "num_test": 0},
            }
        )
        found = batch_sizes(config)
        if not drop_last:
            assert {*found[True], size} == {*sizes_of(train, size, processes, even=True), size}
        else:
            assert not found[True]
        assert set(found[False]) == (sizes_of(val, size, processes) if val else set())


def test_those_of_somebodys_own_data_are_not_known() -> None:
    config = OmegaConf.create(
        {
            "data": {"_target_": "mine.Data"},
            "spec": {"num_train": 4, "train_batch_size": 3},
            "trainer": {"strategy": "auto"},
        }
    )
    assert batch_sizes(config) == {True: [], False: [3]}
