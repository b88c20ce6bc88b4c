"""Objects that `assay.train` got in Python, in the place of what a config would name."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TARGET = "assay.targets.objects.take"
_PREFIX = "object:"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_objects: ContextVar[Mapping[str, Any]] = ContextVar("objects", default=_NOTHING)
_INSTEAD = {
    "model": "in Python, assay.load(run, model=…) puts its weights into such an object; or put the class "
    "into a package and train with model._target_=PACKAGE.CLASS, or module._target_ of a LightningModule",
    "data": "save the data as a file, or put its class into a package, and train with a config that names it",
}


@contextmanager
def provide_objects(objects: Mapping[str, Any]) -> Iterator[None]:
    """Have `take` return these in the block; those of a block around it are out of sight."""
    token = _objects.set(objects)
    try:
        yield
    finally:
        _objects.reset(token)


def take(argument: Literal["model", "data"], kind: str, digest: str = "") -> Any:
    """The object of an argument of `assay.train`; of a model a copy, so that each use starts alike."""
    del digest
    instance = _objects.get().get(argument)
    if instance is None:
        raise missing_object_error(argument, kind)
    if argument == "model":
        return copy.deepcopy(instance)
    return instance


def missing_object_error(argument: str, kind: str) -> ConfigError:
    """The error of a run that was trained with an object of this class."""
    return ConfigError(
        f"the run was trained on a {kind} object, assay.train({argument}=…), which a config cannot recreate",
        key=argument,
        hint=_INSTEAD[argument],
    )


def current_objects() -> Mapping[str, Any]:
    """The objects that `take` returns here."""
    return _objects.get()


def object_kinds() -> dict[str, str]:
    """The class of each object in sight, for the record."""
    return {argument: kind_of(instance) for argument, instance in _objects.get().items()}


def kind_of(instance: Any) -> str:
    """Full name of an object's class; of a pair that of its first one."""
    if type(instance) in (tuple, list) and instance:
        instance = instance[0]
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def name_of(node: Mapping[str, Any]) -> str:
    """The bare name of the class that a node of a config stands for."""
    target = str(node["_target_"])
    kind = target
    if target == TARGET:
        kind = node["kind"]
    return str(kind).rpartition(".")[2]


def placeholder(instance: Any) -> str:
    """What stands for an object of data where a source has a path."""
    return f"{_PREFIX}{kind_of(instance)}"


def take_from(path: str | Path) -> Any:
    """The object that a path stands for; None for the path of a file."""
    if is_placeholder(path):
        return take("data", str(path).removeprefix(_PREFIX))
    return None


def is_placeholder(path: str | Path) -> bool:
    """Whether a path stands for an object."""
    return str(path).startswith(_PREFIX)
