"""No strategy of Lightning's starts processes by itself, and none is given what shards do not go with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.strategies import StrategyRegistry
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from omegaconf import OmegaConf

from assay.assemble.trainer import build_trainer, check_device
from assay.assemble.trainer_options import RUN_ID, num_local_processes
from assay.check.checker import Checker, check_job
from assay.compose.compose import compose, job_config
from assay.config.unread_keys import OUR_DATA, OUR_MODULE
from assay.errors import AssayError, ConfigError
from assay_prove.fit import check_processes
from assay_prove.sharded import check_shares

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    return job_config(compose(["device=cpu", "callbacks=[]"]))


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)


def check(composed: DictConfig, **options: Any) -> tuple[int, Any]:
    """How many processes assay starts, and Lightning's trainer."""
    config = composed.copy()
    OmegaConf.set_struct(config, False)
    config.trainer.update(options)
    check_job(config)
    check_device(config.trainer)
    trainer = build_trainer(config)
    check_processes(config, trainer)
    return num_local_processes(config), trainer


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("strategy", StrategyRegistry.available_strategies())
def test_every_strategy_of_lightnings_registry(composed: DictConfig, strategy: str, devices: int) -> None:
    try:
        started, trainer = check(composed, strategy=strategy, devices=devices)
    except AssayError as error:
        refused = f"{error} -> {error.hint}"
        assert re.search(r"trainer.* -> .+", refused, re.DOTALL), refused
        return
    launcher = trainer.strategy.launcher
    assert launcher is None or isinstance(launcher, _SubprocessScriptLauncher)
    assert started == trainer.num_devices == devices


def test_a_rank_is_one_of_many(composed: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": RUN_ID}
    for name, value in rank.items():
        monkeypatch.setenv(name, value)
    check(composed, strategy="ddp", devices=2)


JOB = ("data=digits", "model=mlp", "model.hidden=[8]", "device=fsdp2", "trainer.accelerator=cpu")


@pytest.fixture(scope="module")
def checker() -> Checker:
    """One that has looked at the data, and at most parts, once."""
    return Checker()


@pytest.mark.parametrize(
    ("num_val", "size", "hint"),
    [(180, 1, "data.eval_batch_size=2"), (5, 512, "trainer.devices=5"), (7, 1, ""), (180, 2, "")],
)
def test_a_custom_module_needs_as_many_batches_in_each_process(num_val: int, size: int, hint: str) -> None:
    config = OmegaConf.create(
        {
            "data": {"_target_": OUR_DATA, "eval_batch_size": size},
            "module": {"_target_": "my.Module"},
            "spec": {"num_val": num_val, "num_test": 0},
            "trainer": {"accelerator": "cpu", "strategy": "ddp", "devices": 7},
        }
    )
    if hint:
        with pytest.raises(ConfigError, match=f"7 processes cannot share {num_val} val samples") as caught:
            check_shares(config)
        assert caught.value.hint == hint
    else:
        check_shares(config)
    config.module._target_ = OUR_MODULE  # which counts no sample twice
    check_shares(config)


def test_64_devices_that_are_not_there(checker: Checker) -> None:
    small = ("data.batch_size=1", "optimizer.fused=null", "data.drop_last=false", "scheduler=none")
    words = (*JOB[:2], "model.hidden=[640,640,640]", *JOB[3:], "trainer.devices=64", *small)
    report = checker.check(checker.job(words)).report
    assert (report.devices, report.parameters) == (64, 868_490)
    assert report.step is not None
    memory, whole = report.step.memory, 4 * 868_490
    # Rows are divided; ten outputs are one row for ten devices, and the first has one of them.
    for part, copies in ((memory.weights, 1), (memory.gradients, 1), (memory.optimizer, 2)):
        assert copies * whole / 64 <= part <= 1.1 * copies * whole / 64
    assert 2 * whole > memory.activations > whole / 4  # of a layer or two the weights are gathered
    assert any("each of 64 devices holds" in note for note in report.notes)
    assert not torch.distributed.is_initialized()


def test_a_step_that_fails_in_shards_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "peeking.py").write_text(PEEKING)
    monkeypatch.syspath_prepend(tmp_path)
    checker = Checker()
    words = (
        "model=linear",
        "model._target_=peeking.Peeking",
        "trusted_packages=[peeking]",
        "trainer.devices=2",
    )
    with pytest.raises(ConfigError, match=r"in shards a training step fails: .*DTensor") as caught:
        checker.check(checker.job([JOB[0], *JOB[3:], *words]))
    assert caught.value.key == "device"


PEEKING = """
from torch import nn
from torch.nn.functional import linear
class Peeking(nn.Module):
    def __init__(self, input_shape, num_outputs):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        self.head = nn.Linear(64, 10)
    def forward(self, inputs):
        inputs = inputs.flatten(1)
        for layer in self.layers:
            inputs = linear(inputs, layer.weight, layer.bias)
        return self.head(inputs)
"""
