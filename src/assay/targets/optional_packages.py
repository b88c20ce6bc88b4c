"""Check that optional packages are installed, without importing them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from assay.config.tree import places
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig

_LOGGERS: dict[str, tuple[str, ...]] = {
    "TensorBoardLogger": ("tensorboard", "tensorboardX"),
    "MLFlowLogger": ("mlflow",),
    "WandbLogger": ("wandb",),
    "CometLogger": ("comet_ml",),
    "LitLogger": ("litlogger",),
}
"""What loggers, which are made when the run starts, need; all other classes tell it when they are checked."""
_EXTRAS = {"openpyxl": "excel", "submitit": "slurm"}
"""Assay's extra that has a package, where it is called otherwise."""


def check_installed(config: DictConfig) -> None:
    """Refuse a logger whose package is not installed."""
    for entry in places(config):
        if entry.name == "_target_" and str(entry.raw).startswith("lightning."):
            kind = str(entry.raw).rpartition(".")[2]
            if kind in _LOGGERS:
                require(entry.key.removesuffix("._target_"), kind, *_LOGGERS[kind])


def require(key: str, what: str, *names: str) -> None:
    """Refuse an option of which no package, by one of its names, is installed, or one that is too old."""
    message = ""
    if not any(map(_is_installed, names)):
        message = f"{what} needs the package {names[0]}, which is not installed"
    with suppress(importlib.metadata.PackageNotFoundError):  # of some the name is another one
        version = importlib.metadata.version(names[0])
        for requirement in map(Requirement, importlib.metadata.requires("assay") or ()):
            if requirement.name == names[0] and not requirement.specifier.contains(
                version, prereleases=True
            ):
                message = (
                    f"{what} needs {names[0]} {requirement.specifier}, and {version} is installed"
                )
    if message:
        raise ConfigError(message, key=key, hint=install_command(key, names[0]))


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # a broken one
        return False


def install_command(key: str, package: str) -> str:
    """What to type to install a package: assay's own extra, where there is one for the option."""
    option: Any = key.rpartition(".")[2]
    try:
        extras = importlib.metadata.metadata("assay").get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        extras = []
    for name in (option, _EXTRAS.get(package, package)):
        if name in extras:
            return f"pip install 'assay[{name}]'"
    return f"pip install {package.replace('_', '-')}"
