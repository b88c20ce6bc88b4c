"""Every device trains where the machine has it, and is refused in one line where it does not."""

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
    tried = {"cpu", "auto", "gpu", "mps", "ddp", "fsdp", "ddp_cpu"}  # ddp_cpu in tests/run/test_ranks.py
    assert {option.name for option in list_options("device")} == tried


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("cpu", "cpu"),
        ("auto", "cuda" if GPU else "mps" if MPS else "cpu"),
        pytest.param("gpu", "cuda", marks=with_gpu),
        pytest.param("ddp", "cuda", marks=with_gpu),
        pytest.param("fsdp", "cuda", marks=with_gpu),
        pytest.param("mps", "mps", marks=pytest.mark.skipif(not MPS, reason="this machine has no Apple GPU")),
    ],
)
def test_trains_there(train: Train, device: str, kind: str) -> None:
    one = ["trainer.devices=1"] if device in ("ddp", "fsdp") else []
    run = train(*TINY, f"device={device}", *one, keep_passes=True)
    assert {one.inputs.device.type for one in run.watch.passes} == {kind}
    assert {one.output.device.type for one in run.watch.passes} == {kind}
    assert run.trainer.strategy.root_device.type == kind
    assert run.watch.falls(0.95)
    assert f"device: {kind}" in (run.run_dir / "log.txt").read_text()


@no_gpu
@pytest.mark.parametrize("device", ["gpu", "mps", "ddp", "fsdp"])
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
