"""No strategy of Lightning's may start processes by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch.strategies import StrategyRegistry
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher
from omegaconf import OmegaConf

from assay.build.trainer import build_trainer, check_device
from assay.build.trainer_options import RUN_ID, num_local_processes
from assay.check.callbacks import check_processes
from assay.check.job import check_job
from assay.compose.compose import compose, job_config
from assay.errors import AssayError, ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

DDP = "lightning.pytorch.strategies.DDPStrategy"


@pytest.fixture(scope="module")
def composed() -> DictConfig:
    return job_config(compose(["device=cpu", "callbacks=[]"]))


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)


def job(composed: DictConfig, **trainer: Any) -> DictConfig:
    config = composed.copy()
    OmegaConf.set_struct(config, False)
    config.trainer.update(trainer)
    return config


def check(config: DictConfig) -> Any:
    check_job(config)
    check_device(config.trainer)
    trainer = build_trainer(config)
    check_processes(config, trainer)
    return trainer


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("strategy", StrategyRegistry.available_strategies())
def test_every_strategy_of_lightnings_registry(composed: DictConfig, strategy: str, devices: int) -> None:
    config = job(composed, strategy=strategy, devices=devices)
    refused: AssayError | None = None
    try:
        trainer = check(config)
    except AssayError as error:
        refused = error
    if refused is not None:
        assert refused.hint
        assert "trainer" in str(refused)
        return
    launcher = trainer.strategy.launcher
    assert launcher is None or isinstance(launcher, _SubprocessScriptLauncher)
    assert num_local_processes(config) == trainer.num_devices == devices


@pytest.mark.parametrize("strategy", ["ddp_spawn", "ddp_fork", "ddp_notebook"])
def test_forks_and_spawns(composed: DictConfig, strategy: str) -> None:
    for node in (
        strategy,
        {"_target_": DDP, "start_method": strategy.removeprefix("ddp_").replace("notebook", "fork")},
    ):
        with pytest.raises(ConfigError) as caught:
            check(job(composed, strategy=node))
        assert caught.value.key == "trainer.strategy"
        assert "device=ddp_cpu" in caught.value.hint


@pytest.mark.parametrize("accelerator", ["cpu", "auto"])
@pytest.mark.parametrize("devices", [2, 4, "2"])
@pytest.mark.parametrize("strategy", ["auto", {"_target_": DDP}])
def test_devices_without_a_strategy(
    composed: DictConfig, accelerator: str, devices: object, strategy: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        check(job(composed, accelerator=accelerator, devices=devices, strategy=strategy))
    assert caught.value.key == "trainer.devices"
    assert f"device=ddp_cpu trainer.devices={devices}" in caught.value.hint


@pytest.mark.filterwarnings("ignore:GPU available but not used")
@pytest.mark.parametrize(("devices", "count"), [("auto", 1), (1, 1), (2, 2), ("3", 3)])
def test_what_assay_starts_is_what_lightning_expects(
    composed: DictConfig, devices: object, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)  # the CPU has nothing to do with them
    config = job(composed, strategy="ddp", devices=devices)
    assert num_local_processes(config) == count == check(config).num_devices


def test_a_rank_is_one_of_many(composed: DictConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": RUN_ID,
    }.items():
        monkeypatch.setenv(name, value)
    check(job(composed, strategy="ddp", devices=2))
