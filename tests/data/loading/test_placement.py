from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from assay.data import placement as module
from assay.data.data_module import DataModule
from assay.data.normalize import Normalize
from assay.data.placement import Placement, Prepared, free_memory
from assay.data.samples import Samples
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from tests.conftest import Train
    from torch import Tensor

META = torch.device("meta")
ROWS = torch.tensor([2, 0])


def some_samples() -> Samples:
    return Samples(torch.arange(12, dtype=torch.uint8).view(4, 3), torch.arange(4))


def test_what_fits_moves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.device] = []

    def free(device: torch.device) -> int:
        asked.append(device)
        return 2 * (12 + 4 * 8)

    monkeypatch.setattr(module, "free_device_memory", free)
    placement = Placement(some_samples())
    for _ in range(3):
        inputs, targets = next(placement.batches([ROWS], META))
        assert (inputs.device, targets.device, inputs.shape) == (META, META, (2, 3))
    assert placement._inputs.device == META
    assert asked == [META]


def test_what_does_not_fit_stays_and_batches_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: 2 * (12 + 4 * 8) - 1)
    placement = Placement(some_samples())
    inputs, targets = next(placement.batches([ROWS], META))
    assert (inputs.device, targets.device, inputs.shape, inputs.dtype) == (META, META, (2, 3), torch.uint8)
    assert placement._inputs.device == torch.device("cpu")


def test_back_on_the_cpu_after_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: 10**9)
    placement = Placement(some_samples())
    next(placement.batches([ROWS], META))
    assert next(placement.batches([ROWS], torch.device("cpu")))[0].tolist() == [[6, 7, 8], [0, 1, 2]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("free", [10**9, 0])
def test_cuda(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: free)
    samples = some_samples()
    inputs, targets = next(Placement(samples, pin_memory=True).batches([ROWS], torch.device("cuda", 0)))
    assert torch.equal(inputs.cpu(), samples.inputs[ROWS])
    assert targets.tolist() == [2, 0]


PICTURES = torch.randint(0, 256, (67, 3, 5, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TABLE = torch.randn(67, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
TOKENS = torch.arange(67 * 4).view(67, 4)
REAL = TABLE[:, 0].float()


def batches_of(inputs: Tensor, targets: Tensor, prepare: Any, epochs: int, **options: Any) -> list[Any]:
    """The last epoch's batches, of which the last one is smaller than the others."""
    placement = Placement(Samples(inputs, targets), prepare=prepare, **options)
    rows = torch.split(torch.arange(len(inputs)).flip(0), 8)
    return [list(placement.batches(rows, torch.device("cpu"))) for _ in range(epochs)][-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("inputs", "targets", "how"),
    [
        (PICTURES, torch.arange(67, dtype=torch.int32), (([0.1, 0.5, 0.9], [0.2, 0.3, 0.7]), "multiclass")),
        (PICTURES[:, :1], torch.arange(67) % 2, (([0.1307], [0.3081]), "binary")),
        (PICTURES, torch.arange(67), (((), ()), "multiclass")),
        (TABLE, REAL, (([0.3] * 9, [1.7] * 9), "regression")),
        (TABLE.float(), REAL[:, None], (((), ()), "regression")),
        (TOKENS, torch.eye(67, 5), (((), ()), "multilabel")),
    ],
    ids=["pictures", "grey", "unscaled", "table", "as it is", "tokens"],
)
def test_what_is_prepared_at_once_has_the_bits_of_each_batch_by_itself(
    monkeypatch: pytest.MonkeyPatch, inputs: Tensor, targets: Tensor, how: Any, dtype: torch.dtype
) -> None:
    scale, task = how
    normalize = Normalize(*scale)

    def prepare(some: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(some, dtype), task_of(task).batch_targets(wanted, dtype)

    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 13 * inputs[0].numel())
    before = [prepare(*batch) for batch in batches_of(inputs, targets, prepare, epochs=1)]
    after = batches_of(inputs, targets, prepare, epochs=2)
    assert [type(batch) for batch in after] == [Prepared] * 9
    for one, other in zip(before, after, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("processes", [1, 3])
def test_it_is_prepared_at_once_if_the_result_takes_a_quarter_of_what_is_free(
    monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    size = PICTURES.numel() * 4
    for free, kind in ((4 * size * processes, Prepared), (4 * size * processes - 1, tuple)):
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        found = batches_of(
            PICTURES, torch.arange(67), lambda x, y: (x.float(), y), epochs=3, processes=processes
        )
        assert {type(batch) for batch in found} == {kind}


def test_what_needs_nothing_takes_no_memory_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda: 0)
    samples = Samples(TABLE, torch.arange(67))
    placement = Placement(samples, prepare=lambda x, y: (x.to(torch.float64), y.long()))
    for _ in range(2):
        list(placement.batches([torch.arange(67)], torch.device("cpu")))
    assert placement._is_prepared
    assert placement._inputs is samples.inputs
    assert placement._targets is samples.targets


def test_one_look_at_a_small_part_prepares_nothing() -> None:
    placement = Placement(Samples(PICTURES, torch.arange(67)), prepare=lambda x, y: (x.float(), y))
    few = torch.split(torch.arange(16), 8)
    for _ in range(3):  # of 67 samples 16, 32 and 48 were taken
        assert {type(batch) for batch in placement.batches(few, torch.device("cpu"))} == {tuple}
    assert {type(batch) for batch in placement.batches(few, torch.device("cpu"))} == {Prepared}


@pytest.mark.always("bf16")
@pytest.mark.parametrize(
    "words",
    [
        ("precision=bf16_true", "augment=mixup", "model=mlp"),
        ("model=small_cnn", "model.widths=[4,8]", "trainer.channels_last=true", "augment=flip_crop"),
    ],
    ids=["bf16", "channels_last"],
)
def test_a_run_ends_with_the_same_bits_whether_its_data_was_prepared_or_not(
    monkeypatch: pytest.MonkeyPatch, train: Train, words: tuple[str, ...]
) -> None:
    kinds: list[set[type]] = []

    stock = DataModule.on_after_batch_transfer

    def watched(self: DataModule, batch: Any, number: int) -> Any:
        kinds[-1].add(type(batch))
        return stock(self, batch, number)

    monkeypatch.setattr(DataModule, "on_after_batch_transfer", watched)
    runs = []
    for free in (free_memory(), 0):
        monkeypatch.setattr(module, "free_memory", lambda free=free: free)
        kinds.append(set())
        runs.append(train("data=digits", *words, "trainer.max_epochs=3", "data.batch_size=256"))
    assert (Prepared in kinds[0], Prepared in kinds[1]) == (True, False)
    ready, plain = runs
    assert ready.result.metrics == plain.result.metrics
    for name, weights in ready.module.state_dict().items():
        assert torch.equal(weights, plain.module.state_dict()[name]), name


def test_batches_are_cut_to_their_longest_sample() -> None:
    lengths = torch.tensor([3, 8, 9, 20])
    inputs = torch.arange(1, 25) * (torch.arange(24) < lengths[:, None])
    samples = Samples(inputs, torch.arange(4), vocab_size=25, lengths=lengths)
    rows = [torch.tensor([1, 0]), torch.tensor([2, 0]), torch.tensor([3])]
    for prepare in (None, lambda *batch: batch):
        placement = Placement(samples, prepare=prepare)
        for _ in range(3):  # in the end prepared
            batches = list(placement.batches(rows, torch.device("cpu")))
            assert [tuple(batch[0].shape) for batch in batches] == [(2, 8), (2, 16), (1, 24)]
            for chosen, (taken, targets) in zip(rows, batches, strict=True):
                assert torch.equal(targets, chosen)
                assert torch.equal(taken, inputs[chosen, : taken.shape[1]])
                assert not inputs[chosen, taken.shape[1] :].any()
