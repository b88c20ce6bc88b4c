"""What the user trusts: packages that a config may name, addresses and folders it may use."""

from __future__ import annotations

import os
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
from assay.config.omegaconf_internals import child_node, parent_of, raw_value
from assay.config.tree import Entry, join_key, places, split_key, walk_plain
from assay.config.yaml_file import load_yaml
from assay.errors import ConfigError, describe_error
from assay.paths import COMMAND_LINE, PROJECT, project_conf
from assay.quoting import format_override
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


ADDRESS = "it is an external address"
WRITING = ("callbacks", "logger", "trainer")
"""Nodes whose objects write files."""
_PROSE = ("tags", "notes", "description", "trusted_packages")
_PATH = re.compile(
    r"(.*_)?(dirs?|dirpath|path|files?|filepath|folder|location|logdir|prefix_path)"
)
_ADDRESS = re.compile(
    r"(.*_)?(address|addr|api_key|base_url|endpoint|entity|host|hostname|proxy|proxies|server|teamspace|token|uri|url|workspace)"
)
_SHIPPED = ("sqlite:///outputs/mlflow.db", "outputs/mlflow")
"""What assay's own options say: beside the runs."""
_UNSAFE_NAME = ("filename", "name", "prefix", "sub_dir", "version")
"""Arguments that become part of a file's path."""
_WORD = re.compile(r"\w[\w .=+,@-]{0,99}(/\w[\w .=+,@-]{0,99})*")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_external_values(config: DictConfig, person: Trust) -> None:
    """Refuse a job that would write outside of its run directory, or contact another machine, by itself."""
    check_name(config)
    run_dir = Path(str(config.run_dir)).absolute()
    without_dots = Path(os.path.normpath(run_dir))
    if without_dots.resolve() == run_dir.resolve():  # else `..` comes after a link
        run_dir = without_dots
    if "$" in str(run_dir) and "${" not in str(run_dir):
        raise ConfigError(
            f"{run_dir}: some loggers would expand the $",
            key="hydra.run.dir",
            hint="choose a name without $",
        )
    packages = [str(name) for name in config.get(KEY) or ()]
    for entry in places(config):
        value = entry.value
        root = entry.key.partition(".")[0]
        if root in ("run_dir", "hydra", "name") or root in _PROSE or str(entry.name) in _PROSE:
            continue
        why = ""
        if isinstance(value, str):
            why = _why_external(entry, root, value, run_dir)
        if why and ("://" in value or not is_within(_class_of(entry.parent), packages)):
            refuse_untyped(entry.key, value, why, person)


def check_name(config: DictConfig) -> None:
    """Refuse a name that would lead elsewhere as a part of a path."""
    name = config.get("name")
    if isinstance(name, str) and not _WORD.fullmatch(name):
        message = f"{name!r} cannot be part of a path: expected letters, digits and . - _ = + , @"
        raise ConfigError(message, key="name", hint="name=my_experiment")


def is_path(name: str) -> bool:
    """Whether an argument of this name is a path of a file or folder.

    >>> is_path("save_dir"), is_path("filename")
    (True, False)
    """
    return _PATH.fullmatch(name) is not None


def may_reach_out(key: str, value: Any) -> bool:
    """Whether a value may be one that `check_outside` refuses; quick, and sooner yes than no."""
    name = re.split(r"[.\[\]]", key.rstrip("]"))[-1]
    if not isinstance(value, str):
        return False
    is_named = name == "weights" or is_path(name) or _ADDRESS.fullmatch(name) is not None
    return is_named or any(part in value for part in ("/", "\\", "~", "$", "..", ":"))


def check_place(key: str, path: str | Path, person: Trust) -> None:
    """Refuse a directory for runs or sweeps that lies elsewhere than below the current one, unless typed."""
    if not str(path) or CONTROL.search(str(path)):
        why = "an empty path"
        if str(path):
            why = f"{str(path)!r}, which contains a control character"
        raise ConfigError(
            f"expected a folder, got {why}", key=key, hint=f"{key}=outputs/my_folder"
        )
    here = Path.cwd()
    full_path = Path(os.path.normpath(here / path))
    inside = full_path.is_relative_to(here) and full_path != here
    if inside and not any(part.startswith(".") for part in full_path.relative_to(here).parts):
        return
    if not _is_approved(key, str(path), person):
        refuse_untyped(key, str(path), "runs are written below the current directory", person)


def _why_external(entry: Entry, root: str, value: str, run_dir: Path) -> str:
    """Why only the user may set a value; empty if any config may."""
    why = ""
    if value in _SHIPPED or entry.name == "_target_":
        return why
    if root == "model" and entry.name == "weights" and value.isupper():
        why = "this downloads weights"
    elif "://" in value:
        why = ADDRESS
    elif root in WRITING and value and _ADDRESS.fullmatch(str(entry.name)):
        why = "it is an address to contact"
    elif root in WRITING and value and not _stays_inside(str(entry.name), value, run_dir):
        why = "a run writes only below its own directory"
    return why


def _class_of(node: Any) -> str:
    """What is called with a value; where its code is the person's own, so is what it does with a path."""
    while node is not None:
        target = None
        if isinstance(node, DictConfig):
            target = child_node(node, "_target_")
        if target is not None:
            return str(raw_value(target))
        node = parent_of(node)
    return ""


def _stays_inside(name: str, value: str, run_dir: Path) -> bool:
    """Whether a value is not a path, or one of a place in the run's directory."""
    by_name = is_path(name)
    if "${" in value:  # it waits for the data, whose classes may be called anything
        return not by_name and name not in _UNSAFE_NAME
    parts = re.split(r"[/\\]", value)
    absolute = Path(value).is_absolute()
    is_plain = not value.startswith("~") and "$" not in value  # some classes expand these
    if not (by_name or absolute or ".." in parts) and is_plain:
        return True
    # What is not a name of a path, such as a file's name with `..`, is taken from wherever its class puts it.
    full_path = Path(os.path.normpath(Path.cwd() / value))
    return is_plain and full_path.is_relative_to(run_dir) and (by_name or absolute)


def _is_approved(key: str, value: str, person: Trust) -> bool:
    if key in person.keys or (key, value) in person.said:
        return True
    return ".." not in value.split("/") and any(
        value == allowed or value.startswith(f"{allowed.rstrip('/')}/")
        for allowed in person.values
    )


def refuse_untyped(key: str, value: str, why: str, person: Trust, typed: str = "") -> None:
    """Refuse a value that only the user may set, unless it was typed or listed in the project."""
    if _is_approved(key, value, person):
        return
    raise ConfigError(
        f"{value!r:.200} was not given on the command line, and {why}",
        key=key,
        hint=f"to allow it, type {typed or format_override(key, str(value)):.200}, "
        f"or list it under {VALUES} in conf/project.yaml",
    )


def check_addresses(config: DictConfig, person: Trust) -> None:
    """Refuse data behind an address that a run's config names and nobody has typed."""
    for entry in places(config):
        if (
            entry.key.startswith("data.")
            and isinstance(entry.value, str)
            and "://" in entry.value
        ):
            refuse_untyped(entry.key, entry.value, ADDRESS, person)
