"""From a node of `hydra.launcher` or `hydra.sweeper` to the object it describes."""

from __future__ import annotations

import importlib
import inspect
import typing
from typing import TYPE_CHECKING, Any, Final

from assay.check.annotation import accepts, in_words
from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_OURS: Final = "assay.sweep."


def chosen(node: Mapping[str, Any], key: str, /, **given: Any) -> Any:
    """Build what a node names, from the keys that it takes.

    Args:
        node: As plain data, with a `_target_` in `assay.sweep`.
        key: Of the node.
        **given: Further arguments, which are no config.

    Raises:
        ConfigError: There is no such class, or a value is not what it takes.
    """
    kind = target(node, key)
    values = {name: value for name, value in node.items() if name != "_target_"}
    return made(kind, values, key, **given)


def made(kind: Callable[..., Any], values: Mapping[str, Any], key: str, /, **given: Any) -> Any:
    """Call a class with values from a config, each of which is looked at before.

    Args:
        kind: The class.
        values: By argument.
        key: Of the node that they stand in.
        **given: Further arguments, which are no config.

    Raises:
        ConfigError: A value is not what the class takes.
    """
    hints = typing.get_type_hints(kind.__init__ if inspect.isclass(kind) else kind)
    names = [name for name in inspect.signature(kind).parameters if name not in given]
    for name, value in values.items():
        full = f"{key}.{name}"
        if name not in names:
            guess = did_you_mean(name, names)
            raise ConfigError(
                f"nothing reads this key{'; ' + guess if guess else ''}",
                key=full,
                hint=f"there is: {', '.join(names)}",
            )
        if not accepts(hints.get(name, Any), value):
            raise ConfigError(
                f"{in_words(hints[name])} was expected, not {value!r}", key=full, hint=f"{full}=…"
            )
    try:
        return kind(**values, **given)
    except ValueError as error:
        name = str(error).partition("=")[0]
        full = f"{key}.{name}" if name in names else key
        raise ConfigError(
            str(error), key=full, hint="assay configs hydra/launcher shows what there is"
        ) from error


def target(node: Mapping[str, Any], key: str) -> Any:
    """The class that a node names.

    Args:
        node: As plain data.
        key: Of the node.

    Raises:
        ConfigError: It names none of assay's.
    """
    name = str(node.get("_target_"))
    module, _, kind = name.rpartition(".")
    group = key.replace(".", "/")
    if not name.startswith(_OURS):
        raise ConfigError(
            f"{name!r} is none of assay's", key=f"{key}._target_", hint=f"assay configs {group} lists them"
        )
    try:
        return getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"there is no {name!r}", key=f"{key}._target_", hint=f"assay configs {group} lists them"
        ) from error
