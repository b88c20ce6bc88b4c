from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.batch_order import BatchOrder
from assay.data.loaders import MemoryLoader, StreamLoader
from assay.data.placement import Placement
from assay.data.samples import Samples, Stream
from assay.data.subset import Subset
from assay.data.transforms import Transforms
from assay.errors import DataError

SAMPLES = Samples(torch.arange(40, dtype=torch.uint8).view(10, 1, 2, 2), torch.arange(10))
ROWS = torch.tensor([1, 3, 5, 7, 9])
ORDER = BatchOrder(5, batch_size=2, seed=1, shuffle=True)
CPU = torch.device("cpu")


def subset(data: Samples | Stream, *transforms: Any, rows: Tensor = ROWS) -> Subset:
    return Subset(data, rows, rows, Transforms(transforms))


def start() -> tuple[int, int]:
    return 0, 0


class Noisy:
    """Draws random numbers of its own, as users' data sets do; with samples as mappings if asked for."""

    def __init__(self, mapping: bool = False) -> None:
        self.mapping = mapping

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        image = SAMPLES.inputs[index].float() + torch.rand(1, 2, 2) + np.random.rand()
        return (
            {"image": image.float(), "label": index, "more": "x"} if self.mapping else (image.float(), index)
        )


def test_memory_loader_gathers_its_own_rows_in_the_epochs_order() -> None:
    positions = iter([(0, 0), (1, 0)])
    loader = MemoryLoader(subset(SAMPLES), Placement(SAMPLES), ORDER, lambda: next(positions), lambda: CPU)
    assert len(loader) == 3
    for epoch in (0, 1):
        batches = list(loader)
        targets = torch.cat([targets for _, targets in batches])
        assert targets.tolist() == ROWS[ORDER.epoch(epoch)].tolist()
        assert torch.equal(torch.cat([inputs for inputs, _ in batches]), SAMPLES.inputs[targets])


def test_iteration_starts_where_the_position_says_when_the_first_batch_is_asked_for() -> None:
    position = (0, 0)
    loader = MemoryLoader(subset(SAMPLES), Placement(SAMPLES), ORDER, lambda: position, lambda: CPU)
    whole = [targets.tolist() for _, targets in loader]
    batches = iter(loader)
    position = (0, 2)
    assert [targets.tolist() for _, targets in batches] == whole[2:]


@pytest.mark.parametrize("mapping", [False, True])
def test_workers_change_nothing(mapping: bool) -> None:
    crop = v2.RandomCrop(2, padding=1)
    both: list[list[Any]] = []
    for num_workers in (0, 2):
        stream = Stream(Noisy(mapping), torch.arange(10))
        loader = StreamLoader(subset(stream, crop), ORDER, lambda: (3, 1), num_workers=num_workers)
        both.append(list(loader))
    assert len(both[0]) == 2
    for here, there in zip(*both, strict=True):
        pairs = zip(here.values(), there.values(), strict=True) if mapping else zip(here, there, strict=True)
        for mine, other in itertools.islice(pairs, 2):
            assert torch.equal(mine, other)


def test_memory_and_stream_give_the_same_batches() -> None:
    crop = v2.RandomCrop(2, padding=1)
    memory = MemoryLoader(subset(SAMPLES, crop), Placement(SAMPLES), ORDER, start, lambda: CPU)
    stream = StreamLoader(subset(SAMPLES, crop), ORDER, start, num_workers=0)
    for (inputs, targets), (other_inputs, other_targets) in zip(memory, stream, strict=True):
        assert torch.equal(inputs, other_inputs)
        assert torch.equal(targets, other_targets)


class Broken:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        raise DataError(f"sample {index} is broken", hint="mend it")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_error_in_a_worker_stays_short(num_workers: int) -> None:
    loader = StreamLoader(subset(Stream(Broken(), torch.arange(10))), ORDER, start, num_workers=num_workers)
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value).startswith("sample ")
    assert str(caught.value).endswith("is broken\n  → mend it")
    assert caught.value.hint == "mend it"


class Uneven(Broken):
    def __getitem__(self, index: int) -> Any:
        return torch.zeros(index + 1), index


def test_samples_that_cannot_be_stacked() -> None:
    loader = StreamLoader(subset(Stream(Uneven(), torch.arange(10))), ORDER, start)
    with pytest.raises(DataError, match="cannot make up one batch"):
        list(loader)


def test_transforms_that_can_be_applied_once_are() -> None:
    count = 0

    def tail(image: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return image + 1

    ready = subset(SAMPLES, v2.Pad(1), tail).apply_once()
    assert isinstance(ready.data, Samples)
    assert torch.equal(ready.data.inputs, v2.Pad(1)(SAMPLES.inputs[ROWS]))
    assert ready.data.targets.tolist() == ready.keys.tolist() == ROWS.tolist()
    assert ready.transforms.transforms == (tail,)
    assert count == 0


def test_applying_once_changes_no_batch() -> None:
    chain = (v2.Pad(1), v2.RandomCrop(2))
    lazy, ready = subset(SAMPLES, *chain), subset(SAMPLES, *chain).apply_once()
    assert isinstance(ready.data, Samples)
    batches = [
        list(MemoryLoader(one, Placement(data), ORDER, start, lambda: CPU))
        for one, data in ((lazy, SAMPLES), (ready, ready.data))
    ]
    for (inputs, targets), (other_inputs, other_targets) in zip(*batches, strict=True):
        assert torch.equal(inputs, other_inputs)
        assert torch.equal(targets, other_targets)


def test_what_does_not_fit_in_memory_is_transformed_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.data.subset.free_memory", lambda: 4 * 5 * (16 + 8) - 1)
    whole = subset(SAMPLES, v2.Pad(1))
    assert whole.apply_once() is whole
    monkeypatch.setattr("assay.data.subset.free_memory", lambda: 4 * 5 * (16 + 8))
    assert whole.apply_once() is not whole
    assert whole.apply_once(processes=2) is whole
