"""Every precision: the type of weights, of what the model is given and of what it returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from assay.compose.listing import list_options
from assay.errors import DeviceError

if TYPE_CHECKING:
    from tests.conftest import Train

# weights and inputs, outputs, matmul precision
DTYPES = {
    "fp32": (torch.float32, torch.float32, "highest"),
    "tf32": (torch.float32, torch.float32, "high"),
    "bf16": (torch.float32, torch.bfloat16, "highest"),
    "bf16_true": (torch.bfloat16, torch.bfloat16, "highest"),
    "fp64": (torch.float64, torch.float64, "highest"),
}


def test_every_option_is_tried() -> None:
    assert {option.name for option in list_options("precision")} == {*DTYPES, "fp16"}


@pytest.mark.always("bf16", "fp64")
@pytest.mark.parametrize("precision", DTYPES)
def test_dtypes_of_a_run(train: Train, precision: str) -> None:
    weights, outputs, matmul = DTYPES[precision]
    run = train(
        *(
            "data=digits",
            "model=small_cnn",
            "model.widths=[8,16]",
            f"precision={precision}",
            "optimizer.lr=0.01",
            "data.batch_size=64",
        ),
        *("trainer.limit_train_batches=12", "scheduler=none", "callbacks=[last_checkpoint]"),
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
