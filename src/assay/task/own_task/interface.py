"""Whether a task of the user's own can be asked what the interface asks of it."""

from __future__ import annotations

import inspect
from typing import Any

from assay.error_location import defined_at
from assay.errors import ConfigError
from assay.task.task import Task


def check_interface(task: Task, key: str) -> None:
    """Refuse a task that lacks an attribute, or has a method that cannot take what the interface gives it.

    Args:
        task: Of the user's own; none of its methods is called.
        key: Where it is named.

    Raises:
        ConfigError: Naming the method, how it has to look, and the line where it stands.
    """
    kind = type(task)
    if lacking := [one for one in Task.__annotations__ if not hasattr(kind, one)]:
        raise ConfigError(
            f"{task.name!r} lacks what assay.task.task.Task asks for: {', '.join(lacking)}",
            key=key,
            hint=f"set {'it' if len(lacking) == 1 else 'them'} as attributes of {kind.__name__}",
        )
    for name, asked in vars(Task).items():
        if name.startswith("_") or not inspect.isfunction(asked):
            continue
        given, expected = getattr(task, name), inspect.signature(asked)
        if not _takes(given, expected):
            raise ConfigError(
                f"{name} of {task.name!r} is {_what(given)}, "
                f"which cannot be called as {name} of assay.task.task.Task",
                key=key,
                file=defined_at(given),
                hint=f"write def {name}{_bare(expected)}",
            )


def _takes(given: Any, expected: inspect.Signature) -> bool:
    """Whether a bound method can be called with all that the interface may give, and with the least."""
    if not callable(given) or inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(given):
        return False
    _, *every = expected.parameters.values()
    least = [one for one in every if one.default is one.empty]
    signature = inspect.signature(given)
    try:
        for arguments in (every, least):
            signature.bind(*arguments)
    except TypeError:
        return False
    return True


def _what(given: Any) -> str:
    if not callable(given):
        return f"of type {type(given).__name__}"
    function = getattr(given, "__func__", given)
    kinds = {"async ": inspect.iscoroutinefunction, "a generator ": inspect.isgeneratorfunction}
    says = next((words for words, is_so in kinds.items() if is_so(function)), "")
    return f"{says}def {given.__name__}{_bare(inspect.signature(function))}"


def _bare(signature: inspect.Signature) -> str:
    """Without types, which make a message unreadable."""
    names = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=names, return_annotation=signature.empty))
