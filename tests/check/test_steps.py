"""Steps on fake tensors, and for real where these cannot follow: what they refuse and what they count."""

from __future__ import annotations

import inspect
import itertools
import re
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, final

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from omegaconf import DictConfig, OmegaConf, open_dict
from tests.check.jobs import IRIS, prove, prove_model
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.lr_scheduler import LambdaLR
from typing_extensions import override

from assay.assemble.assembly import build_optimization
from assay.assemble.recipe import RunLength
from assay.check.report import Memory
from assay.check.values import LIMITS
from assay.compose.compose import compose, job_config
from assay.compose.recipe import settle_recipe
from assay.data.core.batch_order import BatchOrder
from assay.errors import ConfigError, DeviceError
from assay_explain.listing import list_options
from assay_prove.optimization import Curve, follow_lr, lr_curve, unfinished_schedule_warnings
from assay_prove.prove import Prover
from assay_prove.step import batch_sizes, check_capacity

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Train

    from assay.check.report import Report


GIB = 1 << 30
SIZES = ("data.batch_size=21", "data.eval_batch_size=30")
"""Five whole batches of 21; 15 samples to validate, 30 to test."""
pytestmark = pytest.mark.usefixtures("project_code")


# -- the step of a job


def test_tied_weights_are_counted_once() -> None:
    report = prove_model("Tied", "optimizer=adam")
    weights = 4 * 4 + 4 + 4 + 4 * 3 + 3
    assert report.parameters == weights
    assert report.step is not None
    assert report.step.memory.gradients == 4 * weights
    assert report.step.memory.weights == 4 * (weights + 3), "with the class weights of the loss"


def test_a_constructor_that_computes_is_run_for_real() -> None:
    report = prove_model("ComputesWhileMade")
    assert report.step is not None
    assert report.parameters == (4 * 2 + 2) + (2 * 3 + 3)


@pytest.mark.parametrize(
    ("model", "arguments", "says"),
    [
        ("DoublesInside", {}, r"layer 'linear', Linear\(.*float64: both must have the same type"),
        ("GivesAPair", {}, "expected a tensor from the model, got a tuple"),
        ("Frozen", {}, "has no trainable parameter"),
        *(
            ("FailsInEvaluation", {"by": by}, r"in evaluation.*no such branch.*check_models\.py")
            for by in ("", "data", "numpy", "lazy")
        ),
        *(
            ("ForOneBatch", {"size": 21, "by": by}, r"with a batch of (15|30) in evaluation")
            for by in ("", "data", "numpy")
        ),
    ],
)
def test_models_that_cannot_be_trained(model: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model: .*{says}"):
        prove_model(model, *SIZES, **arguments)


@pytest.mark.parametrize(
    ("model", "arguments", "says"),
    [
        ("Lazy", {}, "first batch"),
        ("DataDependent", {}, "depends on the data"),
        ("NeedsPositiveValues", {}, "depends on the data"),
        ("ByWayOfNumpy", {}, "fake tensors do not support it"),
        ("ForOneBatch", {"size": 15, "by": "numpy"}, "fake tensors do not support it"),
    ],
)
def test_models_that_are_unproven_and_not_refused(model: str, arguments: dict[str, Any], says: str) -> None:
    report = prove_model(model, "data.batch_size=15", "data.eval_batch_size=15", **arguments)
    assert report.step is None
    assert says in report.unproven


@pytest.mark.parametrize("rate", [None, 0.1])
def test_an_optimizer_that_chooses_its_rate_and_calls_without_gradients(rate: float | None) -> None:
    config = job_config(compose([*IRIS, "scheduler=none"]))
    with open_dict(config):
        config.optimizer = {"_target_": "check_models.ChoosesItsRate", "_partial_": True, "lr": rate}
    report = Prover().prove(config, curve=True).report
    assert report.step is not None, report.unproven


def prove_module(**arguments: Any) -> Report:
    words = ("callbacks.checkpoint=null", "module._target_=check_modules.Own", *SIZES)
    config = job_config(compose([*IRIS[:2], "trusted_packages=[check_modules]", *words]))
    with open_dict(config):
        config.module.update(arguments)
    return Prover().prove(config).report


def test_custom_modules() -> None:
    for fails in ("", "logger", "trainer"):  # what needs its run is not refused
        assert "custom LightningModule" in prove_module(fails=fails).unproven


@pytest.mark.parametrize(
    ("source", "says"), [("custom", "from the data set"), ("arrays", "data.source.dtype=float32")]
)
def test_integers_as_inputs(source: str, says: str, tmp_path: Path) -> None:
    inputs = np.arange(240, dtype=np.uint16).reshape(60, 4)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=np.arange(60) % 3)
    words = {
        "custom": ("trusted_packages=[check_data]", "data.source.dataset._target_=check_data.Counts"),
        "arrays": (f"data.source.root='{tmp_path}/a.npz'",),
    }
    with pytest.raises(ConfigError) as refused:
        prove("model=linear", f"data={source}", "data.num_workers=0", *words[source])
    assert says in refused.value.hint


# -- memory


def test_a_large_model_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("data=synthetic", "model=mlp", "model.hidden=[60000,60000]")
    monkeypatch.setattr("assay_prove.step.device_memory", lambda _: 24 * GIB)
    with pytest.raises(ConfigError, match=r"^model: a step takes about .* GiB, and this machine has 24 GiB"):
        prove(*words)
    monkeypatch.setattr("assay_prove.step.device_memory", lambda _: 1 << 40)
    report = prove(*words)
    assert report.parameters is not None
    assert report.parameters > 3_000_000_000
    assert report.step is not None
    assert report.step.memory.peak > 50e9


@pytest.mark.parametrize(
    ("gib", "memory", "key", "says"),
    [
        (10, Memory(2 * GIB, 2 * GIB, 0, 4 * GIB), "", ""),
        (0, Memory(GIB << 10, 0, 0, 0), "", ""),  # the device does not say
        (10, Memory(2 * GIB, 2 * GIB, 4 * GIB, 6 * GIB), "", "about 14 GiB, and this machine has 10 GiB"),
        (10, Memory(GIB, GIB, 0, 18 * GIB), "data.batch_size", "this machine has 10 GiB"),
        (10, Memory(5 * GIB, 5 * GIB, 10 * GIB, GIB), "model", "this machine has 10 GiB"),
        (10, Memory(GIB, GIB, 0, 64 * 30 * GIB), "model", "this machine has 10 GiB"),  # no single sample fits
    ],
)
def test_capacity(monkeypatch: pytest.MonkeyPatch, gib: int, memory: Memory, key: str, says: str) -> None:
    monkeypatch.setattr("assay_prove.step.device_memory", lambda _: gib * GIB)
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=False)
    if key:
        with pytest.raises(ConfigError, match=f"^{key}: .*{says}"):
            check_capacity(memory, trainer, (64,))
        return
    warned = check_capacity(memory, trainer, (64,))
    assert len(warned) == bool(says)
    assert says in "".join(warned)


@pytest.mark.parametrize(("free", "says"), [(3, "3 GiB are free: other processes hold the rest"), (4, "")])
def test_memory_that_other_processes_hold_is_named(
    monkeypatch: pytest.MonkeyPatch, free: int, says: str
) -> None:
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda _: (free * GIB, 10 * GIB))
    strategy = SingleDeviceStrategy(torch.device("cuda", 0))
    trainer: Any = SimpleNamespace(strategy=strategy, num_nodes=1, num_devices=1)
    warned = check_capacity(Memory(GIB, GIB, GIB, GIB), trainer, (64,))
    assert len(warned) == bool(says)
    assert says in "".join(warned)


def test_a_driver_that_is_too_old_is_no_fault_of_the_optimizer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 11040). Please update")

    monkeypatch.setattr("torch.optim.AdamW.step", refuse)  # each step asks CUDA whether it records a graph
    with pytest.raises(DeviceError, match=r"^device: The NVIDIA driver on your system is too old") as caught:
        prove("data=digits", "model=mlp", "scheduler=none")
    assert "device=cpu" in caught.value.hint


@final
class Peak(L.Callback):
    """Measures the most memory that steps take on a GPU."""

    def __init__(self) -> None:
        self.bytes = 0

    @override
    def on_train_start(self, *_: Any) -> None:
        torch.cuda.reset_peak_memory_stats()

    @override
    def on_train_end(self, *_: Any) -> None:
        self.bytes = torch.cuda.max_memory_allocated()


SYNTHETIC = ("data=synthetic", "data.source.num_samples=1500")


@pytest.mark.gpu
@pytest.mark.parametrize(
    "words",
    [
        (*SYNTHETIC, "model=mlp", "data.source.input_shape=[256]", "model.hidden=[8192,8192,8192]"),
        (*SYNTHETIC, "model=resnet18", "data.source.input_shape=[3,64,64]", "data.batch_size=512"),
        ("experiment=digits_segmentation", "model.widths=[128,256,512]", "data.batch_size=512"),
        ("experiment=stdlib_gpt", "model.num_layers=8", "model.embedding_size=768", "data.batch_size=32"),
    ],
    ids=["mlp", "resnet", "unet", "gpt"],
)
def test_the_peak_is_that_of_the_allocator(train: Train, words: tuple[str, ...]) -> None:
    """Of steps so large that the workspaces of cuBLAS and cuDNN are a small part."""
    step = prove(*words, "device=gpu").step
    assert step is not None
    peak = Peak()
    train(
        *(*words, "device=gpu", "trainer.limit_train_batches=2", "trainer.limit_val_batches=0"),
        callbacks=[peak],
    )
    assert step.memory.peak == pytest.approx(peak.bytes, rel=0.15)


# -- as torch does it for real


@pytest.mark.parametrize("drop_last", [True, False])
def test_batch_sizes_are_those_of_the_batch_order(monkeypatch: pytest.MonkeyPatch, drop_last: bool) -> None:
    for train, val, size, processes in itertools.product((7, 9, 40, 41), (0, 1, 5, 17), (3, 4, 8), (1, 2, 3)):
        monkeypatch.setattr("assay_prove.step.world_size", lambda _, n=processes: n)
        sizes = {"batch_size": size, "eval_batch_size": size, "drop_last": drop_last}
        data = {"_target_": "assay.data.core.data_module.DataModule", **sizes}
        spec = {"num_train": train, "num_val": val, "num_test": 0}
        found = batch_sizes(OmegaConf.create({"data": data, "spec": spec}))

        def ordered(samples: int, **options: Any) -> set[int]:
            orders = (
                BatchOrder(samples, size, rank=rank, world_size=processes, **options)  # noqa: B023 - used at once
                for rank in range(processes)  # noqa: B023
            )
            return {len(batch) for order in orders for batch in order.batches(0)}

        if drop_last:
            assert not found[True]
        else:
            assert {*found[True], size} == {*ordered(train, even=True), size}
        assert set(found[False]) == (ordered(val) if val else set())


# -- the layer that was at work


LENGTH, STEPS = RunLength(5, 5, 1, 10, 50), RunLength(20, 20, 1, 2, 40)
OPTIONS = {
    group: {option.name: OmegaConf.load(option.path) for option in list_options(group)}
    for group in ("optimizer", "scheduler", "param_groups")
}
SCHEDULES = {
    **dict.fromkeys(
        ("warmup_cosine", "cosine", "onecycle", "polynomial", "exponential", "inverse_sqrt", "none"), ""
    ),
    "multistep": "scheduler.milestones=[1,3]",
    "step": "scheduler.step_size=2",
}
COUNTED = (
    *("scheduler.gamma=0.5", "scheduler.interval=step", "scheduler.frequency=2", "data.batch_size=12"),
    *("trainer.accumulate_grad_batches=2", "trainer.limit_train_batches=7"),
)
"""Lightning counts the batches of each epoch anew, and looks only where the optimizer has stepped."""


@pytest.mark.always("onecycle-more2", "exponential-more9")
@pytest.mark.parametrize(
    ("option", "more"),
    [*((name, typed.split()) for name, typed in SCHEDULES.items()), ("exponential", COUNTED)],
)
def test_every_schedule_is_followed_as_lightning_steps_it(
    option: str, more: tuple[str, ...], train: Callable[..., Any]
) -> None:
    typed = [f"scheduler={option}", "data=iris", "trainer.max_epochs=4", "optimizer=sgd", *more]
    report = prove(*typed, curve=True)
    trained = train(*typed)
    assert report.lr == pytest.approx([rates[0] for rates in trained.watch.lrs], rel=1e-6, abs=1e-12)
    assert len(report.lr) == report.spec["total_steps"]


def test_the_highest_group_is_shown_and_a_long_run_is_cut_short() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.3}])
    length = RunLength(1000, 1000, 1, 10_000, 10_000_000)
    make = partial(LambdaLR, lr_lambda=lambda step: 0.5**step)
    curve = lr_curve(optimizer, make, {"interval": "step"}, length, seconds=0.05)
    assert curve.rates[:3] == pytest.approx([0.3, 0.15, 0.075])
    assert 100 < len(curve.rates) < 10_000_000
    assert curve.note.startswith("the highest of 2 parameter groups; the first ")
    assert not list(curve.warnings()), "nothing is said of a part of a run"


def curve_of(make: Callable[[Any], Any], lr: float = 0.1) -> Curve:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    return lr_curve(optimizer, make, {"interval": "step"}, STEPS, seconds=60.0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda o: schedulers.StepLR(o, 40), "stays at 0.1 in all 40 steps"),
        (lambda o: schedulers.PolynomialLR(o, 10), "0 from step 11 of 40 on"),
        (lambda o: LambdaLR(o, lambda step: step / 4000), "rises to 0.000975 at most in the 40 steps"),
        (lambda o: schedulers.ExponentialLR(o, 1.5), r"rises to 7\.\d+e\+05"),
        (lambda o: schedulers.CosineAnnealingLR(o, 40), ""),
        (lambda o: schedulers.OneCycleLR(o, 0.1, 40), ""),
        (lambda o: schedulers.LinearLR(o, 0.01, total_iters=5), ""),
    ],
)
def test_what_a_schedule_hardly_means(make: Callable[[Any], Any], says: str) -> None:
    warned = "; ".join(curve_of(make).warnings())
    assert re.search(says, warned) if says else not warned


@pytest.mark.parametrize(
    ("lr", "make"),
    [
        (0.0, lambda _: None),
        (float("inf"), lambda _: None),
        (0.1, lambda o: schedulers.ExponentialLR(o, -1)),
        (0.1, lambda o: schedulers.ExponentialLR(o, float("nan"))),
        (0.1, lambda o: LambdaLR(o, lambda _: 0)),
    ],
)
def test_learning_rates_that_nothing_can_be_trained_with(lr: float, make: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"^lr is "):
        curve_of(make, lr)


def test_every_count_of_torchs_schedulers_is_checked() -> None:
    """Whatever torch annotates as a whole number."""
    for name, kind in vars(schedulers).items():
        if name.startswith("_") or not (inspect.isclass(kind) and issubclass(kind, schedulers.LRScheduler)):
            continue
        for parameter in inspect.signature(kind).parameters.values():
            whole = parameter.annotation in ("int", "int | None", int, int | None, "Iterable[int]")
            assert not whole or parameter.name in LIMITS["scheduler"], f"{name}.{parameter.name}"


# -- optimizers


def with_optimizer(optimizer: str, **change: Any) -> DictConfig:
    config = OmegaConf.create({"spec": {"steps_per_epoch": 5, "total_steps": 50}})
    for group, name in (("optimizer", optimizer), ("scheduler", "none"), ("param_groups", "all")):
        config[group] = OPTIONS[group][name] or None
    for key, value in change.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    settle_recipe(config)
    return config


def follow(config: DictConfig, model: nn.Module | None = None) -> None:
    model = model or nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    before = [p.detach().clone() for p in model.parameters() if not isinstance(p, nn.UninitializedParameter)]
    follow_lr(config, build_optimization(config), model, LENGTH, seconds=1.0)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("optimizer", OPTIONS["optimizer"])
def test_every_optimizer_needs_a_learning_rate(optimizer: str) -> None:
    follow(with_optimizer(optimizer))
    for lr in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"^optimizer\.lr: ") as caught:
            follow(with_optimizer(optimizer, optimizer__lr=lr))
        assert caught.value.hint.startswith("for example optimizer.lr=")


def test_a_model_that_takes_its_shape_from_the_first_batch_waits() -> None:
    follow(with_optimizer("adamw", optimizer__lr=-1), nn.LazyLinear(3))


@pytest.mark.parametrize(
    ("scheduler", "says"),
    [
        ({"T_max": 50, "interval": "step"}, ""),
        ({"T_max": 1000, "interval": "step"}, "scheduler.T_max=1000: this run has 50 steps"),
        ({"T_max": 50, "interval": "epoch"}, "this run has 10 epochs"),
        ({"T_max": 50, "interval": "step", "frequency": 2}, "this run has 25 steps"),
        ({"lr_lambda": {"total_steps": 90}, "interval": "step"}, "scheduler.lr_lambda.total_steps=90"),
    ],
)
def test_schedules_that_are_not_finished(scheduler: dict[str, Any], says: str) -> None:
    found = unfinished_schedule_warnings(OmegaConf.create({"scheduler": scheduler}), LENGTH)
    assert len(found) == bool(says)
    assert says in "".join(found)
