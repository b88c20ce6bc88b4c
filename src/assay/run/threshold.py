"""The probability from which on a sample counts as the second of two classes, chosen on validation."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from assay.data.data_module import DataModule
from assay.data.shown_samples import evaluated_samples
from assay.module import Module
from assay.record.outcome import reason_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from assay.build.assembly import Assembly
    from assay.record.run_record import RunRecord
    from assay.task.prediction.predictions import Predictions

log = logging.getLogger("assay")
_FEWEST: Final = 20
"""Validation samples of each class; with fewer a threshold would be chance."""
_NEARLY: Final = 0.95


def add_threshold(assembly: Assembly, record: RunRecord, predictions: Predictions | None) -> None:
    """Put into a record the threshold with nearly the best F1 on validation, and what it does on the test."""
    module, data = assembly.module, assembly.datamodule
    if predictions is None or not isinstance(data, DataModule) or not isinstance(module, Module):
        return
    two = module.task.num_classes == 2 and predictions.kind == "probabilities"
    plain = isinstance(assembly.trainer.strategy, SingleDeviceStrategy | DDPStrategy)
    if not two or not plain or not len(data.splits.rows["val"]) or data.tested != "test":
        return
    try:
        value = best_threshold(*_validated(assembly, module, data))
    except Exception as error:  # the run has come to its end all the same
        log.warning("no threshold is chosen: %s", reason_of(error), exc_info=error)
        return
    if value is not None:
        said, right = predictions.outputs[:, 1] >= value, np.asarray(predictions.targets) == 1
        hits = int((said & right).sum())
        record.threshold = {
            "value": value,
            "class": predictions.class_names[1],
            "precision": hits / max(1, int(said.sum())),
            "recall": hits / max(1, int(right.sum())),
        }


def _validated(assembly: Assembly, module: Module, data: DataModule) -> tuple[NDArray[Any], NDArray[Any]]:
    """Probabilities of the second class of the validation samples, and whether each is of it."""
    count, size = len(data.splits.rows["val"]), data.eval_batch_size
    probabilities: Any = module.task.probabilities(module.loss)
    found, right = [], []
    module.eval().to(data.device)
    with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
        for start in range(0, count, size):
            inputs, targets = evaluated_samples(data, "val", range(start, min(start + size, count)))
            outputs = probabilities(module(inputs)).float()
            found.append(module.task.postprocess(outputs, "probabilities")[:, 1].cpu())
            right.append(targets.cpu() == 1)
    return torch.cat(found).numpy(), torch.cat(right).numpy()


def best_threshold(probabilities: NDArray[Any], right: NDArray[Any]) -> float | None:
    """The threshold with nearly the highest F1; None of too few samples."""
    if min(int(right.sum()), int((~right).sum())) < _FEWEST:
        return None
    order = np.argsort(-probabilities, kind="stable")
    ranked, hits = probabilities[order].astype(float), right[order].cumsum()
    f1 = 2 * hits / (np.arange(1, len(order) + 1) + right.sum())
    following = np.append(ranked[1:], 0.0)
    f1[ranked == following] = -1  # samples of one probability are on one side
    values = ((ranked + following) / 2)[f1 >= _NEARLY * f1.max()]
    return round(float(values[np.abs(values - 0.5).argmin()]), 6)
