"""No strategy of Lightning's may start processes by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch.strategies import StrategyRegistry
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from omegaconf import OmegaConf

from assay.build.trainer import build_trainer, check_device
from assay.build.trainer_options import RUN_ID, num_local_processes
from assay.check.callbacks import check_processes
from assay.check.checker import check_job
from assay.compose.compose import compose, job_config
from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

DDP = {"_target_": "lightning.pytorch.strategies.DDPStrategy"}


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


@pytest.mark.parametrize(
    ("options", "key", "hint"),
    [
        ({"strategy": "ddp_spawn"}, "trainer.strategy", "device=ddp_cpu"),
        ({"strategy": "ddp_notebook"}, "trainer.strategy", "device=ddp_cpu"),
        ({"strategy": DDP | {"start_method": "fork"}}, "trainer.strategy", "device=ddp_cpu"),
        ({"devices": 2}, "trainer.devices", "device=ddp_cpu trainer.devices=2"),
        ({"devices": "2", "accelerator": "auto"}, "trainer.devices", "device=ddp_cpu trainer.devices=2"),
        ({"devices": 4, "strategy": DDP}, "trainer.devices", "device=ddp_cpu trainer.devices=4"),
    ],
)
def test_processes_that_assay_does_not_start(
    composed: DictConfig, options: dict[str, Any], key: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(composed, **options)
    assert caught.value.key == key
    assert hint in caught.value.hint


@pytest.mark.filterwarnings("ignore:GPU available but not used")
@pytest.mark.parametrize(("devices", "count"), [("auto", 1), (2, 2), ("3", 3)])
def test_what_assay_starts_is_what_lightning_expects(
    composed: DictConfig, devices: object, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)  # the CPU has nothing to do with them
    started, trainer = check(composed, strategy="ddp", devices=devices)
    assert started == count == trainer.num_devices


def test_a_rank_is_one_of_many(composed: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": RUN_ID}
    for name, value in rank.items():
        monkeypatch.setenv(name, value)
    check(composed, strategy="ddp", devices=2)
