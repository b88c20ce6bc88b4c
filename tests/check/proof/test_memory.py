"""The bytes that live tensors take."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.check.fake_step import LiveMemory


def test_counts_what_is_there_and_what_comes_and_goes() -> None:
    kept = torch.zeros(10)
    with LiveMemory([kept]) as memory:
        assert memory.live == 40
        first = torch.ones(100)
        assert memory.live == 440
        view = first[:10].view(2, 5)
        assert memory.live == 440
        del first
        assert memory.live == 440, "the view still holds it"
        del view
        assert memory.live == 40
        assert memory.peak == 440


def test_values_kept_for_the_backward_pass_live_until_then() -> None:
    weight = torch.ones(1000, requires_grad=True)
    with LiveMemory([weight]) as memory:
        loss = (weight * 2).exp().sum()
        held = memory.live
        assert held >= 4000 + 4000, "exp keeps its result"
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        del loss
        assert memory.live == 4000 + 4000, "weight and gradient"


@given(sizes=st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_fake_tensors_count_as_what_they_stand_for(sizes: list[int]) -> None:
    with FakeTensorMode(), LiveMemory() as memory:
        made = [torch.empty(size, dtype=torch.float64) for size in sizes]
        assert memory.live == memory.peak == 8 * sum(sizes)
        made.clear()
        assert memory.live == 0
