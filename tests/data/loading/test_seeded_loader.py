"""Against torch's own samplers: what each rank gets of a loader of somebody's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler

from assay.data.seeded_loader import SeededLoader


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> int:
        return index


DATA = Numbers()


def trainer(rank: int = 0, world_size: int = 1, epoch: int = 0, done: int = 0, overfit: int = 0) -> Any:
    progress = SimpleNamespace(current=SimpleNamespace(ready=done))
    return SimpleNamespace(
        global_rank=rank,
        world_size=world_size,
        current_epoch=epoch,
        overfit_batches=overfit,
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress)),
    )


def batches(loader: DataLoader[Any], seed: int = 0, **position: int) -> list[list[int]]:
    seeded = SeededLoader(loader, seed, trainer(**position))
    assert seeded.exact
    assert seeded.notes == []
    found = [batch.tolist() for batch in seeded]
    assert len(seeded) == len(found) + position.get("done", 0)
    return found


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_divide_the_samples_as_torch_does(world_size: int, drop_last: bool) -> None:
    loader = DataLoader(DATA, batch_size=3, drop_last=drop_last)
    for rank in range(world_size):
        sampler: DistributedSampler[int] = DistributedSampler(DATA, world_size, rank, shuffle=False)
        expected = list(DataLoader(DATA, batch_size=3, drop_last=drop_last, sampler=sampler))
        found = batches(loader, rank=rank, world_size=world_size)
        assert found == [batch.tolist() for batch in expected]


def test_shuffled_ranks_have_no_sample_in_common() -> None:
    loader = DataLoader(DATA, batch_size=3, shuffle=True)
    first, second = (batches(loader, rank=rank, world_size=2, epoch=1) for rank in (0, 1))
    assert sorted(sum(first + second, start=[])) == list(range(22))  # noqa: RUF017 - short


def test_whole_batches_of_a_batch_sampler_are_divided() -> None:
    loader = DataLoader(DATA, batch_sampler=list(BatchSampler(range(22), 2, False)))
    ranks = [batches(loader, rank=rank, world_size=2) for rank in (0, 1)]
    assert ranks[0][:2] == [[0, 1], [4, 5]]
    assert ranks[1][:2] == [[2, 3], [6, 7]]
    assert len(ranks[0]) == len(ranks[1]) == 6


def test_a_sampler_that_divides_is_left_to_it() -> None:
    sampler: DistributedSampler[int] = DistributedSampler(DATA, 2, 1, seed=4)
    found = batches(DataLoader(DATA, batch_size=4, sampler=sampler), rank=1, world_size=2, epoch=3)
    sampler.set_epoch(3)
    assert found == [batch.tolist() for batch in DataLoader(DATA, batch_size=4, sampler=sampler)]


def test_order_is_a_function_of_seed_and_epoch() -> None:
    loader = DataLoader(DATA, batch_size=4, shuffle=True)
    torch.manual_seed(1)
    first = batches(loader, seed=7, epoch=2)
    torch.manual_seed(2)
    assert batches(loader, seed=7, epoch=2) == first
    assert batches(loader, seed=7, epoch=2, done=2) == first[2:]
    assert batches(loader, seed=8, epoch=2) != first != batches(loader, seed=7, epoch=3)


def test_a_fixed_generator_wins_over_the_seed_of_the_run() -> None:
    def loader() -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(3)
        return DataLoader(DATA, batch_size=4, shuffle=True, generator=generator)

    assert batches(loader(), seed=0) == batches(loader(), seed=1) != batches(loader(), seed=0, epoch=1)


def test_overfitting_takes_the_first_samples_in_their_order() -> None:
    loader = DataLoader(DATA, batch_size=4, shuffle=True)
    assert batches(loader, overfit=2)[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]
