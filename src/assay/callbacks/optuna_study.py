"""Optuna's storages, samplers and pruners from plain data; without torch, and with Optuna only when asked."""

from __future__ import annotations

import inspect
import re
import sqlite3
import sys
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import optuna

_PARTS: Final = {"sampler": ("samplers", "BaseSampler"), "pruner": ("pruners", "BasePruner")}
_TARGET: Final = re.compile(r"optuna\.(samplers|pruners)\.([A-Z]\w*)", re.ASCII)
_OWN_SEED: Final = "seed"
_WAIT: Final = 60
"""Seconds that a writer waits for the others."""


class _Connection(sqlite3.Connection):
    """Keeps the file that a transaction can be undone from: four times as fast as making it anew."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute("PRAGMA journal_mode=PERSIST").close()
        self.execute("PRAGMA synchronous=NORMAL").close()


def open_storage(storage: str, *, is_new: bool) -> optuna.storages.BaseStorage:
    """Open the storage of a study, in this process for itself: a connection does not survive a fork."""
    from optuna.storages import RDBStorage

    with no_news():
        return RDBStorage(
            storage,
            engine_kwargs={"connect_args": {"timeout": _WAIT, "factory": _Connection}},
            skip_compatibility_check=not is_new,
            skip_table_creation=not is_new,
        )


def close_storage(storage: optuna.storages.BaseStorage) -> None:
    """Give back a storage's connections."""
    storage.remove_session()
    engine = getattr(getattr(storage, "_backend", storage), "engine", None)
    if engine is not None:
        engine.dispose()


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file, whatever its name holds."""
    from sqlalchemy import URL

    return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def build_part(kind: str, node: Mapping[str, Any], **given: Any) -> Any:
    """A sampler or a pruner of Optuna's."""
    with no_news():
        part = _class(kind, str(node.get("_target_")))
        takes = inspect.signature(part).parameters
        arguments = {key: value for key, value in node.items() if key != "_target_"}
        _check_arguments(part.__name__, arguments, takes)
        built = {key: _value(key, value) for key, value in arguments.items()}
        built |= {key: value for key, value in given.items() if key in takes}
        try:
            return part(**built)
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

    module, root = _PARTS[kind]
    match = _TARGET.fullmatch(target)
    found = getattr(getattr(optuna, module), match[2], None) if match and match[1] == module else None
    if match is None:  # one of the user's own, imported already with their trust
        home, _, name = target.rpartition(".")
        found = getattr(sys.modules.get(home), name, None)
    parent = getattr(getattr(optuna, module), root)
    if not (inspect.isclass(found) and issubclass(found, parent)) or inspect.isabstract(found):
        raise ValueError(f"{target!r} is not one of Optuna's {kind}s; optuna.{module}.… was expected")
    return found


def _check_arguments(name: str, arguments: Mapping[str, Any], takes: Mapping[str, Any]) -> None:
    for key, value in arguments.items():
        if key == _OWN_SEED:
            raise ValueError("the seed of a study is hydra.sweeper.seed")
        if key not in takes:
            raise ValueError(f"{name} takes no {key!r}; it takes {', '.join(takes)}")
        if value is not None and "Callable" in str(takes[key].annotation):
            raise ValueError(f"{key} is a function, which a config cannot hold")


def _value(key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and "_target_" in value:
        return build_part("pruner" if "pruner" in key else "sampler", value)
    return value
