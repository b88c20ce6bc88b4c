"""Samples of a source, as Lightning trains them and as a person looks at them."""

from __future__ import annotations

import ctypes
import gc
import io
import itertools
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from PIL import Image
from tests.callbacks.quiet_trainer import quiet_trainer
from torch import Tensor, nn
from torchvision.transforms import v2  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.data_module import DataModule
from assay.data.core.loaders import MemoryLoader, StreamLoader
from assay.data.core.rendering import RenderedSample, feature_names, sample_names, show, show_test_samples
from assay.data.core.samples import Samples
from assay.data.core.subset import Subset
from assay.data.core.transforms import Transforms
from assay.data.image.digits import Digits
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


# Lightning 2.6 with torch 2.15
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning")
Build = Callable[..., DataModule]


class Recorder(L.LightningModule):
    """A stock module that notes which samples it sees: a sample's first feature is its number."""

    def __init__(self, features: int = 2) -> None:
        super().__init__()
        self.layer = nn.Linear(features, 2)
        self.seen: dict[str, list[list[int]]] = {"train": [], "val": [], "test": []}

    def note(self, stage: str, batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, targets = batch
        self.seen[stage].append(inputs[:, 0].round().int().tolist())
        return nn.functional.cross_entropy(self.layer(inputs), targets)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        del batch_idx
        return self.note("train", batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        del batch_idx
        self.note("val", batch)

    def test_step(self, batch: Any, batch_idx: int) -> None:
        del batch_idx
        self.note("test", batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-5)


def trainer(tmp_path: Path, **options: Any) -> L.Trainer:
    settings = {"max_epochs": 2, "default_root_dir": tmp_path, **options}
    return quiet_trainer(*settings.pop("callbacks", ()), **settings)


def flat(batches: list[list[int]]) -> list[int]:
    return list(itertools.chain.from_iterable(batches))


def numbered(count: int = 50) -> Samples:
    inputs = torch.stack([torch.arange(float(count)), torch.rand(count)], 1)
    return Samples(inputs, torch.arange(count) % 2)


class Mappings:
    def __init__(self, samples: Samples) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        inputs, target = self.samples[index]
        return {"data": inputs, "label": int(target), "name": f"sample {index}"}


def test_a_stock_lightning_module_trains_on_the_same_samples_streamed_or_in_memory(
    data_module: Build, given_source: Any, tmp_path: Path
) -> None:
    in_memory, modules = numbered(), []
    for data in (in_memory, Samples(Mappings(in_memory), in_memory.targets)):
        source = given_source({"all": data}, "multiclass", ("even", "odd"))
        module, datamodule = Recorder(), data_module(source, drop_last=True)
        runner = trainer(tmp_path)
        runner.fit(module, datamodule)
        runner.test(module, datamodule, verbose=False)
        assert source.prepared == 2
        modules.append(module)
    module, streamed = modules
    assert module.seen == streamed.seen
    first, second = module.seen["train"][:8], module.seen["train"][8:]
    assert len(first) == len(second) == 8  # 35 samples, batches of 4, the last left out
    assert first != second
    val, test = flat(module.seen["val"][-1:]), flat(module.seen["test"])
    assert (len(val), len(test)) == (5, 10)
    train = set(flat(first + second))
    assert not train & set(val)
    assert not train & set(test)


class StopAt(L.Callback):
    """Saves after so many steps, then stops at once."""

    def __init__(self, step: int, path: Path) -> None:
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        del args
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            raise KeyboardInterrupt


@pytest.mark.parametrize("step", [1, 5, 8, 11])
def test_a_resumed_run_sees_what_the_uninterrupted_one_sees(
    data_module: Build, given_source: Any, tmp_path: Path, step: int
) -> None:
    source = given_source({"all": numbered()}, "multiclass", ("even", "odd"))
    whole, before, after = Recorder(), Recorder(), Recorder()
    trainer(tmp_path, max_epochs=3).fit(whole, data_module(source))
    path = tmp_path / "stopped.ckpt"
    with pytest.raises(SystemExit):
        trainer(tmp_path, max_epochs=3, callbacks=[StopAt(step, path)]).fit(before, data_module(source))
    trainer(tmp_path, max_epochs=3).fit(after, data_module(source), ckpt_path=path, weights_only=True)
    assert len(before.seen["train"]) == step
    assert before.seen["train"] + after.seen["train"] == whole.seen["train"]


@pytest.mark.filterwarnings(
    "ignore:Total length of `list` across ranks is zero"
)  # Lightning's, where there is no subset
def test_no_validation_and_no_test_subset(data_module: Build, given_source: Any, tmp_path: Path) -> None:
    source = given_source({"all": numbered()}, "multiclass", ("even", "odd"))
    module, datamodule = Recorder(), data_module(source, split={"val": 0, "test": 0}, drop_last=False)
    trainer(tmp_path, max_epochs=1).fit(module, datamodule)
    assert sorted(flat(module.seen["train"])) == list(range(50))
    assert datamodule.val_dataloader() == datamodule.test_dataloader() == []


def images(count: int = 40, size: int = 8) -> Samples:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)
    return Samples(inputs, torch.arange(count) % 2)


def test_statistics_are_those_of_transformed_samples(data_module: Build, given_source: Any) -> None:
    source = given_source(
        {"train": images(), "test": images(4), "val": images(4)}, "multiclass", ("even", "odd")
    )
    transform = {"train": [v2.Grayscale()], "eval": [v2.Grayscale()], "normalize": "data"}
    datamodule = data_module(source, transform=transform)
    datamodule.setup()
    gray = v2.Grayscale()(images().inputs).double().numpy() / 255
    assert datamodule.spec.input_shape == (1, 8, 8)
    np.testing.assert_allclose(
        [*datamodule.spec.mean, *datamodule.spec.std], [gray.mean(), gray.std()], atol=1e-9
    )


def test_random_transforms_of_data_in_memory_are_left_to_workers(
    data_module: Build, given_source: Any
) -> None:
    source = given_source({"all": images()}, "multiclass", ("even", "odd"))
    batches = []
    for num_workers in (0, 1):
        datamodule = data_module(source, transform={"train": [v2.RandomCrop(4)]}, num_workers=num_workers)
        datamodule.setup()
        loader = datamodule.train_dataloader()
        assert isinstance(loader, StreamLoader if num_workers else MemoryLoader)
        batches.append(list(loader))
    for (inputs, targets), (others, other_targets) in zip(*batches, strict=True):
        assert torch.equal(inputs, others)
        assert torch.equal(targets, other_targets)


def loading() -> set[psutil.Process]:
    """Forks of this process; other tests may have started other programs."""
    own = psutil.Process()
    return {child for child in own.children() if child.cmdline() == own.cmdline()}


class Ends(L.Callback):
    """Notes when the last step ended, and how many processes loaded data then; breaks off where told to."""

    def __init__(self, stop_at: int = -1) -> None:
        self.stop_at, self.processes = stop_at, 0

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        del args
        self.processes = len(loading())
        if trainer.global_step == self.stop_at:
            raise ZeroDivisionError


@pytest.mark.always("-1-True", "10-False")
@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("stop_at", [-1, 10])
def test_no_process_outlives_a_run(
    data_module: Build,
    given_source: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    stop_at: int,
    persistent: bool,
) -> None:
    slow: list[str] = []
    earlier = loading()  # of loaders that other tests have left, which end while this one runs
    join = BaseProcess.join

    def noted(self: BaseProcess, timeout: float | None = None) -> None:
        join(self, timeout)
        if self.is_alive() and self.pid not in {child.pid for child in earlier}:
            slow.append(self.name)

    monkeypatch.setattr(BaseProcess, "join", noted)
    gc.collect()  # loaders of other tests that are garbage by now
    earlier = loading()
    data = Samples(Mappings(numbered()), torch.arange(50) % 2)
    source = given_source({"all": data}, "multiclass", ("even", "odd"))
    datamodule = data_module(
        source, num_workers=2, persistent_workers=persistent, prefetch_factor=2, drop_last=True
    )
    ends, module = Ends(stop_at), Recorder()
    runner = trainer(tmp_path, callbacks=[ends])
    try:
        runner.fit(module, datamodule)
        assert not loading() - earlier
        runner.test(module, datamodule, verbose=False)
    except ZeroDivisionError:
        assert stop_at == 10
    assert not loading() - earlier
    assert not slow, "each ends when it is asked to; none is waited for in vain"
    assert ends.processes >= 2
    if stop_at < 0:
        before = len(module.seen["train"])
        runner.fit_loop.max_epochs = 3
        runner.fit(module, datamodule)
        assert len(module.seen["train"]) == before + 8, "a loader that was closed starts again"
        assert not loading() - earlier


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_workers_do_not_hold_what_was_freed_before_they_start(data_module: Build, given_source: Any) -> None:
    """What a process is forked with stays in memory, and is copied once it is used again."""
    data = Samples(Mappings(numbered()), torch.arange(50) % 2)
    source = given_source({"all": data}, "multiclass", ("even", "odd"))
    datamodule = data_module(source, num_workers=1, persistent_workers=False, prefetch_factor=2)
    datamodule.setup()
    loader: Any = datamodule.train_dataloader()
    blocks = [b"x" * 100_000 for _ in range(3000)]
    used = psutil.Process().memory_info().rss
    pins = blocks[::500] + blocks[-1:]  # glibc gives back by itself what lies on top
    del blocks
    assert psutil.Process().memory_info().rss > used - 50e6
    next(iter(loader))
    assert psutil.Process().memory_info().rss < used - 150e6
    loader.close()
    assert len(pins) == 7


def test_statistics_of_another_number_of_channels(data_module: Build) -> None:
    datamodule = data_module(Digits(), transform={"normalize": "imagenet"})
    with pytest.raises(DataError, match=r"data\.transform\.normalize: 3 values for inputs of 1 channel"):
        datamodule.setup()


def test_targets_have_the_form_of_their_task(data_module: Build, given_source: Any) -> None:
    inputs = torch.rand(40, 3)
    cases = [
        ("regression", torch.rand(40, 1), torch.rand(4, dtype=torch.float64), (4, 1), torch.float32),
        ("multilabel", torch.ones(40, 2, dtype=torch.int64), torch.ones(4, 2), (4, 2), torch.float32),
        ("binary", torch.arange(40) % 2, torch.tensor([True, False]), (2,), torch.int64),
    ]
    for task, targets, batch, shape, dtype in cases:
        names = () if task == "regression" else ("a", "b")
        datamodule = data_module(given_source({"all": Samples(inputs, targets)}, task, names))
        datamodule.setup()
        moved = datamodule.on_after_batch_transfer((inputs[: len(batch)], batch), 0)[1]
        assert (moved.shape, moved.dtype) == (shape, dtype)


@pytest.mark.parametrize(
    ("drop_last", "number", "trained"),
    [
        *(("auto", 84, 84), ("auto", 128, 128), ("auto", 40, 40), ("auto", 65, 64), ("auto", 1300, 1280)),
        *((True, 84, 64), (False, 84, 84), (False, 65, 65)),
    ],
)
def test_what_the_last_batch_leaves_out_is_said(
    data_module: Callable[..., DataModule],
    given_source: Any,
    drop_last: bool | str,
    number: int,
    trained: int,
) -> None:
    samples = Samples(torch.randn(number, 3), torch.arange(number) % 2)
    source = given_source({"all": samples}, "multiclass", ("a", "b"))
    datamodule = data_module(source, batch_size=64, drop_last=drop_last, split={"val": 0, "test": 0})
    datamodule.setup()
    assert sum(len(inputs) for inputs, _ in datamodule.train_dataloader()) == trained
    told = [note for note in datamodule.notes if f"{number - trained} of {number:,} training samples" in note]
    assert len(told) == (trained < number)


def shown(inputs: Any, positions: list[int], transforms: Any = (), **options: Any) -> list[RenderedSample]:
    targets = torch.zeros(len(inputs))
    samples = Samples(inputs, targets)
    data = Samples(samples, targets) if options.pop("streamed", False) else samples
    rows = torch.arange(len(inputs))
    return show(Subset(data, rows, rows, Transforms(transforms), "test"), positions, 0, *options.values())


def pixels(one: RenderedSample) -> Any:
    assert one.picture is not None
    return np.asarray(Image.open(io.BytesIO(one.picture)))


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_a_picture_is_what_the_model_gets(channels: int, streamed: bool) -> None:
    inputs = torch.randint(0, 256, (5, channels, 6, 8), dtype=torch.uint8)
    found = shown(inputs, [3, 1], [v2.CenterCrop(4)], streamed=streamed, raw=None, columns=())
    wanted = v2.CenterCrop(4)(inputs)[[3, 1]].permute(0, 2, 3, 1).squeeze(3)
    for one, image in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(pixels(one), image)
        assert one.row is None


def test_floats_are_grey_over_their_range() -> None:
    unit = torch.tensor([0.0, 0.5, 1.0, 0.2]).view(1, 1, 2, 2)
    assert pixels(shown(unit, [0], raw=None, columns=())[0]).tolist() == [[0, 128], [255, 51]]
    wide = torch.tensor([[-4.0, 0.0, 4.0, 16.0], [0.0, 0.0, 0.0, 0.0]]).view(2, 1, 2, 2)
    both = shown(wide, [0, 1], raw=None, columns=())
    assert pixels(both[0]).tolist() == [[0, 51], [102, 255]]
    assert pixels(both[1]).tolist() == [[51, 51], [51, 51]]


def test_rows_have_the_names_of_their_columns() -> None:
    inputs = torch.tensor([[13.44, 1.0], [0.1, 2.0]])
    assert shown(inputs, [1], raw=None, columns=("a", "b"))[0].row == {"a": 0.1, "b": 2.0}
    assert shown(inputs, [0], raw=None, columns=())[0].row == {"0": 13.44, "1": 1.0}
    assert shown(torch.zeros(1, 1001), [0], raw=None, columns=())[0].row is None
    table = pd.DataFrame(
        {
            "text": ["x", None],
            "whole": pd.array([1, None], dtype="Int64"),
            "when": [pd.Timestamp("2024-02-29"), pd.NaT],
            "on": [True, False],
        }
    )
    found = shown(inputs, [0, 1], raw=table, columns=())
    assert [one.row for one in found] == [
        {"text": "x", "whole": 1, "when": "2024-02-29 00:00:00", "on": True},
        {"text": None, "whole": None, "when": None, "on": False},
    ]
    assert [one.picture for one in found] == [None, None]


def test_rows_are_called_by_their_columns(data_module: Build, given_source: Any) -> None:
    samples = Samples(
        torch.arange(40.0).view(20, 2),
        torch.arange(20) % 2,
        names=[f"row {at}" for at in range(20)],
        columns=("length", "width"),
    )
    data = data_module(given_source({"all": samples}, "multiclass", ("a", "b")))
    data.setup()
    at = int(data.splits.rows["test"][1])
    assert sample_names(data)[1] == f"row {at}"
    assert feature_names(data) == ("length", "width")
    assert show_test_samples(data, [1])[0].row == {"length": 2.0 * at, "width": 2.0 * at + 1}
