"""assay: compose a PyTorch experiment from config, prove it, run it anywhere, get it back.

>>> import assay
>>> sorted(name for name in dir(assay) if not name.startswith("_"))
['RunResult', 'curves', 'load', 'runs', 'train']
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.run.predictor import load
    from assay.run.result import RunResult
    from assay.run.train import train
    from assay_analysis.read_runs import curves, runs

# On Linux, torch then begins large tensors at a page of their own and asks for huge ones; it reads this once.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__all__ = ["RunResult", "curves", "load", "runs", "train"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'assay' has no attribute {name!r}")
    # Torch is imported when something is trained or loaded, not by `assay --help`.
    home = {
        "RunResult": "assay.run.result",
        "load": "assay.run.predictor",
        "train": "assay.run.train",
    }.get(name, "assay_analysis.read_runs")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__", "__path__"]
