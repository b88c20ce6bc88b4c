from __future__ import annotations

import pytest
import torch

from assay.data.loading import placement as module
from assay.data.loading.placement import Placement
from assay.data.memory import free_device_memory, free_memory
from assay.data.samples import Samples

META = torch.device("meta")
ROWS = torch.tensor([2, 0])


def some_samples() -> Samples:
    return Samples(torch.arange(12, dtype=torch.uint8).view(4, 3), torch.arange(4))


def test_a_batch_on_the_cpu_is_a_gather() -> None:
    samples = some_samples()
    inputs, targets = Placement(samples).take(ROWS, torch.device("cpu"))
    assert torch.equal(inputs, samples.inputs[ROWS])
    assert targets.tolist() == [2, 0]


def test_what_fits_moves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []

    def free(device: torch.device) -> int:
        asked.append(device)
        return 2 * (12 + 4 * 8)

    monkeypatch.setattr(module, "free_device_memory", free)
    placement = Placement(some_samples())
    for _ in range(3):
        inputs, targets = placement.take(ROWS, META)
        assert (inputs.device, targets.device, inputs.shape) == (META, META, (2, 3))
    assert placement._inputs.device == META
    assert asked == [META]


def test_what_does_not_fit_stays_and_batches_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: 2 * (12 + 4 * 8) - 1)
    placement = Placement(some_samples())
    inputs, targets = placement.take(ROWS, META)
    assert (inputs.device, targets.device, inputs.shape, inputs.dtype) == (META, META, (2, 3), torch.uint8)
    assert placement._inputs.device == torch.device("cpu")


def test_back_on_the_cpu_after_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: 10**9)
    placement = Placement(some_samples())
    placement.take(ROWS, META)
    assert placement.take(ROWS, torch.device("cpu"))[0].tolist() == [[6, 7, 8], [0, 1, 2]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("free", [10**9, 0])
def test_cuda(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: free)
    samples = some_samples()
    inputs, targets = Placement(samples, pin_memory=True).take(ROWS, torch.device("cuda", 0))
    assert torch.equal(inputs.cpu(), samples.inputs[ROWS])
    assert targets.tolist() == [2, 0]


def test_free_memory_is_what_the_container_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    from pathlib import Path

    from assay.data import memory

    folder = Path(str(tmp_path))
    monkeypatch.setattr(memory, "_CGROUP", folder)
    unlimited = free_memory()
    assert unlimited > 0
    (folder / "memory.max").write_text("1000\n")
    (folder / "memory.current").write_text("400\n")
    assert free_memory() == 600
    (folder / "memory.max").write_text("max\n")
    assert free_memory() > 600
    assert free_device_memory(META) == 0
