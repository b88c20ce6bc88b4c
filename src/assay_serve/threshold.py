"""The threshold of two classes: chosen on validation, and what it does on the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from assay.data.core.data_module import DataModule
from assay.data.core.rendering import eval_samples
from assay.errors import ConfigError
from assay.module import Module
from assay.task.figures.class_figures import scores_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from assay.assemble.assembly import Assembly
    from assay.record.run_record import RunRecord
    from assay.run.predictor import Predictor
    from assay.task.predictions import StoredPredictions

_EVEN = 0.4
"""Share of the rarer class from which on the likelier class is what anybody expects."""
_FEWEST = 20
"""Validation samples of each class; with fewer a threshold would be chance."""
_NEARLY = 0.95
_SUBSETS = {"test": "the test", "val": "validation", "train": "training", "all": "these samples"}


def choose_threshold(
    assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None
) -> None:
    """Put into a record the threshold with nearly the best F1 on validation, and what it does on the test."""
    module = assembly.module
    data = assembly.datamodule
    if predictions is None or not isinstance(data, DataModule) or not isinstance(module, Module):
        return
    if (
        module.task.num_classes != 2
        or predictions.kind != "probabilities"
        or not assembly.holds_whole_model
        or not len(data.splits.rows["val"])
        or data.tested != "test"
    ):
        return
    to_probabilities: Any = module.task.probabilities(module.loss)
    module.eval().to(data.device)
    positions = torch.arange(len(data.splits.rows["val"]))
    of_class = []
    right = []
    with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
        for chosen in torch.split(positions, data.eval_batch_size):
            inputs, targets = eval_samples(data, "val", chosen.tolist())
            outputs = to_probabilities(module(inputs)).float()
            of_class.append(module.task.postprocess(outputs, "probabilities")[:, 1].cpu())
            right.append(targets.cpu().eq(1))
    value = best_threshold(torch.cat(of_class).numpy(), torch.cat(right).numpy())
    if value is not None:
        record.threshold = describe_scores(
            {"value": value, "class": predictions.class_names[1]}, predictions
        )


def describe_scores(
    threshold: Mapping[str, Any], predictions: StoredPredictions | None
) -> dict[str, Any]:
    """What the threshold of a run does on stored predictions; nothing where there is none or no targets."""
    if not threshold or predictions is None or predictions.targets is None:
        return {}
    value = threshold["value"]
    subset = _SUBSETS[predictions.subset]
    scores = scores_at(value, predictions.outputs[:, 1], predictions.targets == 1)
    return {"value": value, "class": threshold["class"], "subset": subset, **scores}


def best_threshold(probabilities: NDArray[Any], right: NDArray[np.bool_]) -> float | None:
    """The threshold with nearly the highest F1; None of too few samples, or of as many of either class."""
    rarer = min(int(right.sum()), int((~right).sum()))
    if rarer < _FEWEST or rarer > _EVEN * len(right) or not np.isfinite(probabilities).all():
        return None
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    last = np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True))  # equal ones are on one side
    above = ranked[last]
    below = np.append(ranked[1:], 0.0).astype(ranked.dtype)[last]
    f1 = 2 * right[order].cumsum()[last] / (last + 1 + right.sum())
    values = (above.astype(float) + below) / 2
    values[f1 < _NEARLY * f1.max(initial=0.0)] = np.inf
    index = np.abs(values - 0.5).argmin()
    # No more digits than the probabilities have that it divides.
    middle = np.float32(values[index])
    return float(
        str(middle if below[index] < middle <= above[index] else np.float32(above[index]))
    )


def set_threshold(predictor: Predictor, value: float) -> None:
    """Let a predictor use another threshold than that of its run.

    Raises:
        ConfigError: The run does not predict one of two classes.
    """
    if (
        predictor.kind != "probabilities"
        or predictor.task is None
        or predictor.task.num_classes != 2
    ):
        raise ConfigError(
            "the model does not predict probabilities of two classes",
            key="--threshold",
            hint="leave it out",
        )
    predictor.use_threshold(value, {"chosen": "as typed"})
