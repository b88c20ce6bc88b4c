"""Which packages a config may name besides those assay knows: the user's own, named by the user alone.

They stand in `project.yaml` of the project's config folder, or are typed as `trusted_packages=[my_project]`.
A group option, an experiment, a loaded run or a checkpoint can never name one.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.config.yaml_file import load_yaml
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hydra._internal.hydra import Hydra
    from hydra.core.override_parser.types import Override

KEY = "trusted_packages"
_FILE = "project.yaml"
_NAME = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", re.ASCII)
_NOBODYS_OWN = frozenset(
    (
        *("assay", "cloudpickle", "dill", "hydra", "hydra_plugins", "importlib_metadata"),
        *("joblib", "lightning", "lightning_fabric", "lightning_utilities", "matplotlib", "numpy"),
        *("omegaconf", "pandas", "pip", "pkg_resources", "psutil", "pyarrow"),
        *("pytorch_lightning", "rich", "safetensors", "scipy", "setuptools", "sklearn"),
        *("sympy", "tensorboard", "torch", "torchaudio", "torchmetrics", "torchvision"),
        *("typer", "wandb", "yaml"),
    )
)
"""Libraries: to trust one whole would let a config call its loaders; what is safe in them needs no trust."""


@final
@dataclass(frozen=True)
class Trust:
    """The packages that the user has named.

    Attributes:
        project: In the project's own `project.yaml`.
        typed: On the command line.
    """

    project: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()

    @property
    def packages(self) -> list[str]:
        """All of them, each once."""
        return sorted({*self.project, *self.typed})


def trust(overrides: Iterable[str], folder: Path | None) -> Trust:
    """What is trusted for a command.

    Args:
        overrides: As typed.
        folder: The project's folder of config groups, where there is one.

    Raises:
        ConfigError: A name is none, or is a library's.
    """
    return Trust(project_packages(folder), typed_packages(overrides))


def project_folder(hydra: Hydra) -> Path | None:
    """The user's own folder of config groups.

    Args:
        hydra: From `assay.config.compose.loader()`.
    """
    for place in hydra.config_loader.get_search_path().get_path():
        if place.provider == "project" and place.path is not None:
            return Path(place.path.removeprefix("file://"))
    return None


def project_packages(folder: Path | None) -> tuple[str, ...]:
    """The packages that a project names as its own.

    Args:
        folder: Its folder of config groups; its `project.yaml` is read as plain YAML.

    Raises:
        ConfigError: The file cannot be read, or holds anything else.
    """
    path = None if folder is None else folder / _FILE
    if path is None or not path.exists():
        return ()
    example = f"{KEY}: [my_project]"
    try:
        held = load_yaml(path)
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(f"cannot be read: {reason}", file=str(path), hint=example) from error
    plain = OmegaConf.to_container(held, resolve=False)
    if not isinstance(plain, dict) or set(plain) - {KEY}:
        others = (
            ", ".join(str(key) for key in plain if key != KEY) if isinstance(plain, dict) else "no mapping"
        )
        raise ConfigError(f"{KEY} is its only key, but there is {others}", file=str(path), hint=example)
    return checked_names(plain.get(KEY), str(path))


def typed_packages(overrides: Iterable[str]) -> tuple[str, ...]:
    """The packages that a command line names.

    Args:
        overrides: As typed.

    Raises:
        ConfigError: What is given is no list of packages.

    >>> typed_packages(["seed=1", "trusted_packages=[my_project]"])
    ('my_project',)
    """
    names: tuple[str, ...] = ()
    for override in _parsed(overrides, KEY):
        if override.is_sweep_override():
            raise ConfigError("one list holds for all jobs of a sweep", key=KEY, hint=f"{KEY}=[a,b]")
        names = () if override.is_delete() else checked_names(override.value())
    return names


def checked_names(value: Any, file: str = "") -> tuple[str, ...]:
    """Names of packages that a user may call their own.

    Args:
        value: As given.
        file: Where it was written.

    Raises:
        ConfigError: It is no list of names, or one of them is a library's.
    """
    example = f"{KEY}: [my_project]" if file else f"{KEY}=[my_project]"
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise ConfigError(
            f"{value!r} was given; a list of packages was expected", key=KEY, file=file, hint=example
        )
    for name in value:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no package's name", key=KEY, file=file, hint=example)
        if is_library(name):
            raise ConfigError(
                f"{name!r} is a library, no package of your own; what a config may name of it needs no trust",
                key=KEY,
                file=file,
                hint=example,
            )
    return tuple(value)


def is_library(name: str) -> bool:
    """Whether a dotted name lies in a package that cannot be anybody's own.

    Args:
        name: Of a package or what is in it.

    >>> is_library("os.path"), is_library("numpy"), is_library("my_project.os")
    (True, True, False)
    """
    root = name.partition(".")[0]
    return root in sys.stdlib_module_names or root in _NOBODYS_OWN


def settle_trust(config: DictConfig, trusted: Trust) -> None:
    """Write the packages into a composed job; every later step reads them there.

    Args:
        config: Changed in place.
        trusted: Of this command.

    Raises:
        ConfigError: An option or experiment tries to name packages.
    """
    node: Any = config._get_node(KEY) if KEY in config else None
    if OmegaConf.is_config(node) and not (node._is_none() or node._is_interpolation() or node._is_missing()):
        written: Any = OmegaConf.to_container(node, resolve=False)
    else:
        written = None if node is None else node._value()
    if (written or []) != list(trusted.typed):
        raise ConfigError(
            f"an option or experiment names {written!r}; it must not choose what is trusted",
            key=KEY,
            hint=f"if they are your own: {KEY}=[…] on the command line, or in {_FILE} of your config folder",
        )
    with open_dict(config):
        config[KEY] = trusted.packages


def check_search_path(overrides: Iterable[str], trusted: Trust) -> None:
    """Refuse to look for configs in a package that is not trusted: Hydra would import it.

    Args:
        overrides: As typed; a group option cannot set `hydra.searchpath`.
        trusted: Of this command.

    Raises:
        ConfigError: Naming the entry.
    """
    for override in _parsed(overrides, "hydra.searchpath"):
        value = override.value()
        for place in value if isinstance(value, list) else [value]:
            scheme, separator, path = str(place).partition("://")
            if not separator and not scheme.startswith("${"):
                continue
            if scheme == "file":
                continue
            package = path.replace("/", ".").rstrip(".")
            if scheme in ("pkg", "structured") and within(package, trusted.packages):
                make_importable()
                continue
            raise ConfigError(
                f"{place!r} lies in a package that is not trusted",
                key="hydra.searchpath",
                hint="hydra.searchpath=[file://FOLDER]"
                + (f", or {KEY}=[{package}]" if scheme == "pkg" and _NAME.fullmatch(package) else ""),
            )


def _parsed(overrides: Iterable[str], key: str) -> list[Override]:
    """The overrides of one key, parsed; what cannot be parsed is left to Hydra's own message."""
    found = []
    for text in overrides:
        if key not in text:
            continue
        try:
            found += OverridesParser.create().parse_overrides([text])
        except HydraException:
            continue
    return [override for override in found if override.key_or_group == key]


def within(name: str, packages: Sequence[str]) -> bool:
    """Whether a dotted name is one of some packages or lies in one.

    Args:
        name: Of a module or what is in it.
        packages: Dotted names.

    >>> within("a.b", ["a"]), within("a", ["a"]), within("ab.c", ["a"])
    (True, True, False)
    """
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def make_importable() -> None:
    """Let the packages of the project in the current directory be found, after all that is installed."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
