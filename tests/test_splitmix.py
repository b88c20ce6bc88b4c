"""Against the outputs that the authors' C code gives (and Java's SplittableRandom, and numpy's test data)."""

from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from assay.splitmix import mix, splitmix64

GOLDEN = 0x9E3779B97F4A7C15
SEED_1234567 = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
"""The first outputs of SplitMix64 with the seed 1234567."""


def test_the_published_outputs() -> None:
    state = [(1234567 + n * GOLDEN) % 2**64 for n in range(5)]
    assert [splitmix64(one) for one in state] == SEED_1234567


@given(st.integers(), st.integers())
def test_a_mix_has_63_bits_and_depends_on_the_order(first: int, second: int) -> None:
    assert 0 <= mix(first, second) < 2**63
    assert (mix(first, second) == mix(second, first)) == ((first - second) % 2**64 == 0)


def test_neighbours_share_nothing() -> None:
    every = [mix(*numbers) for numbers in product(range(20), repeat=3)]
    assert len(set(every)) == len(every)
    ones = sum(bin(one ^ other).count("1") for one, other in pairwise(every))
    assert abs(ones / (len(every) - 1) - 31.5) < 0.5, "half of the bits differ"
