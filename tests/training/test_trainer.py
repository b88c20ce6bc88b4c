"""What schedules, seeds and the trainer's own keys promise, in real runs."""

from __future__ import annotations

import hashlib
import math
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

import lightning as L
import numpy as np
import pytest
import torch
from typing_extensions import override

from assay.errors import DeviceError
from assay_explain.listing import list_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from tests.conftest import Train
    from torch import Tensor

    Numbers = NDArray[np.float64]
    from pathlib import Path

    from tests.conftest import Trained


SGD = ("optimizer=sgd", "optimizer.momentum=0", "optimizer.nesterov=false", "optimizer.weight_decay=0")
DIGITS = ("data=digits", "model=linear", "scheduler=none")


def test_clipping_bounds_the_norm_of_each_step(train: Train) -> None:
    clipped = train(*DIGITS, *SGD, "trainer.limit_train_batches=8", "trainer.gradient_clip_val=0.5")
    assert max(clipped.watch.grad_norms) == pytest.approx(0.5, rel=1e-4)
    assert all(norm <= 0.5 * (1 + 1e-5) for norm in clipped.watch.grad_norms)


def test_channels_last(train: Train) -> None:
    """What it computes: `tests/model/test_networks.py`."""
    small = ("data=digits", "model=small_cnn", "model.widths=[8,16]", "trainer.limit_train_batches=4")
    last = train(*small, "trainer.channels_last=true", keep_passes=True)
    kernels = [p for p in last.module.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1]
    assert kernels
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    assert not any(p.is_contiguous() for p in kernels)
    assert all(one.inputs.is_contiguous(memory_format=torch.channels_last) for one in last.watch.passes)


@pytest.mark.always("eager-blocks")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Dynamo asks for it
@pytest.mark.parametrize("how", ["true", "blocks", "reduce-overhead"])
@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_compile_computes_the_same_and_keeps_the_names(
    train: Train, backend: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With torch's own backend (which calls a C++ compiler), and with the one that only traces."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    short = [
        *("data=digits", "model=mlp", "model.hidden=[16,16,16]", "scheduler=none"),
        "trainer.limit_train_batches=3",
    ]
    plain = train(*short)
    torch._dynamo.reset()  # of what other tests have compiled
    torch._dynamo.utils.counters.clear()
    compiled = train(*short, f"trainer.compile={how}", "callbacks=[last_checkpoint]")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert list(compiled.checkpoint("last")["state_dict"]) == list(plain.weights)
    for name, value in plain.weights.items():
        torch.testing.assert_close(compiled.weights[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # as above
def test_exact_statistics_of_batch_norm_break_no_compiled_graph(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    short = (
        *("data=digits", "model=small_cnn", "model.widths=[4,8]", "callbacks=[batch_norm]"),
        *("trainer.limit_train_batches=3", "trainer.max_epochs=2", "data.batch_size=32"),
    )
    plain = train(*short)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = train(*short, "trainer.compile=true")
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert not torch._dynamo.utils.counters["graph_break"]
    for name, value in plain.weights.items():
        torch.testing.assert_close(compiled.weights[name], value, rtol=1e-4, atol=1e-5)


@final
class Overwriting:
    """A compiler whose graphs overwrite what they gave before, as replays of CUDA graphs do."""

    def __init__(self) -> None:
        self.given: list[Tensor] = []

    def __call__(self, graph: Any, inputs: object, **options: object) -> Callable[..., Any]:
        del inputs, options

        def replay(*arguments: object) -> Any:
            outputs = graph(*arguments)
            for output in self.given:
                output.data.fill_(math.nan)
            self.given = [value for value in outputs if value.is_floating_point()]
            return outputs

        return replay


@final
class WithoutCopies(L.Callback):
    """Has the module hand on what a graph gave, which the next replay overwrites."""

    @override
    def setup(self, trainer: L.Trainer, pl_module: Any, stage: str) -> None:
        pl_module.uses_cuda_graphs = False


@pytest.mark.always("small_cnn-True")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # as above
@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("data=digits", "model=small_cnn", "model.widths=[4,8]"), id="small_cnn"),
        pytest.param(("data=wine", "model=mlp"), id="mlp"),
        pytest.param(("experiment=digits_segmentation",), id="unet"),
    ],
)
def test_outputs_outlive_the_next_replay_of_a_cuda_graph(
    train: Train, words: tuple[str, ...], copies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=Overwriting()))
    torch._dynamo.reset()
    short = (*words, "trainer.limit_train_batches=3", "data.batch_size=32", "data.eval_batch_size=12")
    watches = [] if copies else [WithoutCopies()]
    graphs = train(*short, "trainer.compile=reduce-overhead", callbacks=watches).result.metrics
    assert (graphs == pytest.approx(train(*short).result.metrics, rel=1e-4)) is copies


BATCHES, EPOCHS, LR = 5, 3, 0.05
TOTAL = BATCHES * EPOCHS
BASE = (
    *("data=digits", "model=linear", "optimizer=sgd", f"optimizer.lr={LR}", "callbacks=[lr_monitor]"),
    *(f"trainer.max_epochs={EPOCHS}", "data.batch_size=32"),
)


class Times(NamedTuple):
    """Of each optimizer step: its number and its epoch, from 0; and the number of all steps."""

    step: Numbers
    epoch: Numbers
    total: int


def onecycle(t: Numbers, total: int) -> Numbers:
    def cosine(start: float, end: float, part: Numbers) -> Numbers:
        return end + (start - end) / 2 * (1 + np.cos(np.pi * part))

    peak, last = 0.3 * total - 1, total - 1
    up, down = cosine(1 / 25, 1, t / peak), cosine(1, 1 / 25e4, (t - peak) / (last - peak))
    return np.where(t <= peak, up, down)


def half_cosine(part: Numbers) -> Numbers:
    return (1 + np.cos(np.pi * part)) / 2


# (overrides, the factor on the learning rate as a function of optimizer step, epoch and total steps)
SCHEDULES: dict[str, tuple[list[str], Callable[[Times], Numbers]]] = {
    "none": ([], lambda at: np.ones_like(at.step)),
    "step": (["scheduler.step_size=2", "scheduler.gamma=0.5"], lambda at: 0.5 ** (at.epoch // 2)),
    "multistep": (
        ["scheduler.milestones=[1,2]", "scheduler.gamma=0.3"],
        lambda at: 0.3 ** ((at.epoch >= 1).astype(float) + (at.epoch >= 2)),
    ),
    "exponential": ([], lambda at: 0.95**at.epoch),
    "cosine": (
        ["scheduler.eta_min=0.01"],
        lambda at: 0.2 + 0.8 * half_cosine(at.step / at.total),  # 0.2 = eta_min / lr
    ),
    "polynomial": (["scheduler.power=2.0"], lambda at: (1 - at.step / at.total) ** 2),
    "inverse_sqrt": (
        ["scheduler.lr_lambda.warmup_steps=4"],
        lambda at: np.minimum((at.step + 1) / 4, 2 / np.sqrt(at.step + 1)),
    ),
    "warmup_cosine": (
        ["scheduler.lr_lambda.warmup_steps=2", "scheduler.lr_lambda.min_factor=0.1"],
        lambda at: np.where(
            at.step < 2,
            (at.step + 1) / 3,
            0.1 + 0.9 * half_cosine(np.clip((at.step - 2) / (at.total - 2), 0, 1)),
        ),
    ),
    "onecycle": ([], lambda at: onecycle(at.step, at.total)),
}

ACCUMULATED = ("cosine", "exponential", "onecycle", "warmup_cosine")


@pytest.mark.always("exponential-2", "onecycle-1")
@pytest.mark.parametrize(
    ("scheduler", "accumulate"), [*((name, 1) for name in SCHEDULES), *((name, 2) for name in ACCUMULATED)]
)
def test_lr_of_each_step(train: Train, scheduler: str, accumulate: int) -> None:
    overrides, factor = SCHEDULES[scheduler]
    run = train(
        *BASE,
        *(f"scheduler={scheduler}", *overrides, f"trainer.limit_train_batches={BATCHES}"),
        f"trainer.accumulate_grad_batches={accumulate}",
    )
    steps = -(-BATCHES // accumulate)  # the last batch of an epoch steps, however few were gathered
    total = steps * EPOCHS
    t = np.arange(total, dtype=np.float64)
    expected = LR * factor(Times(t, t // steps, total))
    assert run.config.spec.total_steps == total
    assert run.config.spec.steps_per_epoch == steps
    np.testing.assert_allclose([lrs[0] for lrs in run.watch.lrs], expected, rtol=1e-6, atol=1e-9)
    assert len(run.watch.losses) == TOTAL
    assert run.moved()
    if scheduler == "none":  # Lightning's monitor then logs once per batch, too
        np.testing.assert_allclose(run.column("lr-SGD/default"), LR)
        return
    # The monitor logs as the schedule steps: once per epoch, or once per optimizer step.
    per_epoch = run.config.scheduler.interval == "epoch"
    wanted = expected[::steps] if per_epoch else expected
    np.testing.assert_allclose(run.column("lr-SGD/default"), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.always("overrides1-reduced1")
@pytest.mark.parametrize(
    ("overrides", "reduced"),
    [
        (["scheduler.threshold=0.99", "scheduler.patience=0"], [1, 1, 0.1, 0.01]),
        (["scheduler.threshold=0.99", "scheduler.patience=1"], [1, 1, 1, 0.1]),
        (["scheduler.threshold=0.0", "scheduler.patience=0"], [1, 1, 1, 1]),
        (["scheduler.mode=force_max", "scheduler.patience=0"], [1, 1, 0.1, 0.01]),
        (["scheduler.monitor=val/accuracy", "scheduler.mode=max", "scheduler.threshold=0"], [1, 1, 1, 1]),
    ],
)
def test_plateau_follows_what_it_monitors(train: Train, overrides: list[str], reduced: list[float]) -> None:
    """val/loss falls in each epoch: a plateau only where 99 % is asked for, or where it should rise."""
    run = train(
        *BASE, "scheduler=plateau", "trainer.limit_train_batches=5", *overrides, "trainer.max_epochs=4"
    )
    losses = run.column("val/loss")
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 4
    assert losses[1] > 0.01 * losses[0]
    expected = LR * np.repeat(reduced, BATCHES)
    np.testing.assert_allclose([lrs[0] for lrs in run.watch.lrs], expected, rtol=1e-6)


# Everything that draws: dropout, mixup, initial weights, the order of samples.
DRAWING = (
    *("data=digits", "model=mlp", "model.hidden=[16]", "model.dropout=0.5", "augment=mixup"),
    *("trainer.limit_train_batches=8", "trainer.max_epochs=2"),
)


def digest(run: Trained) -> str:
    whole = hashlib.sha256()
    for name, value in sorted(run.weights.items()):
        whole.update(name.encode())
        whole.update(value.numpy().tobytes())
    return whole.hexdigest()


@pytest.fixture(scope="module")
def first(train: Train) -> Trained:
    return train(*DRAWING, "seed=7")


def test_other_seed_other_run(train: Train, first: Trained) -> None:
    other = train(*DRAWING, "seed=8")
    assert digest(other) != digest(first)
    assert other.watch.losses[0] != first.watch.losses[0]
    assert other.record["fingerprint"] != first.record["fingerprint"]
    # The test samples are the same: the split has a seed of its own.
    assert other.record["data_sha256"] == first.record["data_sha256"]


@pytest.mark.always("overrides0")
@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.val_check_interval=2"],
        ["trainer.limit_val_batches=0"],
        ["data.eval_batch_size=50"],
        ["callbacks=[default,device_stats]"],
        ["logger=[]"],
    ],
)
def test_what_is_looked_at_does_not_change_the_weights(
    train: Train, first: Trained, overrides: list[str]
) -> None:
    run = train(*DRAWING, "seed=7", *overrides)
    assert run.watch.losses == first.watch.losses
    assert digest(run) == digest(first)


GPU, MPS = torch.cuda.is_available(), torch.backends.mps.is_available()
TINY = ("data=digits", "model=linear", "trainer.limit_train_batches=8", "scheduler=none", "optimizer.lr=0.02")
no_gpu = pytest.mark.skipif(GPU or MPS, reason="this machine has a GPU")


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("auto", "cuda" if GPU else "mps" if MPS else "cpu"),
        pytest.param("gpu", "cuda", marks=pytest.mark.gpu),
        pytest.param("ddp", "cuda", marks=pytest.mark.gpu),
        pytest.param("fsdp2", "cuda", marks=pytest.mark.gpu),
        pytest.param("mps", "mps", marks=pytest.mark.skipif(not MPS, reason="this machine has no Apple GPU")),
    ],
)
def test_trains_there(train: Train, device: str, kind: str) -> None:
    one = ["trainer.devices=1"] if device in ("ddp", "fsdp2") else []
    run = train(*TINY, f"device={device}", *one, keep_passes=True)
    assert {one.inputs.device.type for one in run.watch.passes} == {kind}
    assert {one.output.device.type for one in run.watch.passes} == {kind}
    assert run.trainer.strategy.root_device.type == kind
    assert run.watch.falls(0.95)
    assert f"device: {kind}" in (run.run_dir / "log.txt").read_text()


@no_gpu
@pytest.mark.parametrize("device", ["gpu", "mps", "ddp"])
def test_is_refused_in_one_line(train: Train, device: str, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="this machine has no") as caught:
        train(*TINY, f"device={device}", cwd=tmp_path)
    assert "\n" not in caught.value.message
    assert "device=cpu" in caught.value.hint
    assert not list(tmp_path.iterdir()), "nothing is written for a run that never began"


# weights and inputs, outputs, matmul precision
DTYPES = {
    "fp32": (torch.float32, torch.float32, "highest"),
    "tf32": (torch.float32, torch.float32, "high"),
    "bf16": (torch.float32, torch.bfloat16, "highest"),
    "bf16_true": (torch.bfloat16, torch.bfloat16, "highest"),
    "fp64": (torch.float64, torch.float64, "highest"),
}


@pytest.mark.always("bf16")
@pytest.mark.parametrize("precision", DTYPES)
def test_dtypes_of_a_run(train: Train, precision: str) -> None:
    weights, outputs, matmul = DTYPES[precision]
    run = train(
        *("data=digits", "model=small_cnn", "model.widths=[8,16]", "optimizer.lr=0.01", "data.batch_size=64"),
        *("trainer.limit_train_batches=12", "scheduler=none", "callbacks=[last_checkpoint]"),
        f"precision={precision}",
        keep_passes=True,
    )
    assert {p.dtype for p in run.module.parameters()} == {weights}
    assert {one.inputs.dtype for one in run.watch.passes} == {weights}
    assert {one.output.dtype for one in run.watch.passes} == {outputs}
    assert run.watch.matmul_precision == matmul
    state = run.trainer.optimizers[0].state.values()
    assert {moment["exp_avg"].dtype for moment in state} == {weights}
    saved = [value for value in run.checkpoint("last")["state_dict"].values() if value.is_floating_point()]
    assert {value.dtype for value in saved} == {weights}
    assert run.watch.falls(0.9), run.watch.losses
    assert run.result.metrics["test/accuracy"] > 0.2


@pytest.mark.gpu
def test_fp16_scales_the_gradients(train: Train) -> None:
    run = train("data=digits", "device=gpu", "precision=fp16", keep_passes=True)
    assert {one.output.dtype for one in run.watch.passes} == {torch.float16}
    assert run.watch.falls(0.95)


DEBUGGED = ("data=digits", "model=mlp")


@pytest.mark.parametrize(
    ("group", "tried"),
    [
        ("scheduler", {*SCHEDULES, "plateau"}),
        ("precision", {*DTYPES, "fp16"}),
        # the last two in tests/run/test_ranks.py, tests/device
        ("device", {"cpu", "auto", "gpu", "mps", "ddp", "ddp_cpu", "fsdp2"}),
        ("debug", {"one_batch", "overfit", "profiler", "anomaly", "small"}),
    ],
)
def test_every_option_is_tried(group: str, tried: set[str]) -> None:
    assert {option.name for option in list_options(group)} == tried


def test_one_batch(train: Train) -> None:
    run = train(
        *DEBUGGED, "debug=one_batch", "data.eval_batch_size=256", "trainer.max_epochs=1", keep_passes=True
    )
    assert [len(one.inputs) for one in run.watch.passes] == [32, 180, 256]


def test_overfit_learns_one_batch_by_heart(train: Train) -> None:
    run = train(*DEBUGGED, "debug=overfit", "optimizer.lr=0.01", "trainer.max_epochs=40", keep_passes=True)
    batches = [one.inputs for one in run.watch.passes if one.training]
    assert len(batches) == 40
    assert all(torch.equal(batch, batches[0]) for batch in batches)
    assert run.watch.losses[0] > 2
    assert run.watch.losses[-1] < 0.01


def test_profiler_writes_its_table(train: Train) -> None:
    run = train(*DEBUGGED, "debug=profiler", "trainer.limit_train_batches=2")
    [table] = run.run_dir.glob("fit-profile*.txt")
    text = table.read_text()
    assert "run_training_batch" in text
    assert "on_train_batch_start" in text


def test_anomaly_names_the_operation(train: Train, first: Trained) -> None:
    run = train(*DEBUGGED, "debug=anomaly", "trainer.limit_train_batches=2")
    assert run.watch.anomaly is True
    assert run.moved()
    assert first.watch.anomaly is False


def test_small(train: Train) -> None:
    run = train(*DEBUGGED, "debug=small", "trainer.max_epochs=2")
    assert len(run.watch.losses) == 20
    assert run.config.spec.total_steps == 20
    assert len(run.column("train/loss_step")) == 20
    assert run.watch.falls()
