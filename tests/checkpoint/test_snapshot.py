"""A snapshot is equal to the last bit, shares no memory with what it is of, and is made once a step."""

from collections.abc import Callable

import pytest
import torch

from assay.checkpoint.checkpoint_file import Snapshot


def words(tensor: torch.Tensor) -> bytes:
    storage = tensor.untyped_storage()
    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage).numpy())


DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.bool,
)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 3, 1000])
def test_equal_to_the_last_bit(dtype: torch.dtype, size: int) -> None:
    tensor = torch.randn(size).to(dtype)
    if dtype.is_floating_point and size > 2:
        tensor[:3] = torch.tensor([float("nan"), -0.0, float("inf")])
    copy = Snapshot().copy([tensor])[0]
    assert copy.dtype == dtype
    assert words(copy) == words(tensor)
    if size:
        assert copy.data_ptr() != tensor.data_ptr()


def test_what_shares_memory_shares_it_still() -> None:
    weight = torch.arange(12.0).reshape(3, 4)
    parts = {
        "w": weight,
        "tied": weight,
        "transposed": weight.T,
        "row": weight[1],
        "one": weight[:, :1].expand(3, 9),
    }
    copies = Snapshot().copy(parts)
    assert all(torch.equal(copies[name], part) for name, part in parts.items())
    assert all(copies[name].stride() == part.stride() for name, part in parts.items())
    copies["w"][1, 0] = 100
    assert copies["row"][0] == copies["transposed"][0, 1] == copies["one"][1, 5] == 100
    assert weight[1, 0] == 4


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.tensor([1 + 2j, 3 - 1j]).conj(),
        lambda: torch.tensor([1 + 2j]).conj().imag,
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8),
        lambda: torch.nn.Parameter(torch.ones(3)) * 2,
    ],
    ids=["sparse", "conjugated", "negated", "quantized", "with a gradient"],
)
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")  # PyTorch is about to drop these
def test_tensors_of_other_kinds(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    copy = Snapshot().copy(tensor)
    assert not copy.requires_grad
    assert str(copy.resolve_conj()) == str(tensor.detach().resolve_conj())
