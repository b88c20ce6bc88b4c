"""Devices, processes and callbacks of a job's trainer, against a machine that has these or not."""

from __future__ import annotations

import logging
import re
import warnings
from contextlib import suppress
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf, open_dict
from torch import nn

from assay.assemble.trainer import (
    build_trainer,
    check_device,
    notes_on_gpu,
    silence_lightning,
)
from assay.assemble.trainer_options import RUN_ID, num_local_processes, world_size
from assay.compose.compose import compose, job_config
from assay.config.unread_keys import SHARDED
from assay.errors import ConfigError, DeviceError

NOTHING, ONE_GPU, FOUR_GPUS, APPLE = (0, False), (1, False), (4, False), (0, True)


@pytest.mark.parametrize(
    ("machine", "asked", "says", "hint"),
    [
        (NOTHING, ("cpu", 2, "32-true"), "", ""),
        (NOTHING, ("auto", 1, "bf16-mixed"), "", ""),
        (ONE_GPU, ("auto", 1, "16-mixed"), "", ""),
        (FOUR_GPUS, ("gpu", -1, "32-true"), "", ""),
        (FOUR_GPUS, ("cuda", [1, 3], "32-true"), "", ""),
        (FOUR_GPUS, ("cuda", "3,", "32-true"), "", ""),
        (FOUR_GPUS, ("cuda", "4", "32-true"), "", ""),
        (APPLE, ("gpu", 1, "16-mixed"), "", ""),
        (APPLE, ("cpu", 1, "64-true"), "", ""),
        (NOTHING, ("gpu", 1, "32-true"), "no GPU", "device=cpu"),
        (NOTHING, ("mps", 1, "32-true"), "no Apple GPU", "device=cpu"),
        (APPLE, ("cuda", 1, "32-true"), "no GPU", "device=cpu"),
        (NOTHING, ("cpu", 1, "16-mixed"), "precision=fp16", "precision=bf16"),
        (NOTHING, ("auto", 1, "16-true"), "precision=fp16", "precision=bf16"),
    ],
)
def test_devices(
    monkeypatch: pytest.MonkeyPatch,
    machine: tuple[int, bool],
    asked: tuple[Any, ...],
    says: str,
    hint: str,
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: machine[0])
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: machine[1])
    node = OmegaConf.create(dict(zip(("accelerator", "devices", "precision"), asked, strict=True)))
    if not says:
        check_device(node)
        return
    with pytest.raises(DeviceError, match=says) as caught:
        check_device(node)
    assert hint in caught.value.hint


@pytest.mark.parametrize("visible", ["", "MIG-7f1f3c2a", "GPU-8932f937"])
def test_what_hides_every_gpu_is_named(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)  # as torch says of a UUID that is not there
    with pytest.raises(DeviceError, match=f"CUDA_VISIBLE_DEVICES='{visible}' leaves none"):
        check_device(OmegaConf.create({"accelerator": "cuda"}))


@pytest.mark.parametrize("devices", ["2", "[3]", "'1,'"])
def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, devices: str) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ConfigError, match=r"You requested gpu: \[.*\] But your machine only has: \[0\]"):
        build_trainer(job("device=gpu", f"trainer.devices={devices}"))


@pytest.mark.parametrize(
    ("device", "words", "native", "says"),
    [
        ("cuda:0", (), True, ["trainer.deterministic=true"]),
        ("cuda:0", ("trainer.deterministic=true", "precision=bf16"), True, []),
        ("cuda:0", ("trainer.deterministic=warn", "precision=bf16_true"), False, ["precision=fp16"]),
        ("cpu", ("precision=bf16",), False, []),
    ],
)
def test_what_a_gpu_does_otherwise_is_noted(
    monkeypatch: pytest.MonkeyPatch, device: str, words: tuple[str, ...], native: bool, says: list[str]
) -> None:
    def supports(including_emulation: bool = True) -> bool:
        return native or including_emulation

    monkeypatch.setattr("torch.cuda.is_bf16_supported", supports)
    config = job(*words)
    notes = notes_on_gpu(config, nn.Sequential(nn.Conv2d(1, 1, 1)), torch.device(device))
    assert [re.findall(r"; (\S+)", note)[-1] for note in notes] == says
    assert not [n for n in notes_on_gpu(config, nn.Linear(1, 1), torch.device(device)) if "convol" in n]


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)


def with_strategy(strategy: object, devices: object, num_nodes: int | None = None) -> DictConfig:
    return OmegaConf.create({"trainer": {"strategy": strategy, "devices": devices, "num_nodes": num_nodes}})


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("strategy", "devices", "processes"),
    [
        ("auto", 4, 1),
        ("ddp", 3, 3),
        ("ddp", -1, 4),
        ("ddp", "auto", 4),
        ("ddp", [0, 2], 2),
        ("ddp", "0,2,3", 3),
        ("ddp", "2", 2),
        ("ddp_find_unused_parameters_true", 2, 2),
        ({"_target_": SHARDED}, 2, 2),
        ("fsdp", 2, 1),
    ],
)
def test_num_processes(strategy: object, devices: object, processes: int) -> None:
    assert num_local_processes(with_strategy(strategy, devices)) == processes


@pytest.mark.usefixtures("four_gpus")
def test_a_rank_starts_no_further_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world_size(with_strategy("ddp", 2, num_nodes=3)) == 6
    monkeypatch.setenv("LOCAL_RANK", "0")  # as of torchrun with one process
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert num_local_processes(with_strategy("ddp", 4)) == world_size(with_strategy("ddp", 4)) == 4
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", RUN_ID)
    assert num_local_processes(with_strategy("ddp", 4)) == 1
    assert world_size(with_strategy("ddp", 2)) == 16


# -- the trainer


def job(*overrides: str) -> DictConfig:
    return job_config(compose(["data=wine", "device=cpu", "hydra.run.dir=run", *overrides]))


@pytest.mark.parametrize(
    ("change", "fine"), [({}, False), ({"save_top_k": 3}, False), ({"every_n_epochs": 2}, True)]
)
def test_callbacks_that_a_checkpoint_could_not_tell_apart(change: dict[str, object], fine: bool) -> None:
    config = job("callbacks=[checkpoint]", "callbacks.checkpoint.mode=force_min")
    with open_dict(config):
        config.callbacks.second = {**config.callbacks.checkpoint, **change}
        config.spec = {"num_classes": 3}
    if fine:
        build_trainer(config)
        return
    with pytest.raises(
        ConfigError, match=r"callbacks\.second: has the same settings as callbacks\.checkpoint"
    ):
        build_trainer(config)


def test_only_what_is_meant_as_it_is_is_kept_from_the_terminal() -> None:
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with suppress(KeyError), silence_lightning():
            assert logger.level == logging.WARNING
            warnings.warn("The 'train_dataloader' does not have many workers", stacklevel=1)
            warnings.warn("GPU available but not used. You can set it by doing", stacklevel=1)
            warnings.warn("a tensor was not contiguous", stacklevel=1)
            raise KeyError
        warnings.warn("does not have many workers", stacklevel=1)
    assert [str(one.message) for one in caught] == [
        "a tensor was not contiguous",
        "does not have many workers",
    ]
    assert logger.level == before
