from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.errors import ConfigError
from assay.targets.optional_packages import check_installed, install_command, require


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes packages as good as not installed: Python itself refuses a module that is None."""

    def take_away(*names: str) -> None:
        for name in names:
            monkeypatch.setitem(sys.modules, name, None)

    return take_away


def node(target: str) -> dict[str, Any]:
    return {"logger": {"one": {"_target_": target}}}


@pytest.mark.parametrize(
    ("target", "packages", "hint"),
    [
        ("lightning.pytorch.loggers.wandb.WandbLogger", "wandb", "pip install 'assay[wandb]'"),
        ("lightning.pytorch.loggers.TensorBoardLogger", "tensorboard tensorboardX", "'assay[tensorboard]'"),
        ("lightning.pytorch.loggers.CometLogger", "comet_ml", "pip install comet-ml"),
    ],
)
def test_what_is_not_there_is_told(without: Any, target: str, packages: str, hint: str) -> None:
    without(*packages.split())
    with pytest.raises(ConfigError, match="not installed") as caught:
        check_installed(OmegaConf.create(node(target)))
    assert caught.value.key == "logger.one"
    assert hint in caught.value.hint


def test_what_is_there_passes(without: Any) -> None:
    without("tensorboardX")
    for target in ("lightning.pytorch.loggers.TensorBoardLogger", "my_project.WandbLogger", "???"):
        check_installed(OmegaConf.create(node(target)))


def test_an_extra_of_the_package_goes_before_the_package() -> None:
    extras = importlib.metadata.metadata("assay").get_all("Provides-Extra") or []
    for extra in extras:
        assert install_command(f"logger.{extra}", extra) == f"pip install 'assay[{extra}]'"


def test_a_package_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As optuna 2, which Hydra's own sweeper brings."""
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: {"optuna": "2.10.1"}.get(name) or version(name)
    )
    require("hydra.launcher", "this launcher", "ray")
    with pytest.raises(ConfigError, match=r"needs optuna >=4, and 2\.10\.1 is installed") as caught:
        require("hydra.sweeper", "this search", "optuna")
    assert caught.value.hint == "pip install 'assay[optuna]'"
