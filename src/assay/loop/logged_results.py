"""What a module of somebody's own has logged in an epoch that is not over, as plain containers.

Lightning keeps running means and sums of `self.log` in its loop, and leaves them out of its checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
)

from assay.errors import AssayError

if TYPE_CHECKING:
    import lightning as L

_META: Final = (
    *("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph"),
    *("add_dataloader_idx", "dataloader_idx", "metric_attribute"),
)
_REDUCTIONS: Final = ("mean", "min", "max", "sum")
_VALUES: Final = ("value", "cumulated_batch_size", "_forward_cache")


def results_state(results: _ResultCollection) -> dict[str, Any]:
    """Everything that was logged as a number and still counts; metric objects are their module's own.

    Args:
        results: Of the training loop.
    """
    return {
        key: {
            "meta": {name: getattr(result.meta, name) for name in _META},
            "reduce": result.meta.reduce_fx.__name__,
            "together": result.meta.sync.should,
            "first_only": result.meta.sync.rank_zero_only,
            "updates": result._update_count,
            "values": {name: getattr(result, name) for name in _VALUES if hasattr(result, name)},
        }
        for key, result in results.items()
        if result.is_tensor and not result.has_reset
    }


def take_up_results(trainer: L.Trainer, state: dict[str, Any]) -> None:
    """Put what `results_state` gave back into the training loop.

    Args:
        trainer: About to go on.
        state: From a checkpoint.
    """
    results = trainer.fit_loop.epoch_loop._results
    device = trainer.strategy.root_device
    for key, saved in state.items():
        if (
            saved["reduce"] not in _REDUCTIONS
            or not {*saved["meta"]} <= {*_META}
            or not {*saved["values"]} <= {*_VALUES}
        ):
            raise AssayError(f"the checkpoint says of {key!r} what is never logged: it was changed")
        meta = _Metadata(**saved["meta"], reduce_fx=getattr(torch, saved["reduce"]))
        meta.sync = _Sync(
            _should=saved["together"], fn=trainer.strategy.reduce, rank_zero_only=saved["first_only"]
        )
        result = _ResultMetric(meta, is_tensor=True)
        for name, value in saved["values"].items():
            setattr(result, name, value.to(device) if isinstance(value, torch.Tensor) else value)
        result._update_count = saved["updates"]
        results[key] = result
