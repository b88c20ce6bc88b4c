"""Batch norm, learning rates, averages, the log and NVML in real runs."""

from __future__ import annotations

import csv
import os
import random
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.optim.swa_utils import update_bn
from typing_extensions import override

from assay.assemble.trainer import VARIABLE
from assay.callbacks.batch_norm import BatchNormStatistics
from assay.callbacks.ema import EMA
from assay.callbacks.lr_monitor import LRMonitor
from assay.callbacks.seed_each_step import SeedEachStep

if TYPE_CHECKING:
    from tests.conftest import Train, Trained


ON = "callbacks.batch_norm.num_samples=512"
PICTURES = (
    "data=synthetic",
    "data.source.num_samples=256",
    "data.source.num_classes=3",
    "data.batch_size=32",
)
SMALL = ("data.source.input_shape=[3,32,32]", "data.source.noise=0.3")


def test_they_are_torchs_own(train: Train) -> None:
    """In validation, too, which without them is far off after a short epoch."""
    run = train("data=digits", "model=small_cnn", ON.replace("512", "4000"))
    data, module = run.trainer.datamodule, run.trainer.lightning_module
    ours = {name: one.clone() for name, one in module.state_dict().items()}
    subset = data.subset("train", "eval")
    inputs = data.normalize(subset.data.inputs[subset.rows], torch.float32)
    update_bn(list(inputs.split(data.eval_batch_size)), module)
    for name, one in module.state_dict().items():
        if "running" in name:
            torch.testing.assert_close(one, ours[name], rtol=0.02, atol=0.02)  # batches in another order
    val = data.subset("val", "eval")
    with torch.no_grad():
        logits = module.eval()(data.normalize(val.data.inputs[val.rows], torch.float32))
    expected = nn.functional.cross_entropy(logits, val.data.targets[val.rows]).item()
    assert run.column("val/loss")[-1] == pytest.approx(expected, rel=0.02)


def test_frozen_layers_stay_as_they_are(train: Train, tmp_path: Path) -> None:
    run = train(*PICTURES, *SMALL, "model=small_cnn", "finetune=head", ON)
    means = [
        one
        for name, one in run.trainer.lightning_module.state_dict().items()
        if name.endswith("running_mean")
    ]
    assert means
    assert all(bool((one == 0).all()) for one in means)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="num_samples=0"):
        BatchNormStatistics(0)


@pytest.mark.always("warmup_cosine")
@pytest.mark.parametrize("scheduler", ["warmup_cosine", "step"])
def test_a_short_run_has_its_learning_rate(train: Train, scheduler: str) -> None:
    trained = train(
        "data=wine",
        "model=linear",
        "callbacks=[lr_monitor]",
        f"scheduler={scheduler}",
        "trainer.max_epochs=3",
    )
    with (trained.run_dir / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rates = [float(value) for row in rows for name, value in row.items() if name.startswith("lr-") and value]
    assert len(rates) >= 3, "one per epoch"
    assert set(rates) <= {lr for step in trained.watch.lrs for lr in step} | {rates[0]}
    monitor = next(one for one in trained.trainer.callbacks if isinstance(one, LRMonitor))
    one_epoch = len(trained.watch.lrs) // 3
    assert max(map(len, monitor.lrs.values())) <= one_epoch + 1, "a long run does not fill the memory"


SMALL_RUN_LOG = ("data=iris", "model=linear", "scheduler=none")
BAR = "callbacks=[checkpoint,last_checkpoint,progress_bar]"


def said(run: Trained) -> str:
    return (run.run_dir / "log.txt").read_text()


def epochs(run: Trained) -> list[tuple[int, float]]:
    """Number and validation loss of each epoch's line in the log."""
    found = re.findall(r"epoch +(\d+)(?:/\d+)? .*val loss ([\d.e+-]+)", said(run))
    return [(int(number), float(loss)) for number, loss in found]


@pytest.mark.parametrize("callbacks", [BAR, "callbacks=[last_checkpoint]"])
def test_every_epoch_has_its_line_in_the_log(train: Train, callbacks: str) -> None:
    run = train(*SMALL_RUN_LOG, callbacks, "trainer.max_epochs=4")
    lines = epochs(run)
    assert [number for number, _ in lines] == [1, 2, 3, 4]
    rows = [row for row in run.rows if row["val/loss"]]
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3, 4], "as on the screen"
    for (_, shown), row in zip(lines, rows, strict=True):
        assert shown == pytest.approx(float(row["val/loss"]), abs=1e-4)
    (test,) = [row for row in run.rows if row["test/loss"]]
    assert test["epoch"] == "4"
    assert re.search(r"test +[\d.]+s +loss .*accuracy", said(run))


def test_an_early_stop_is_said(train: Train, capsys: pytest.CaptureFixture[str]) -> None:
    stop = ("callbacks=[early_stopping,progress_bar]", "callbacks.early_stopping.patience=2")
    run = train(*SMALL_RUN_LOG, *stop, "callbacks.early_stopping.min_delta=100", "trainer.max_epochs=9")
    text = "stopped early: Monitored metric val/loss did not improve in the last 2 records"
    assert text in said(run)
    assert text in capsys.readouterr().out
    assert len(epochs(run)) == 3


SMALL_WITHOUT_NVML_CHECK = (
    *("data=digits", "model=mlp", "model.hidden=[4]", "trainer.max_epochs=1"),
    *("trainer.limit_train_batches=3", "trainer.limit_val_batches=2"),
)


class Asked(Callback):
    """Notes the variable in each hook."""

    def __init__(self) -> None:
        self.seen: dict[str, set[str | None]] = {}

    def note(self, hook: str) -> None:
        self.seen.setdefault(hook, set()).add(os.environ.get(VARIABLE))

    @override
    def on_fit_start(self, *_: Any) -> None:
        self.note("fit")

    @override
    def on_train_batch_end(self, *_: Any) -> None:
        self.note("train")

    @override
    def on_validation_batch_end(self, *_: Any) -> None:
        self.note("validation")

    @override
    def on_test_batch_end(self, *_: Any) -> None:
        self.note("test")

    @override
    def teardown(self, *_: Any, **__: Any) -> None:
        self.note("teardown")


@pytest.mark.parametrize("before", ["1", None])
def test_it_is_gone_while_a_run_computes_and_back_afterwards(
    monkeypatch: pytest.MonkeyPatch, train: Train, before: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    asked = Asked()
    train(*SMALL_WITHOUT_NVML_CHECK, callbacks=[asked])
    computing = {name: {None} for name in ("fit", "train", "validation", "test")}
    assert asked.seen == {**computing, "teardown": {before}}


PROJECT = Path(__file__).parents[1] / "training" / "project"
SHORT = ("data=digits", "model=linear", "optimizer.lr=0.05", "trainer.limit_train_batches=12")


class After(Callback):
    """The weights after each optimizer step."""

    def __init__(self) -> None:
        self.weights: list[np.ndarray[Any, Any]] = []

    @override
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object) -> None:
        weights = torch.cat([p.detach().flatten() for p in pl_module.parameters()])
        self.weights.append(weights.double().numpy().copy())


def averaged(steps: list[np.ndarray[Any, Any]], decay: float, warmup: float | None, every: int) -> Any:
    """The paper's recursion, in double precision."""
    taken = steps[::every]
    average = taken[0]
    for update, weights in enumerate(taken[1:], start=2):
        now = decay if warmup is None else min(decay, 1 - 1 / max(1.0, warmup * update))
        average = now * average + (1 - now) * weights
    return average


@pytest.mark.always("0.8-0.5-3")
@pytest.mark.parametrize(
    ("decay", "warmup", "every"), [(0.9, 0.5, 1), (0.9, None, 1), (0.999, 0.1, 1), (0.8, 0.5, 3)]
)
def test_is_the_recursion(train: Train, decay: float, warmup: float | None, every: int) -> None:
    values = {"decay": decay, "warmup_fraction": "null" if warmup is None else warmup}
    typed = [f"callbacks.ema.{name}={value}" for name, value in values.items()]
    ema = ["callbacks=[last_checkpoint,ema]", *typed, f"callbacks.ema.update_every_n_steps={every}"]
    run = train(*SHORT, *ema, "trainer.max_epochs=3", callbacks=[after := After()])
    assert len(after.weights) == 36
    saved = run.checkpoint("last")["state_dict"]
    weights = torch.cat([value.flatten() for value in saved.values()]).double().numpy()
    np.testing.assert_allclose(weights, averaged(after.weights, decay, warmup, every), rtol=1e-4, atol=1e-6)


def test_a_module_that_takes_two_steps_a_batch_by_hand(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its steps are counted by twos: a multiple of an even number was never among them."""
    monkeypatch.syspath_prepend(str(PROJECT))
    ema = ["callbacks=[last_checkpoint,ema]", "callbacks.ema.decay=0.9", "callbacks.ema.warmup_fraction=null"]
    words = ("data=digits", "experiment=gan", *ema, "trainer.max_epochs=3", "trainer.limit_train_batches=20")
    words = (*words, "callbacks.ema.update_every_n_steps=4")
    run = train(*words, callbacks=[after := After()], config_dir=PROJECT / "conf")
    saved = run.checkpoint("last")["state_dict"]
    weights = torch.cat([value.flatten() for value in saved.values()]).double().numpy()
    np.testing.assert_allclose(weights, averaged(after.weights, 0.9, None, 2), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "values", [{"decay": 1.0}, {"decay": -0.1}, {"warmup_fraction": 0.0}, {"update_every_n_steps": 0}]
)
def test_values_out_of_range(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        EMA(**values)


def test_weights_and_buffers_of_another_precision_are_averaged(train: Train) -> None:
    """The loss has a buffer, which Lightning converts after the average was begun."""
    done = train(
        *("data=iris", "model=mlp", "trainer.max_epochs=1", "callbacks=[last_checkpoint,ema]"),
        *("precision=bf16_true", "loss.class_weight=balanced"),
    )
    saved = torch.load(done.run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    for state, dtype in (
        (saved["state_dict"], torch.float32),
        (saved["current_model_state"], torch.bfloat16),
    ):
        assert {value.dtype for value in state.values() if value.is_floating_point()} == {dtype}


FAST = (*PICTURES, "data.source.input_shape=[3,17,17]", "model=fast_cnn", "model.widths=[8,16]")


class Sizes(L.Callback):
    """The height of the images that the model is given in each training step."""

    def __init__(self) -> None:
        self.by_epoch: dict[int, set[int]] = {}

    @override
    def on_fit_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        def look(model: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            if model.training:
                self.by_epoch.setdefault(trainer.current_epoch, set()).add(inputs[0].shape[2])

        pl_module.model.register_forward_pre_hook(look)


def test_a_run_tells_the_augmentation_where_it_is(train: Train) -> None:
    sizes = Sizes()
    arguments = (*FAST, "augment=progressive_resize", "trainer.max_epochs=4", "callbacks=[]")
    train(*arguments, callbacks=[sizes])
    assert sizes.by_epoch == {0: {13}, 1: {13}, 2: {17}, 3: {17}}


def test_whitening_makes_patches_uncorrelated(train: Train) -> None:
    class Patches(L.Callback):
        """What the convolution makes of the training images, as the run ends."""

        @override
        def on_fit_end(self, trainer: L.Trainer, pl_module: Any) -> None:
            data: Any = trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
            layer = pl_module.model.whiten
            images = data.normalize(data.sample_inputs(10**6), torch.float32)
            assert len(images) == data.spec.num_train
            with torch.no_grad():
                self.values = nn.functional.conv2d(images, layer.weight).transpose(0, 1).flatten(1).double()
            self.moved = not torch.equal(layer.bias, torch.zeros_like(layer.bias))
            optimizer = trainer.optimizers[0]
            trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
            self.is_trained = id(layer.weight) in trained

    look = Patches()
    train(*FAST, "callbacks=[whitening]", "callbacks.whitening.eps=1e-9", callbacks=[look])
    half = len(look.values) // 2
    assert half == 3 * 2 * 2
    torch.testing.assert_close(look.values[half:], -look.values[:half])
    covariance = look.values[:half] @ look.values[:half].T / look.values.shape[1]
    torch.testing.assert_close(covariance, torch.eye(half, dtype=torch.float64), atol=1e-4, rtol=0)
    assert look.moved
    assert not look.is_trained


def test_each_step_and_each_generator_draws_anew() -> None:
    progress = SimpleNamespace(total=SimpleNamespace(completed=0))
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_progress=progress))
    trainer: Any = SimpleNamespace(global_rank=0, fit_loop=loop)
    module: Any = SimpleNamespace(device=torch.device("cpu"))
    draws = []
    for step in (*range(12), 3):
        progress.total.completed = step
        SeedEachStep(3).on_train_batch_start(trainer, module, None, 0)
        draws.append((float(torch.rand(())), float(np.random.rand()), random.random()))
    assert draws.pop() == draws[3]
    assert all(len(set(generator)) == 12 for generator in zip(*draws, strict=True))


def test_ranks_and_stages_differ() -> None:
    callback = SeedEachStep(3)
    stages = ["step", "epoch", "val", "test"]
    seeds = {callback.seed_for(*moment) for moment in product(stages, range(8), range(500))}
    assert len(seeds) == 4 * 8 * 500
    # torch's CPU generator takes the lower half of a seed, NumPy the upper one.
    assert len({seed & 0xFFFFFFFF for seed in seeds}) > 0.999 * len(seeds)
    assert len({seed >> 32 for seed in seeds}) > 0.999 * len(seeds)
