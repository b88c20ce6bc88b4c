"""assay: compose a PyTorch experiment from config, prove it, run it anywhere, get it back.

>>> import assay
>>> sorted(name for name in dir(assay) if not name.startswith("_"))
['RunResult', 'curves', 'load', 'runs', 'train']
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.analysis.read_runs import curves, runs
    from assay.run.load import load
    from assay.run.result import RunResult
    from assay.run.train import train

__all__ = ["RunResult", "curves", "load", "runs", "train"]


def __getattr__(name: str) -> Any:
    # Torch is imported when something is trained or loaded, not by `assay --help`.
    if name in ("runs", "curves"):
        from assay.analysis import read_runs

        return getattr(read_runs, name)
    if name == "load":
        from assay.run.load import load

        return load
    if name == "RunResult":
        from assay.run.result import RunResult

        return RunResult
    if name == "train":
        from assay.run.train import train

        return train
    raise AttributeError(f"module 'assay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__", "__path__"]
