"""What torch does under names that it does not promise."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from assay.torch_internals import end_workers, mark_non_finite, metadata_of, put_metadata


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_a_number_that_is_not_finite_is_marked_and_none_is_changed(value: float, dtype: torch.dtype) -> None:
    mark, one = torch.zeros(()), torch.ones(())
    tensors = [torch.tensor([1.0, -2.0], dtype=dtype), torch.tensor([[3.0]], dtype=dtype)]
    before = [tensor.clone() for tensor in tensors]
    mark_non_finite(tensors, mark, one)
    assert mark == 0
    assert all(torch.equal(one, other) for one, other in zip(tensors, before, strict=True))
    tensors[1][0, 0] = value
    mark_non_finite(tensors, mark, one)
    assert mark == 1


def test_versions_of_modules_stay_beside_their_tensors() -> None:
    state: Any = nn.BatchNorm1d(2).state_dict()
    copied = OrderedDict(state)
    assert metadata_of(copied) is None
    put_metadata(copied, metadata_of(state))
    assert metadata_of(copied)[""]["version"] == nn.BatchNorm1d._version


def test_processes_of_a_loader_end_at_once() -> None:
    batches = iter(DataLoader([1, 2, 3], num_workers=1))  # type: ignore[arg-type]  # a list is a data set, too
    next(batches)
    processes = batches._workers  # type: ignore[attr-defined]  # to be looked at
    end_workers(batches)
    assert not any(process.is_alive() for process in processes)
    end_workers(iter([1]))
