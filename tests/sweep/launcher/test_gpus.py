"""Which GPU belongs to which job, whatever the order of leases."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from assay.sweep.launcher.local import Gpus


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=40),
)
def test_no_gpu_has_more_jobs_than_it_may(number: int, shares: int, requests: list[tuple[int, int]]) -> None:
    gpus = Gpus([f"GPU-{index}" for index in range(number)], shares)
    held: list[tuple[str, ...]] = []
    for wanted, place in requests:
        if gpus.free(wanted):
            held.append(gpus.lease(wanted))
            assert len(set(held[-1])) == wanted
        elif held:
            gpus.give_back(held.pop(place % len(held)))
        users = Counter(one for lease in held for one in lease)
        assert max(users.values(), default=0) <= shares
        assert all(users[one] == 1 for lease in held if len(lease) > 1 for one in lease)
    for lease in held:
        gpus.give_back(lease)
    assert gpus.free(number)


def test_the_least_used_comes_first() -> None:
    gpus = Gpus(["a", "b"], 2)
    assert [gpus.lease(1) for _ in range(4)] == [("a",), ("b",), ("a",), ("b",)]
    assert not gpus.free(1)
    gpus.give_back(("b",))
    assert gpus.lease(1) == ("b",)
