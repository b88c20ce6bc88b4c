"""From which probability on the second of two classes is predicted; chosen on validation samples alone."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from assay.build.assembly import open_data
from assay.data.data_module import DataModule
from assay.data.shown_samples import eval_samples
from assay.errors import AssayError, ConfigError
from assay.module import Module
from assay.quoting import pluralize
from assay.record.run_record import RunRecord
from assay.run.kept_predictions import holds_whole_model
from assay.run.saved_config import read_config
from assay.targets.external_values import check_addresses
from assay.targets.trust import trust
from assay.task.figures.class_figures import scores_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.build.assembly import Assembly
    from assay.run.predictor import Predictor
    from assay.task.predictions import StoredPredictions

_EVEN: Final = 0.4
"""Share of the rarer class from which on the likelier class is what anybody expects."""
_FEWEST: Final = 20
"""Validation samples of each class; with fewer a threshold would be chance."""
_NEARLY: Final = 0.95
_KEY: Final = "--threshold"
_SUBSETS: Final = {"test": "the test", "val": "validation", "train": "training", "all": "these samples"}
_RULE: Final = re.compile(r"(precision|recall)\s*>?=\s*(\S+)")


def add_threshold(assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None) -> None:
    """Put into a record the threshold with nearly the best F1 on validation, and what it does on the test."""
    module = assembly.module
    data = assembly.datamodule
    if predictions is None or not isinstance(data, DataModule) or not isinstance(module, Module):
        return
    if (
        module.task.num_classes != 2
        or predictions.kind != "probabilities"
        or not holds_whole_model(assembly)
        or not len(data.splits.rows["val"])
        or data.tested != "test"
    ):
        return
    to_probabilities: Any = module.task.probabilities(module.loss)

    def predict(inputs: Tensor) -> Tensor:
        return module.task.postprocess(to_probabilities(module(inputs)).float(), "probabilities")

    module.eval().to(data.device)
    with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
        value = best_threshold(*_validate(data, predict))
    if value is not None:
        record.threshold = describe_scores({"value": value, "class": predictions.class_names[1]}, predictions)


def describe_scores(threshold: Mapping[str, Any], predictions: StoredPredictions | None) -> dict[str, Any]:
    """What the threshold of a run does on stored predictions; nothing where there is none or no targets."""
    if not threshold or predictions is None or predictions.targets is None:
        return {}
    value = threshold["value"]
    subset = _SUBSETS[predictions.subset]
    scores = scores_at(value, predictions.outputs[:, 1], predictions.targets == 1)
    return {"value": value, "class": threshold["class"], "subset": subset, **scores}


def _validate(
    data: DataModule, probabilities: Callable[[Tensor], Tensor]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Probabilities of the second class of the validation samples, and whether each is of it."""
    count = len(data.splits.rows["val"])
    size = data.eval_batch_size
    batches = (
        eval_samples(data, "val", range(start, min(start + size, count))) for start in range(0, count, size)
    )
    pieces = [(probabilities(inputs)[:, 1].cpu(), targets.cpu() == 1) for inputs, targets in batches]
    of_class, right = map(torch.cat, zip(*pieces, strict=True))
    return of_class.numpy(), right.numpy()


def _steps(
    probabilities: NDArray[Any], right: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """For each threshold: the probabilities just above and below it, predicted samples and hits."""
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    following = np.append(ranked[1:], 0.0).astype(ranked.dtype)
    last = np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True))  # equal ones are on one side
    return ranked[last], following[last], last + 1, right[order].cumsum()[last]


def _between(above: Any, below: Any) -> float:
    """A threshold that divides two probabilities, with no more digits than these have."""
    middle = np.float32((float(above) + float(below)) / 2)
    return float(str(middle if below < middle <= above else np.float32(above)))


def best_threshold(probabilities: NDArray[Any], right: NDArray[np.bool_]) -> float | None:
    """The threshold with nearly the highest F1; None of too few samples, or of as many of either class."""
    rarer = min(int(right.sum()), int((~right).sum()))
    if rarer < _FEWEST or rarer > _EVEN * len(right) or not np.isfinite(probabilities).all():
        return None
    above, below, predicted, hits = _steps(probabilities, right)
    f1 = 2 * hits / (predicted + right.sum())
    values = (above.astype(float) + below) / 2
    values[f1 < _NEARLY * f1.max(initial=0.0)] = np.inf
    index = np.abs(values - 0.5).argmin()
    return _between(above[index], below[index])


def threshold_with(
    probabilities: NDArray[Any], right: NDArray[np.bool_], score: str, least: float
) -> float | None:
    """The threshold with the highest precision of those whose recall is at least so high, or the reverse.

    Of equal ones the highest threshold; None if no threshold reaches it.
    """
    above, below, predicted, hits = _steps(probabilities, right)
    precision = hits / predicted
    recall = hits / right.sum()
    asked, other = (recall, precision) if score == "recall" else (precision, recall)
    if not (asked >= least).any():
        return None
    index = np.where(asked >= least, other, -1.0).argmax()
    return _between(above[index], below[index])


def set_threshold(predictor: Predictor, run_dir: Path, typed: str) -> None:
    """Let a predictor use a threshold: a number, or one that validation samples choose by a rule.

    Args:
        predictor: Of the run.
        run_dir: Its directory.
        typed: `0.3`, `recall>=0.8` or `precision>=0.9`.

    Raises:
        ConfigError: It is neither, the run does not predict one of two classes, or no threshold fulfils it.
    """
    rule = _RULE.fullmatch(typed.strip())
    number = -1.0
    with suppress(ValueError):
        number = float(rule[2] if rule else typed)
    if not 0 <= number <= 1:
        raise ConfigError(
            f"expected a number from 0 to 1, or a rule such as recall>=0.8 or precision>=0.9, got {typed!r}",
            key=_KEY,
            hint=f"{_KEY} 0.3, or {_KEY} 'recall>=0.8' (in quotes)",
        )
    if predictor.kind != "probabilities" or predictor.task is None or predictor.task.num_classes != 2:
        raise ConfigError(
            "the model does not predict probabilities of two classes", key=_KEY, hint="leave it out"
        )
    name = predictor.names[1]
    if rule is None:
        predictor.use_threshold(number, {"chosen": "as typed"})
        return
    probabilities, right = _validation_of(predictor, run_dir)
    if not right.any() or not np.isfinite(probabilities).all():
        why = "a probability is not finite" if right.any() else f"none is of class {name!r}"
        raise ConfigError(
            f"validation samples cannot choose a threshold: {why}", key=_KEY, hint=f"{_KEY} 0.3"
        )
    value = threshold_with(probabilities, right, rule[1], number)
    if value is None:  # of precision: the lowest threshold has a recall of 1
        _, _, predicted, hits = _steps(probabilities, right)
        highest = np.floor(1000 * (hits / predicted).max()) / 1000
        raise ConfigError(
            f"no threshold reaches a precision of {number:g} on the {len(right):,} validation samples; the "
            f"highest is {highest:g}",
            key=_KEY,
            hint=f"{_KEY} 'precision>={highest:g}'",
        )
    about = {"chosen": f"by {rule[1]} >= {number:g} on validation", "subset": "validation"}
    predictor.use_threshold(value, {**about, **scores_at(value, probabilities, right)})
    if (count := int(right.sum())) < _FEWEST:
        samples = pluralize(count, "validation sample")
        predictor.notes.append(f"the threshold rests on only {samples} of {name!r}")


def _validation_of(predictor: Predictor, run_dir: Path) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """As `_validate`, of a finished run."""
    config = read_config(run_dir)
    check_addresses(config, trust(()))
    data = open_data(config, prepare=False)
    if not isinstance(data, DataModule) or not len(data.splits.rows["val"]):
        raise ConfigError("the run has no validation samples to choose by", key=_KEY, hint=f"{_KEY} 0.3")
    if RunRecord.load(run_dir).data_sha256 not in ("", data.digest()):
        raise AssayError(
            f"the data is not what {run_dir} was trained on: its SHA-256 differs, so its validation samples "
            "may have been trained on",
            hint=f"bring it back, or type a number: {_KEY} 0.3",
        )
    device = next(predictor.model.parameters()).device
    with torch.no_grad():
        return _validate(data, lambda inputs: predictor.predicted(inputs.to(device)).cpu())
