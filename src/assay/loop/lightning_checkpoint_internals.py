"""The private names of Lightning by which a checkpoint holds what Lightning leaves out of it.

`tests/contract/test_private_names.py` watches over them, as over those of `lightning_internals.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from lightning.pytorch.callbacks import ModelCheckpoint, WeightAveraging
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultMetric,
    _Sync,
)

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.loop.lightning_internals import LightningEpochLoop

_KEPT: Final[dict[type, dict[str, type]]] = {
    ModelCheckpoint: {
        "_last_global_step_saved": int,
        "_last_checkpoint_saved": str,
        "_defer_save_until_validation": bool,
    },
}


def was_changed(name: str, value: object, kind: type | None = None) -> AssayError:
    """What a checkpoint says that is never written there, of a callback of this kind or of the loop."""
    of = "" if kind is None else f" of {kind.__name__}"
    return AssayError(f"the checkpoint says {name}={value!r:.80}{of}: it was changed")


def bookkeeping(callback: object) -> dict[str, Any]:
    """What a callback keeps for itself and leaves out of its state; empty for most."""
    return {name: getattr(callback, name) for name in _kinds(callback)}


def take_up_bookkeeping(callback: object, state: Mapping[str, Any]) -> None:
    """Give a callback back what a checkpoint says of it; the file may be anybody's.

    Raises:
        AssayError: It says something that is never written there.
    """
    kinds = _kinds(callback)
    for name, value in state.items():
        if type(value) is not kinds.get(name):
            raise was_changed(name, value, type(callback))
        setattr(callback, name, value)
    if isinstance(callback, ModelCheckpoint):
        _link_within_folder(callback)


def _link_within_folder(callback: ModelCheckpoint) -> None:
    """Have a later `save_last=link` point to what lies in the callback's folder, wherever that is now."""
    saved, folder = Path(callback._last_checkpoint_saved), Path(callback.dirpath or "")
    if ".." in saved.parts or not saved.is_relative_to(folder):
        saved = folder / saved.name
    callback._last_checkpoint_saved = str(saved) if saved.is_file() else ""


def _kinds(callback: object) -> dict[str, type]:
    return next((kinds for kind, kinds in _KEPT.items() if isinstance(callback, kind)), {})


def check_steps(loop: LightningEpochLoop) -> None:
    """Refuse a number of steps that is none.

    Raises:
        AssayError: The checkpoint was changed.
    """
    steps: object = loop._batches_that_stepped
    if type(steps) is not int:
        raise was_changed("_batches_that_stepped", steps)


def note_saved(callback: ModelCheckpoint, step: int) -> None:
    """Have a callback know that it has saved at this step."""
    callback._last_global_step_saved = step


def average_of(callback: WeightAveraging) -> torch.nn.Module | None:
    """The averaged copy of the model."""
    return callback._average_model


_META: Final = (
    *("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph"),
    *("add_dataloader_idx", "dataloader_idx", "metric_attribute"),
)
_REDUCTIONS: Final = ("mean", "min", "max", "sum")
_VALUES: Final = ("value", "cumulated_batch_size", "_forward_cache")


def logged_state(loop: LightningEpochLoop) -> dict[str, Any]:
    """Numbers that a module has logged in an epoch that is not over; metric objects are the module's own."""
    return {
        key: {
            "meta": {name: getattr(result.meta, name) for name in _META},
            "reduce": result.meta.reduce_fx.__name__,
            "together": result.meta.sync.should,
            "first_only": result.meta.sync.rank_zero_only,
            "updates": result._update_count,
            "values": {name: getattr(result, name) for name in _VALUES if hasattr(result, name)},
        }
        for key, result in loop._results.items()
        if result.is_tensor and not result.has_reset
    }


def take_up_logged(loop: LightningEpochLoop, state: dict[str, Any]) -> None:
    """Put what `logged_state` gave back.

    Raises:
        AssayError: It says something that is never logged.
    """
    strategy: Any = loop.trainer.strategy
    for key, saved in state.items():
        if (
            saved["reduce"] not in _REDUCTIONS
            or not {*saved["meta"]} <= {*_META}
            or not {*saved["values"]} <= {*_VALUES}
        ):
            raise AssayError(f"the checkpoint says of {key!r} what is never logged: it was changed")
        meta = _Metadata(**saved["meta"], reduce_fx=getattr(torch, saved["reduce"]))
        reduce: Callable[..., Any] = strategy.reduce
        meta.sync = _Sync(_should=saved["together"], fn=reduce, rank_zero_only=saved["first_only"])
        result = _ResultMetric(meta, is_tensor=True)
        for name, value in saved["values"].items():
            held = value.to(strategy.root_device) if isinstance(value, torch.Tensor) else value
            setattr(result, name, held)
        result._update_count = saved["updates"]
        loop._results[key] = result
