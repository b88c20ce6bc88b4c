"""Every device, precision, model, optimizer, parameter group and debug option in a real run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from assay.compose.listing import list_options
from assay.errors import DeviceError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train


GPU, MPS = torch.cuda.is_available(), torch.backends.mps.is_available()
TINY = ("data=digits", "model=linear", "trainer.limit_train_batches=8", "scheduler=none", "optimizer.lr=0.02")
no_gpu = pytest.mark.skipif(GPU or MPS, reason="this machine has a GPU")
with_gpu = pytest.mark.skipif(not GPU, reason="this machine has no CUDA GPU")


def test_every_option_is_tried() -> None:
    tried = "cpu auto gpu mps ddp ddp_cpu fsdp2"  # the last two in tests/run/test_ranks.py, tests/device
    assert {option.name for option in list_options("device")} == {*tried.split()}


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("cpu", "cpu"),
        ("auto", "cuda" if GPU else "mps" if MPS else "cpu"),
        pytest.param("gpu", "cuda", marks=with_gpu),
        pytest.param("ddp", "cuda", marks=with_gpu),
        pytest.param("mps", "mps", marks=pytest.mark.skipif(not MPS, reason="this machine has no Apple GPU")),
    ],
)
def test_trains_there(train: Train, device: str, kind: str) -> None:
    one = ["trainer.devices=1"] if device == "ddp" else []
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


@with_gpu
def test_a_gpu_too_many_is_refused(train: Train) -> None:
    with pytest.raises(DeviceError, match="this machine has"):
        train(*TINY, "device=gpu", f"trainer.devices={torch.cuda.device_count() + 1}")


# weights and inputs, outputs, matmul precision
DTYPES = {
    "fp32": (torch.float32, torch.float32, "highest"),
    "tf32": (torch.float32, torch.float32, "high"),
    "bf16": (torch.float32, torch.bfloat16, "highest"),
    "bf16_true": (torch.bfloat16, torch.bfloat16, "highest"),
    "fp64": (torch.float64, torch.float64, "highest"),
}


def test_every_option_is_tried_of_precisions() -> None:
    assert {option.name for option in list_options("precision")} == {*DTYPES, "fp16"}


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


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_fp16_is_refused_on_the_cpu(train: Train, device: str) -> None:
    with pytest.raises(DeviceError, match="needs a GPU") as caught:
        train("data=digits", f"device={device}", "precision=fp16")
    assert caught.value.hint == "precision=bf16, or device=gpu"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")
def test_fp16_scales_the_gradients(train: Train) -> None:
    run = train("data=digits", "device=gpu", "precision=fp16", keep_passes=True)
    assert {one.output.dtype for one in run.watch.passes} == {torch.float16}
    assert run.watch.falls(0.95)


def test_no_decay_decays_only_the_matrices(train: Train) -> None:
    """The first step of plain SGD: p - lr * (g + weight_decay * p), with weight_decay for matrices alone."""
    plain, decayed = (
        train(
            *("data=digits", "model=linear", "param_groups=no_decay", "scheduler=none", "optimizer=sgd"),
            *("optimizer.nesterov=false", "optimizer.momentum=0", "trainer.limit_train_batches=1"),
            f"optimizer.weight_decay={weight_decay}",
        )
        for weight_decay in (0.0, 0.5)
    )
    before = decayed.watch.first_weights
    assert torch.equal(plain.weights["model.1.bias"], decayed.weights["model.1.bias"])
    difference = plain.weights["model.1.weight"] - decayed.weights["model.1.weight"]
    torch.testing.assert_close(difference, 0.1 * 0.5 * before["model.1.weight"], rtol=1e-4, atol=1e-6)


DIGITS = ("data=digits", "model=mlp")


def test_every_option_is_tried_of_debugging() -> None:
    tried = ["one_batch", "overfit", "profiler", "anomaly", "small"]
    assert {option.name for option in list_options("debug")} == {*tried}


def test_one_batch(train: Train) -> None:
    run = train(
        *DIGITS, "debug=one_batch", "data.eval_batch_size=256", "trainer.max_epochs=1", keep_passes=True
    )
    assert [len(one.inputs) for one in run.watch.passes] == [32, 180, 256]


def test_overfit_learns_one_batch_by_heart(train: Train) -> None:
    run = train(*DIGITS, "debug=overfit", "optimizer.lr=0.01", "trainer.max_epochs=40", keep_passes=True)
    batches = [one.inputs for one in run.watch.passes if one.training]
    assert len(batches) == 40
    assert all(torch.equal(batch, batches[0]) for batch in batches)
    assert run.watch.losses[0] > 2
    assert run.watch.losses[-1] < 0.01


def test_profiler_writes_its_table(train: Train) -> None:
    run = train(*DIGITS, "debug=profiler", "trainer.limit_train_batches=2")
    [table] = run.run_dir.glob("fit-profile*.txt")
    text = table.read_text()
    assert "run_training_batch" in text
    assert "on_train_batch_start" in text


def test_anomaly_names_the_operation(train: Train) -> None:
    run = train(*DIGITS, "debug=anomaly", "trainer.limit_train_batches=2")
    assert run.watch.anomaly is True
    assert run.moved()
    assert train(*DIGITS, "trainer.limit_train_batches=1").watch.anomaly is False


def test_small(train: Train) -> None:
    run = train(*DIGITS, "debug=small", "trainer.max_epochs=2")
    assert len(run.watch.losses) == 20
    assert run.config.spec.total_steps == 20
    assert len(run.column("train/loss_step")) == 20
    assert run.watch.falls()
