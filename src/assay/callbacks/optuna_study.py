"""Optuna's studies, samplers and pruners from plain data; without torch, and with Optuna only when asked."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import optuna

STUDY: Final = "sweep"
"""Name of the one study in a file."""


def open_storage(path: str) -> optuna.storages.BaseStorage:
    """The file of a study: one line of JSON for each thing that has happened."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    with no_news():
        return JournalStorage(JournalFileBackend(path, JournalFileOpenLock(path)))


def build_part(kind: str, node: Mapping[str, Any], **given: Any) -> Any:
    """A sampler or a pruner of Optuna's."""
    with no_news():
        part = _class(kind, str(node.get("_target_")))
        takes = inspect.signature(part).parameters
        arguments = {key: _value(key, value) for key, value in node.items() if key != "_target_"}
        for key, value in arguments.items():
            if value is not None and key in takes and "Callable" in str(takes[key].annotation):
                raise ValueError(f"{key} is a function, which a config cannot hold")
        try:
            return part(**arguments, **{key: value for key, value in given.items() if key in takes})
        except (TypeError, ValueError) as error:
            raise ValueError(f"{part.__name__}: {error}") from error


@contextmanager
def no_news() -> Iterator[None]:
    """Without what Optuna says about things going well, and which of its parts it calls experimental."""
    from optuna import logging
    from optuna.exceptions import ExperimentalWarning

    before = logging.get_verbosity()
    logging.set_verbosity(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        logging.set_verbosity(before)


def _class(kind: str, target: str) -> Any:
    import optuna

    home, _, name = target.rpartition(".")
    modules = {"optuna.samplers": optuna.samplers, "optuna.pruners": optuna.pruners}
    # Else one of the user's own, imported already with their trust.
    found = getattr(modules.get(home) or sys.modules.get(home), name, None)
    parent = optuna.samplers.BaseSampler if kind == "sampler" else optuna.pruners.BasePruner
    if not (inspect.isclass(found) and issubclass(found, parent)) or inspect.isabstract(found):
        raise ValueError(f"{target!r} is not one of Optuna's {kind}s; optuna.{kind}s.… was expected")
    return found


def _value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and "_target_" in value:
        return build_part("pruner" if "pruner" in key else "sampler", value)
    return value
