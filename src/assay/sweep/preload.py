"""What a nursery imports and looks up once, so that no job has to."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

_GROUPS: Final = (
    *("augment", "callbacks", "data", "logger", "loss", "metrics", "model", "optimizer", "scheduler"),
)
_MODULES: Final = (
    "assay.run",
    "assay.resume",
    "assay.sweep.work",
    "fsspec.implementations.chained",
    "git",
    "rich._emoji_codes",
    "sklearn.datasets",
    "torchmetrics",
    "torchvision.models",
    "torchvision.transforms.v2",
)


def preload() -> None:
    """Import what jobs are made of, and read what is the same for all of them.

    Nothing of the user's own is imported: that is code which may change while the sweep runs, and which may
    compute.
    """
    for name in _MODULES:
        importlib.import_module(name)
    for group in _GROUPS:
        package = importlib.import_module(f"assay.{group}")
        for module in pkgutil.iter_modules(package.__path__, f"assay.{group}."):
            try:
                importlib.import_module(module.name)
            except ImportError:  # of an extra that is not installed
                continue
    from assay.record import provenance

    provenance.packages()
    provenance.cpu_model()
