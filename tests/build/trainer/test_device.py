from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.build.trainer import check_device
from assay.errors import DeviceError


@pytest.fixture
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    gpus, mps = request.param
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)


NOTHING, ONE_GPU, FOUR_GPUS, APPLE = (0, False), (1, False), (4, False), (0, True)


def check(accelerator: str, devices: object = 1, precision: str = "32-true") -> None:
    node = {"accelerator": accelerator, "devices": devices, "precision": precision}
    check_device(OmegaConf.create(node))


@pytest.mark.parametrize(
    ("machine", "accelerator", "devices", "precision"),
    [
        (NOTHING, "cpu", 2, "32-true"),
        (NOTHING, "auto", 1, "bf16-mixed"),
        (NOTHING, "cpu", 1, "64-true"),
        (ONE_GPU, "gpu", 1, "16-mixed"),
        (ONE_GPU, "auto", 1, "16-mixed"),
        (FOUR_GPUS, "gpu", 4, "32-true"),
        (FOUR_GPUS, "gpu", -1, "32-true"),
        (FOUR_GPUS, "gpu", "auto", "32-true"),
        (FOUR_GPUS, "cuda", [1, 3], "32-true"),
        (FOUR_GPUS, "cuda", "0,3", "32-true"),
        (FOUR_GPUS, "cuda", "3,", "32-true"),
        (FOUR_GPUS, "cuda", "4", "32-true"),
        (APPLE, "mps", 1, "16-mixed"),
        (APPLE, "gpu", 1, "32-true"),
        (APPLE, "cpu", 1, "64-true"),
    ],
    indirect=["machine"],
)
def test_is_here(machine: None, accelerator: str, devices: object, precision: str) -> None:
    check(accelerator, devices, precision)


@pytest.mark.parametrize(
    ("machine", "asked", "message", "hint"),
    [
        (NOTHING, ("gpu", 1, "32-true"), "no GPU", "device=cpu"),
        (NOTHING, ("cuda", -1, "32-true"), "no GPU", "device=cpu"),
        (ONE_GPU, ("gpu", 2, "32-true"), "1 GPU", "trainer.devices=1"),
        (FOUR_GPUS, ("gpu", "5", "32-true"), "4 GPU", "trainer.devices=4"),
        (FOUR_GPUS, ("gpu", [0, 4], "32-true"), "no GPU 4", "trainer.devices=[0]"),
        (FOUR_GPUS, ("gpu", "0,7", "32-true"), "no GPU 7", "trainer.devices=[0]"),
        (NOTHING, ("mps", 1, "32-true"), "no Apple GPU", "device=cpu"),
        (APPLE, ("cuda", 1, "32-true"), "no GPU", "device=cpu"),
        (NOTHING, ("cpu", 1, "16-mixed"), "precision=fp16", "precision=bf16"),
        (NOTHING, ("auto", 1, "16-true"), "precision=fp16", "precision=bf16"),
        (APPLE, ("mps", 1, "64-true"), "no double precision", "device=cpu"),
        (APPLE, ("auto", 1, "64-true"), "no double precision", "device=cpu"),
    ],
    indirect=["machine"],
)
def test_is_not_here(machine: None, asked: tuple[Any, ...], message: str, hint: str) -> None:
    with pytest.raises(DeviceError) as caught:
        check(*asked)
    assert message in caught.value.message
    assert hint in caught.value.hint
