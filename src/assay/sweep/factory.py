"""From a node of `hydra.launcher` or `hydra.sweeper` to the object it describes."""

from __future__ import annotations

import collections.abc
import importlib
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any, Final

from assay.compose.hydra_node import HYDRAS_OWN, SWEEP_PARTS
from assay.config.did_you_mean import did_you_mean
from assay.error_location import one_line_of
from assay.errors import AssayError, ConfigError
from assay.targets.annotation import accepts, in_words
from assay.targets.resolve import own_class
from assay.targets.trust import KEY, within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_UNUSED: Final = ("_target_", "max_batch_size")


def arguments(node: Mapping[str, Any]) -> dict[str, Any]:
    """What a node hands to its class.

    Args:
        node: As plain data.
    """
    return {name: value for name, value in node.items() if name not in _UNUSED}


def made(
    kind: Callable[..., Any],
    values: Mapping[str, Any],
    key: str,
    /,
    *,
    others: Sequence[str] = (),
    **given: Any,
) -> Any:
    """Call a class with values from a config, each of which is looked at before.

    Args:
        kind: The class.
        values: By argument.
        key: Of the node that they stand in.
        others: Keys of the node that others read, for messages.
        **given: Further arguments, which are not from a config.

    Raises:
        ConfigError: A value is not what the class takes.
    """
    names = [name for name in inspect.signature(kind).parameters if name not in given]
    for name, value in values.items():
        full = f"{key}.{name}"
        if name not in names:
            raise ConfigError(
                f"nothing reads this key{did_you_mean(name, [*names, *others], '; ')}",
                key=full,
                hint=f"there is: {', '.join([*names, *others])}",
            )
        hint = _hint(kind, name)
        if not accepts(hint, value):
            raise ConfigError(f"{in_words(hint)} was expected, not {value!r}", key=full, hint=f"{full}=…")
    try:
        return kind(**values, **given)
    except AssayError:
        raise
    except ValueError as error:
        name = str(error).partition("=")[0]
        full = f"{key}.{name}" if name in names else key
        raise ConfigError(
            str(error), key=full, hint="assay configs hydra/launcher shows what there is"
        ) from error
    except Exception as error:  # whatever a constructor of the user's own raises
        raise ConfigError(
            f"{kind.__module__}.{kind.__qualname__} cannot be made: {one_line_of(error)}",
            key=key,
            hint="--debug shows the traceback",
        ) from error


def target(node: Mapping[str, Any], key: str, base: type, packages: Sequence[str]) -> Any:
    """The class that a node names.

    Args:
        node: As plain data.
        key: Of the node.
        base: `Launcher` or `Search`.
        packages: What the user trusts.

    Raises:
        ConfigError: It names none of assay's, and none of the user's own.
    """
    name = str(node.get("_target_"))
    name = HYDRAS_OWN.get(name, name)
    module, _, kind = name.rpartition(".")
    group = key.replace(".", "/")
    if within(name, packages):
        return own_class(f"{key}._target_", name, packages, base)
    if name not in SWEEP_PARTS[key]:
        raise ConfigError(
            f"{name!r} is not one of assay's {key.rpartition('.')[2]}s",
            key=f"{key}._target_",
            hint=f"assay configs {group} lists them; for one of your own: {KEY}=[…]",
        )
    return getattr(importlib.import_module(module), kind)


def _hint(kind: Any, name: str) -> Any:
    """The annotation of an argument; Any where it takes an object."""
    function = kind.__init__ if inspect.isclass(kind) else kind
    alone = types.SimpleNamespace(__annotations__={name: function.__annotations__.get(name, Any)})
    # What a module imports for the type checker alone is not among its names.
    names = {**vars(collections.abc), **vars(typing), **function.__globals__}
    try:
        return typing.get_type_hints(alone, globalns=names)[name]
    except NameError:
        return Any
