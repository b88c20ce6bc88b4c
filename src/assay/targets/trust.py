"""What the user trusts: packages that a config may name, addresses and folders it may use."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, final

import msgspec
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.config.hydra_internals import parse_override
from assay.config.tree import join_key, split_key, walk_plain
from assay.config.yaml_file import load_yaml
from assay.errors import ConfigError, describe_error
from assay.paths import COMMAND_LINE, PROJECT, project_conf
from assay.rooms import ROOMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from importlib.machinery import ModuleSpec

    from hydra.core.override_parser.types import Override

    from assay.config.hydra_internals import Hydra

KEY = "trusted_packages"
VALUES = "trusted_values"
_FILE = "project.yaml"
_PERSONAL = re.compile(r"\$\{(run_dir|name|seed|(oc\.env|now|short_id):[^${}]*)\}")
_NAME = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", re.ASCII)
_LIBRARIES = frozenset(
    (
        *("assay", *ROOMS, "cloudpickle", "dill", "hydra", "hydra_plugins", "importlib_metadata"),
        *(
            "joblib",
            "lightning",
            "lightning_fabric",
            "lightning_utilities",
            "matplotlib",
            "numpy",
        ),
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
    """What the user has named."""

    project: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    said: frozenset[tuple[str, str]] = frozenset()

    @property
    def packages(self) -> list[str]:
        """All of them, each once."""
        return sorted({*self.project, *self.typed})


def trust(overrides: Iterable[str]) -> Trust:
    """What is trusted for a command that is typed in the current directory."""
    typed = list(overrides)
    folder = project_conf()
    return Trust(
        project_packages(folder), typed_packages(typed), project_values(folder), typed_keys(typed)
    )


def trust_for(hydra: Hydra, overrides: Sequence[str]) -> Trust:
    """Determine which packages a command may import, before anything is composed."""
    trusted = trust(overrides)
    for folder in user_folders(hydra):
        _check_project(folder, overrides, trusted)
    _check_search_path(overrides, trusted)
    _import_config_stores(trusted.packages)
    return trusted


def _check_project(folder: Path, overrides: Iterable[str], trusted: Trust) -> None:
    """Refuse a config folder from elsewhere that wants packages trusted, unless the user has typed them."""
    names = [name for name in project_packages(folder) if name not in trusted.packages]
    if names and not _parse_key_overrides(overrides, KEY):
        raise ConfigError(
            f"this config folder asks to trust {', '.join(names)}, whose code could then run",
            key=KEY,
            file=str(folder),
            hint=f"{KEY}=[{','.join(names)}] if you trust its author; {KEY}=[] to continue without it",
        )


def user_folders(hydra: Hydra) -> list[Path]:
    """The folders of config groups of the project and of --config-dir."""
    places = hydra.config_loader.get_search_path().get_path()
    return [
        Path(str(place.path).removeprefix("file://"))
        for place in places
        if place.provider in (PROJECT, COMMAND_LINE)
    ]


@final
class ProjectFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What `conf/project.yaml` says."""

    trusted_packages: list[str] | None = None
    trusted_values: list[Annotated[str, msgspec.Meta(min_length=1)]] | None = None


def project_packages(folder: Path | None) -> tuple[str, ...]:
    """The packages that a project names as its own."""
    return validate_names(_project(folder).trusted_packages, str(folder and folder / _FILE))


def project_values(folder: Path | None) -> tuple[str, ...]:
    """The addresses, folders and shell lines that a project's configs may use without being typed."""
    return tuple(_project(folder).trusted_values or ())


def _project(folder: Path | None) -> ProjectFile:
    path = None
    if folder is not None:
        path = folder / _FILE
    if path is None or not path.exists():
        return ProjectFile()
    try:
        return msgspec.convert(
            OmegaConf.to_container(load_yaml(path), resolve=False), ProjectFile
        )
    except (YAMLError, OmegaConfBaseException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        hint = f"{KEY}: [my_project], {VALUES}: ['http://mlflow.lab:5000', /scratch/me]"
        raise ConfigError(f"cannot be read: {reason}", file=str(path), hint=hint) from error


def typed_packages(overrides: Iterable[str]) -> tuple[str, ...]:
    """The packages that a command line names."""
    names: tuple[str, ...] = ()
    for override in _parse_key_overrides(overrides, KEY):
        if override.is_sweep_override():
            raise ConfigError(
                "one list applies to all jobs of a sweep", key=KEY, hint=f"{KEY}=[a,b]"
            )
        names = ()
        if not override.is_delete():
            names = validate_names(override.value())
    return names


def typed_keys(overrides: Iterable[str]) -> frozenset[str]:
    """The keys whose values a person has typed, not those that refer to what a config says."""
    keys: set[str] = set()
    for override in _parse_all(overrides):
        if override.is_delete():
            continue
        typed = override.input_line if override.is_sweep_override() else override.value()
        for parts, value in walk_plain(typed, split_key(override.key_or_group)):
            is_personal = "${" not in _PERSONAL.sub("", str(value))
            if is_personal and not isinstance(value, dict):
                keys.add(join_key(parts))  # `a.0` is `a[0]`
    return frozenset(keys)


def validate_names(value: Any, file: str = "") -> tuple[str, ...]:
    """Check the names of trusted packages."""
    example = f"{KEY}=[my_project]"
    if file:
        example = f"{KEY}: [my_project]"
    if value is None:
        return ()
    wrong = ""
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        wrong = f"expected a list of packages, got {value!r}"
    elif unnamed := [name for name in value if not _NAME.fullmatch(name)]:
        wrong = f"{unnamed[0]!r} is not a package's name"
    elif libraries := [name for name in value if is_library(name)]:
        wrong = f"{libraries[0]!r} is a library; the parts that a config may name need no trust"
    if wrong:
        raise ConfigError(wrong, key=KEY, file=file, hint=example)
    return tuple(value)


def is_library(name: str) -> bool:
    """Whether a dotted name is in a library, which cannot be a user's own package.

    >>> is_library("os.path"), is_library("numpy"), is_library("my_project.os")
    (True, True, False)
    """
    root = name.partition(".")[0]
    return root in sys.stdlib_module_names or root in _LIBRARIES


def settle_trust(config: DictConfig, trusted: Trust) -> None:
    """Write the packages into a composed job; every later step reads them there."""
    written: Any = config.get(KEY)
    if list(written or ()) != list(trusted.typed):
        raise ConfigError(
            f"an option or experiment names {written!r}; it must not choose what is trusted",
            key=KEY,
            hint=f"if they are your own: {KEY}=[…] on the command line, or in {_FILE} of your config folder",
        )
    with open_dict(config):
        config[KEY] = trusted.packages


def _check_search_path(overrides: Iterable[str], trusted: Trust) -> None:
    """Refuse to look for configs in a package that is not trusted: Hydra would import it."""
    for override in _parse_key_overrides(overrides, "hydra.searchpath"):
        value = override.value()
        for place in value if isinstance(value, list) else [value]:
            scheme, separator, path = str(place).partition("://")
            if scheme == "file" or (not separator and not scheme.startswith("${")):
                continue
            if scheme != "pkg" or not is_within(path.replace("/", "."), trusted.packages):
                raise ConfigError(
                    f"{place!r} is in a package that is not trusted",
                    key="hydra.searchpath",
                    hint=f"hydra.searchpath=[file://FOLDER], or add {KEY}=[PACKAGE]",
                )
            make_importable()


def _parse_key_overrides(overrides: Iterable[str], key: str) -> list[Override]:
    parsed = _parse_all(text for text in overrides if key in text)
    return [override for override in parsed if override.key_or_group == key]


def _parse_all(overrides: Iterable[str]) -> list[Override]:
    """Overrides, parsed; what cannot be parsed is left to Hydra's own message."""
    parsed = []
    for text in overrides:
        with suppress(HydraException):
            parsed.append(parse_override(text))
    return parsed


def _import_config_stores(packages: Iterable[str]) -> None:
    """Import the modules of trusted packages that name Hydra's `ConfigStore`, as an application does."""
    for package in packages:
        make_importable()
        spec = None
        if "." not in package or find_spec(package.rpartition(".")[0]):
            spec = find_spec(package)
        for path, name in _modules(spec) if spec is not None else ():
            if b"ConfigStore" in path.read_bytes():
                try:
                    import_module(name)
                except (
                    Exception,
                    SystemExit,
                ) as error:  # whatever importing a custom module raises
                    message = f"{name} cannot be imported: {describe_error(error)}"
                    raise ConfigError(
                        message, key=KEY, hint="--debug shows the traceback"
                    ) from error


def _modules(spec: ModuleSpec) -> Iterator[tuple[Path, str]]:
    """The files of a package, or of a single module, and the names under which they are imported."""
    if spec.submodule_search_locations is None and spec.origin:
        yield Path(spec.origin), spec.name
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield path, ".".join((spec.name, *parts)).removesuffix(".__init__")


def is_within(name: str, packages: Sequence[str]) -> bool:
    """Whether a dotted name is one of some packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def make_importable() -> None:
    """Let the packages of the project in the current directory be found, after all that is installed."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
