import pytest

from assay.quoting import in_bytes, in_flops


@pytest.mark.parametrize(
    ("count", "flops"),
    [
        (0, "0 FLOP"),
        (999, "999 FLOP"),
        (1_000_000, "1 MFLOP"),
        (2.5e12, "2.5 TFLOP"),
        (10**20, "1e+05 PFLOP"),
    ],
)
def test_operations(count: int, flops: str) -> None:
    assert in_flops(count) == flops


@pytest.mark.parametrize(
    ("count", "size"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (80 << 30, "80 GiB"), (3 << 39, "1.5 TiB")],
)
def test_sizes(count: int, size: str) -> None:
    assert in_bytes(count) == size
