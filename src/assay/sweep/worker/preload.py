"""What a fork server imports and looks up once, so that no job has to."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import warnings
from contextlib import suppress
from typing import Final

from assay.errors import ConfigError
from assay.paths import CONF_DIR

_GROUPS: Final = (
    *("augment", "callbacks", "data", "loss", "metrics", "model", "optimizer", "scheduler"),
    "logger",
)
_MODULES: Final = (
    "assay.run.train",
    "assay.run.resume.resume",
    "assay.sweep.worker.run_job",
    "fsspec.implementations.chained",
    "git",
    "rich._emoji_codes",
    "sklearn.datasets",
    "sklearn.datasets.data",
    "sklearn.datasets.descr",
    "torchmetrics",
    "torchvision.models",
    "torchvision.transforms.v2",
)
_INTERPOLATION: Final = re.compile(r"[^\s:]*\$\{[^}]*\}[^\s#]*")
_TARGET: Final = re.compile(r"^( *)_target_: (\S+)$", re.MULTILINE)


def preload() -> None:
    """Import what jobs are made of, and look up what is the same for all of them.

    Nothing is computed, and nothing of the user's own is imported: that code may change while the sweep runs,
    and may compute.
    """
    for name in _MODULES:
        importlib.import_module(name)
    for group in _GROUPS:
        package = importlib.import_module(f"assay.{group}")
        for module in pkgutil.iter_modules(package.__path__, f"assay.{group}."):
            with suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    _look_up_options()
    _look_up_plugins()
    from assay.record.provenance import provenance

    provenance.packages()
    provenance.machine([], 1)


@functools.cache
def preload_study() -> None:
    """Import what a job asks a study with; nothing is opened, since no connection survives a fork."""
    with suppress(ImportError):
        for name in ("optuna", "optuna.storages", "sqlalchemy.dialects.sqlite", "alembic"):
            importlib.import_module(name)


def _look_up_options() -> None:
    """Find the classes that assay's own options name, and parse their interpolations once: parsers learn."""
    from omegaconf import grammar_parser

    from assay.targets.resolve import resolve

    for path in sorted(CONF_DIR.glob("*/*.yaml")):
        text = path.read_text(encoding="utf-8")
        for written in _INTERPOLATION.findall(text):
            with suppress(Exception):  # only part of a value, such as one with spaces
                grammar_parser.parse(written)
        group = path.parent.name
        for indent, target in _TARGET.findall(text):
            key = f"{group}.x" if group in ("callbacks", "logger", "metrics") else group
            with suppress(ConfigError, ImportError):
                resolve(f"{key}.x" if indent else key, target)


def _look_up_plugins() -> None:
    """Have libraries find the extensions that they look for when they are first used."""
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # it has no stubs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train_test_split([0, 1, 2, 3], random_state=0)
