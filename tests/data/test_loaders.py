"""Batches: their order, where they lie, and who loads them."""

from __future__ import annotations

import itertools
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import unchanged_process
from torch import Tensor
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

import assay
import assay.data.core.subset
from assay.config.yaml_file import load_mapping
from assay.data.core import placement
from assay.data.core import placement as module
from assay.data.core.batch_order import BatchOrder
from assay.data.core.data_module import DataModule
from assay.data.core.loaders import MemoryLoader, StreamLoader, input_of
from assay.data.core.normalize import Normalize
from assay.data.core.placement import Placement, Prepared, device_memory, free_memory, take_rows
from assay.data.core.samples import Samples
from assay.data.core.subset import Subset
from assay.data.core.transforms import Transforms
from assay.errors import AssayError, DataError
from assay.splitmix import mix
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from tests.conftest import Train
    from torch import Tensor


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
@given(options=ORDERS, start=st.integers(0, 9))
def test_evaluating_ranks_take_equally_many_batches_and_count_every_sample_once(
    options: dict[str, Any], start: int
) -> None:
    orders = ranks(options, stand_ins=True)
    assert all(len(order.batches(0)) == len(order) for order in orders)
    assert all(len(order.batches(0, start)) == max(0, len(order) - start) for order in orders)
    counted = [
        row
        for order in orders
        for number, batch in enumerate(order.batches(0))
        for row in batch.tolist()
        if order.counts(number)
    ]
    assert sorted(counted) == list(range(options["num_samples"]))


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


SAMPLES = Samples(torch.arange(40, dtype=torch.uint8).view(10, 1, 2, 2), torch.arange(10))
ROWS = torch.tensor([1, 3, 5, 7, 9])
ORDER = BatchOrder(5, batch_size=2, seed=1, shuffle=True)
CPU = torch.device("cpu")


def subset(data: Samples, *transforms: Any, rows: Tensor = ROWS) -> Subset:
    return Subset(data, rows, rows, Transforms(transforms), "train")


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
        stream = Samples(Noisy(mapping), torch.arange(10))
        loader = StreamLoader(subset(stream, crop), ORDER, lambda: (3, 1), num_workers=num_workers)
        both.append(list(loader))
    assert len(both[0]) == 2
    for here, there in zip(*both, strict=True):
        pairs = zip(here.values(), there.values(), strict=True) if mapping else zip(here, there, strict=True)
        for mine, other in itertools.islice(pairs, 2):
            assert torch.equal(mine, other)


@pytest.mark.long  # every run tries a fork server: tests/loop/test_cut_epoch.py
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_of_any_start_method_load_the_same(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.14 on, `forkserver` is the default on Linux; all that travels to a worker is pickled."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))  # theirs is this process's
    crop = v2.RandomCrop(2, padding=1)

    def batches(num_workers: int, **options: Any) -> list[Any]:
        stream = Samples(Noisy(False), torch.arange(10))
        return list(
            StreamLoader(subset(stream, crop), ORDER, lambda: (3, 1), num_workers=num_workers, **options)
        )

    for here, there in zip(batches(0), batches(1, multiprocessing_context=method), strict=True):
        assert all(map(torch.equal, here, there))


class Broken:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        raise DataError(f"sample {index} is broken", hint="mend it")


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_data_error_in_a_worker_stays_short(num_workers: int) -> None:
    loader = StreamLoader(subset(Samples(Broken(), torch.arange(10))), ORDER, start, num_workers=num_workers)
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value).startswith("sample ")
    assert str(caught.value).endswith("is broken\n  → mend it")
    assert caught.value.hint == "mend it"


def test_what_is_not_a_tensor() -> None:
    assert input_of({"image": torch.ones(2), "label": 1}).tolist() == [1, 1]
    with pytest.raises(DataError, match="expected a sample's input to be a tensor, got str"):
        input_of(("text", 1))
    with pytest.raises(DataError, match="cannot be read"):
        input_of(DataError("it cannot be read"))


ROWS_PLACEMENT = torch.tensor([2, 0])


def some_samples() -> Samples:
    return Samples(torch.arange(12, dtype=torch.uint8).view(4, 3), torch.arange(4))


@pytest.mark.parametrize(
    "values",
    [
        *(torch.arange(60).view(4, 3, 5).to(dtype) for dtype in (torch.uint8, torch.bfloat16, torch.float64)),
        torch.arange(60).view(4, 15)[:, :7],
        torch.arange(4),
    ],
    ids=lambda values: f"{values.dtype} {tuple(values.shape)}",
)
def test_rows_are_taken_as_torch_takes_them(values: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.data.core.placement._LARGE_ROW", 1)
    rows = torch.tensor([3, 0, 3])
    taken = take_rows(values, rows)
    assert torch.equal(taken, values[rows])
    taken += 1  # it is no view
    assert torch.equal(taken - 1, values[rows])


@pytest.mark.gpu
@pytest.mark.parametrize("free", [10**9, 0])
def test_cuda(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(module, "free_device_memory", lambda _: free)
    samples = some_samples()
    inputs, targets = next(
        Placement(samples, pin_memory=True).batches([ROWS_PLACEMENT], torch.device("cuda", 0))
    )
    assert torch.equal(inputs.cpu(), samples.inputs[ROWS_PLACEMENT])
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

    monkeypatch.setattr(module, "BLOCK_ELEMENTS", 13 * inputs[0].numel())
    before = [prepare(*batch) for batch in batches_of(inputs, targets, prepare, epochs=1)]
    after = batches_of(inputs, targets, prepare, epochs=2)
    assert [type(batch) for batch in after] == [Prepared] * 9
    for one, other in zip(before, after, strict=True):
        for mine, theirs in zip(one, other, strict=True):
            assert mine.dtype == theirs.dtype
            assert torch.equal(mine, theirs)


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


TOTAL = psutil.virtual_memory().total


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(placement, "_CGROUP", tmp_path)
    return tmp_path


def limit(cgroup: Path, most: str, used: str = "0") -> None:
    (cgroup / "memory.max").write_text(f"{most}\n")
    (cgroup / "memory.current").write_text(f"{used}\n")


def test_a_container_leaves_what_it_has_not_used(cgroup: Path) -> None:
    limit(cgroup, "5000000", "2000000")
    assert free_memory() == 3_000_000
    assert device_memory(CPU) == 5_000_000


@pytest.mark.parametrize("most", ["max", str(TOTAL * 10), "?", None])
def test_without_a_limit_it_is_the_machine(cgroup: Path, most: str | None) -> None:
    if most is not None:
        limit(cgroup, most)
    assert 0 < free_memory() <= TOTAL
    assert device_memory(CPU) == TOTAL


ROWS_SUBSET = torch.tensor([4, 1, 1, 8])


@pytest.fixture
def pictures() -> Samples:
    draw = torch.Generator().manual_seed(0)
    return Samples(torch.randint(256, (9, 3, 6, 6), dtype=torch.uint8, generator=draw), torch.arange(9))


def test_what_draws_nothing_is_applied_once(pictures: Samples) -> None:
    crop, flip = v2.CenterCrop(4), v2.RandomHorizontalFlip()
    subset = Subset(pictures, ROWS_SUBSET, ROWS_SUBSET + 100, Transforms([crop, flip]), "train")
    once = subset.apply_once()
    assert isinstance(once.data, Samples)
    assert torch.equal(once.data.inputs, crop(pictures.inputs[ROWS_SUBSET]))
    assert torch.equal(once.data.targets, ROWS_SUBSET)
    assert once.rows.tolist() == [0, 1, 2, 3]
    assert torch.equal(once.keys, subset.keys), "random draws stay keyed by the sample of the source"
    for epoch in range(3):
        for place in range(len(ROWS_SUBSET)):
            key = int(subset.keys[place])
            whole, _ = subset.transforms.pair(pictures.inputs[ROWS_SUBSET[place]], 0, (0, epoch, key))
            rest, _ = once.transforms.pair(once.data.inputs[place], 0, (0, epoch, key))
            assert torch.equal(whole, rest)


def test_each_class_is_drawn_as_often() -> None:
    targets = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    weights = 1 / targets.bincount()[targets].double()
    order = BatchOrder(1000, 50, seed=3, shuffle=True, weights=weights)
    generator = torch.Generator().manual_seed(mix(3, 4))
    assert torch.equal(
        order.epoch(4), torch.multinomial(weights, 1000, replacement=True, generator=generator)
    )
    drawn = torch.cat([targets[order.epoch(epoch)] for epoch in range(20)]).bincount()
    assert (drawn.double() / drawn.sum() - 1 / 3).abs().max() < 0.02
    assert torch.equal(order.epoch(4), order.epoch(4)), "a pure function of the epoch"
    assert not torch.equal(order.epoch(4), order.epoch(5))
    halves = [
        BatchOrder(1000, 25, 3, True, rank=rank, world_size=2, even=True, weights=weights) for rank in (0, 1)
    ]
    both = torch.stack([torch.cat(half.batches(4)) for half in halves], 1).flatten()
    assert torch.equal(both, order.epoch(4)), "two ranks share what one draws"


def rare(folder: Path) -> list[str]:
    draw = np.random.default_rng(0)
    inputs = draw.normal(size=(2000, 3))
    ill = draw.random(2000) < 1 / (1 + np.exp(-(inputs[:, 0] * 1.5 - 4)))
    pd.DataFrame(inputs, columns=list("abc")).assign(ill=np.where(ill, "yes", "no")).to_csv(
        folder / "rare.csv", index=False
    )
    source = ["data=table", "data.source.path=rare.csv", "data.source.target=ill", "hydra.run.dir=run"]
    return [*source, "model=linear", "device=cpu", "trainer.max_epochs=10", "baseline=none"]


def test_more_samples_are_drawn_than_multinomial_takes() -> None:
    number = (1 << 24) + 2
    weights = torch.ones(number, dtype=torch.float64)
    weights[0] = number
    drawn = BatchOrder(20_000, 50, seed=3, shuffle=True, weights=weights).epoch(0)
    assert (drawn == 0).double().mean().item() == pytest.approx(0.5, abs=0.02)
    assert drawn.max() < number


@pytest.mark.always("sampler-None", "weights-balanced")
@pytest.mark.parametrize(("balance", "weight"), [("none", None), ("sampler", None), ("weights", "balanced")])
def test_rare_ones_are_found(tmp_path: Path, balance: str, weight: str | None) -> None:
    with chdir(tmp_path), unchanged_process():
        result: Any = assay.train([*rare(tmp_path), f"data.balance={balance}"])
        assert load_mapping(tmp_path / "run" / "config.yaml").loss.pos_weight == weight
    assert (result.metrics["test/recall"] > 0.5) == (balance != "none")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["data=diabetes", "data.balance=sampler"], "only classes can be balanced; this is regression"),
        (["data=diabetes", "data.balance=weights"], "MSELoss does not take class weights"),
        (["data=iris", "data.balance=sample"], "expected 'none' | 'weights' | 'sampler'"),
    ],
)
def test_what_is_refused(tmp_path: Path, overrides: list[str], says: str) -> None:
    with chdir(tmp_path), unchanged_process(), pytest.raises(AssayError, match=says) as caught:
        assay.train([*overrides, "device=cpu", "trainer.max_epochs=1"])
    assert "data.balance" in str(caught.value)
    assert not (tmp_path / "outputs").exists()
