from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.data.batch_order import BatchOrder
from assay.splitmix import mix

SIZES = {
    "num_samples": st.integers(1, 60),
    "batch_size": st.integers(1, 9),
    "seed": st.integers(0, 2**40),
    "shuffle": st.booleans(),
    "world_size": st.integers(1, 5),
    "of_lengths": st.booleans(),
}
ORDERS = st.fixed_dictionaries(SIZES)


def ranks(options: dict[str, Any], **more: Any) -> list[BatchOrder]:
    options = {**options}
    if options.pop("of_lengths"):
        generator = torch.Generator().manual_seed(options["seed"])
        more["lengths"] = torch.randint(0, 30, (options["num_samples"],), generator=generator)
    return [BatchOrder(**options, **more, rank=rank) for rank in range(options["world_size"])]


@settings(max_examples=100, deadline=None)
@given(options=ORDERS, epoch=st.integers(0, 5))
def test_evaluation_sees_every_sample_exactly_once(options: dict[str, Any], epoch: int) -> None:
    seen = [row for order in ranks(options) for batch in order.batches(epoch) for row in batch.tolist()]
    assert sorted(seen) == list(range(options["num_samples"]))


@settings(max_examples=100, deadline=None)
@given(options=ORDERS, epoch=st.integers(0, 5), drop_last=st.booleans())
def test_training_ranks_have_equally_many_batches_of_equal_sizes(
    options: dict[str, Any], epoch: int, drop_last: bool
) -> None:
    orders = ranks(options, even=True, drop_last=drop_last)
    batches = [[len(batch) for batch in order.batches(epoch)] for order in orders]
    assert all(sizes == batches[0] for sizes in batches)
    assert all(len(sizes) == len(order) for sizes, order in zip(batches, orders, strict=True))
    assert max(batches[0], default=0) <= options["batch_size"]
    seen = {row for order in orders for batch in order.batches(epoch) for row in batch.tolist()}
    per_step = options["batch_size"] * options["world_size"]
    if drop_last:
        assert all(size == options["batch_size"] for size in batches[0])
        assert len(seen) == options["num_samples"] // per_step * per_step
    else:
        assert seen == set(range(options["num_samples"]))


@settings(max_examples=50, deadline=None)
@given(options=ORDERS, epoch=st.integers(0, 5), start=st.integers(0, 70), drop_last=st.booleans())
def test_starting_later_gives_the_tail(
    options: dict[str, Any], epoch: int, start: int, drop_last: bool
) -> None:
    for order in ranks(options, even=True, drop_last=drop_last):
        whole = [batch.tolist() for batch in order.batches(epoch)]
        assert [batch.tolist() for batch in order.batches(epoch, start)] == whole[start:]


def test_the_order_is_a_function_of_seed_and_epoch_alone() -> None:
    order = BatchOrder(100, batch_size=7, seed=3, shuffle=True)
    state = torch.get_rng_state()
    first = [order.epoch(epoch).tolist() for epoch in (0, 1, 0)]
    torch.manual_seed(99)
    assert first[0] == first[2] == order.epoch(0).tolist()
    assert first[0] != first[1]
    assert BatchOrder(100, batch_size=7, seed=4, shuffle=True).epoch(0).tolist() != first[0]
    torch.set_rng_state(state)
    order.epoch(0)
    assert torch.equal(torch.get_rng_state(), state)


def test_without_shuffling_the_order_stays() -> None:
    batches = list(BatchOrder(5, batch_size=2).batches(epoch=7))
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


def test_nothing_to_order() -> None:
    assert list(BatchOrder(0, batch_size=2, world_size=3).batches(0)) == []


def test_neighbouring_seeds_share_nothing() -> None:
    hashed = {mix(seed, epoch) for seed in range(100) for epoch in range(100)}
    assert len(hashed) == 10_000
    assert all(0 <= value < 2**63 for value in hashed)
    ones = torch.tensor([float(f"{mix(seed, 0):b}".count("1")) for seed in range(1000)])
    assert abs(ones.mean() - 31.5) < 0.5  # half of 63 bits


def test_batches_are_of_similar_lengths_in_random_order() -> None:
    lengths = torch.randint(1, 500, (4000,), generator=torch.Generator().manual_seed(0))
    order = BatchOrder(4000, batch_size=16, seed=3, shuffle=True, even=True, lengths=lengths)
    batches = [lengths[batch] for batch in order.batches(2)]
    padded = sum(int(batch.max()) * len(batch) for batch in batches)
    assert padded < 1.05 * int(lengths.sum())  # in random order almost twice as many
    longest = torch.stack([batch.max() for batch in batches]).double()
    assert abs(torch.corrcoef(torch.stack([longest, torch.arange(len(longest)).double()]))[0, 1]) < 0.2
    assert sorted(torch.cat(order.batches(2)).tolist()) == list(range(4000))
    assert order.batches(3)[0].tolist() != order.batches(2)[0].tolist()


def test_evaluation_goes_from_short_to_long_and_training_without_shuffling_as_the_samples_lie() -> None:
    lengths = torch.tensor([5, 1, 9, 2, 7])
    evaluation = BatchOrder(5, batch_size=2, lengths=lengths).batches(0)
    assert [batch.tolist() for batch in evaluation] == [[1, 3], [0, 4], [2]]
    training = BatchOrder(5, batch_size=2, lengths=lengths, even=True).batches(0)
    assert torch.cat(training).tolist() == list(range(5))
