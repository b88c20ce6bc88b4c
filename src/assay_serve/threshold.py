"""The threshold of two classes: chosen on validation, and what it does on the test."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from assay.assemble.assembly import open_data
from assay.data.core.data_module import DataModule
from assay.data.core.rendering import eval_samples
from assay.errors import ConfigError
from assay.module import Module
from assay.quoting import pluralize, reads_as_number
from assay.record.run_record import RunRecord
from assay.run.saved_config import read_config
from assay.targets.trust import check_addresses, trust
from assay.task.figures.class_figures import scores_at
from assay_serve.ensemble import MeanOfRuns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from assay.assemble.assembly import Assembly
    from assay.run.predictor import Predictor
    from assay.task.predictions import StoredPredictions

_EVEN = 0.4
"""Share of the rarer class from which on the likelier class is what anybody expects."""
_FEWEST = 20
"""Validation samples of each class; with fewer a threshold would be chance."""
_NEARLY = 0.95
KEY = "--threshold"
RULE = re.compile(
    r"f1|(?P<bounded>precision|recall)>=(?P<least>1(\.0*)?|0?\.\d+)"
    r"|cost=(?P<missed>\d+(\.\d+)?):(?P<alarm>\d+(\.\d+)?)"
)
"""What chooses a threshold on validation samples, beside a number."""
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

    def predict(inputs: Tensor) -> Tensor:
        return module.task.postprocess(to_probabilities(module(inputs)).float(), "probabilities")

    module.eval().to(data.device)
    with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
        value = best_threshold(*_validate(data, predict))
    if value is not None:
        record.threshold = describe_scores(
            {"value": value, "class": predictions.class_names[1]}, predictions
        )


def _validate(
    data: DataModule, predict: Callable[[Tensor], Tensor]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Probabilities of the second class of the validation samples, and which of them are of it."""
    positions = torch.arange(len(data.splits.rows["val"]))
    of_class = []
    right = []
    for chosen in torch.split(positions, data.eval_batch_size):
        inputs, targets = eval_samples(data, "val", chosen.tolist())
        of_class.append(predict(inputs)[:, 1].cpu())
        right.append(targets.cpu().eq(1))
    return torch.cat(of_class).numpy(), torch.cat(right).numpy()


def describe_scores(
    threshold: Mapping[str, Any], predictions: StoredPredictions | None
) -> dict[str, Any]:
    """What the threshold of a run does on stored predictions; nothing where there is none or no targets."""
    if not threshold or predictions is None or predictions.targets is None:
        return {}
    value = threshold["value"]
    subset = _SUBSETS[predictions.subset]
    scores = scores_at(value, predictions.outputs[:, 1], predictions.targets == 1)
    return {**threshold, "subset": subset, **scores}


def best_threshold(probabilities: NDArray[Any], right: NDArray[np.bool_]) -> float | None:
    """The threshold with nearly the highest F1; None of too few samples, or of as many of either class."""
    rarer = min(int(right.sum()), int((~right).sum()))
    if rarer < _FEWEST or rarer > _EVEN * len(right) or not np.isfinite(probabilities).all():
        return None
    return choose_by("f1", probabilities, right)


def choose_by(rule: str, probabilities: NDArray[Any], right: NDArray[np.bool_]) -> float:
    """The best threshold by a rule, of equally good ones the highest.

    Raises:
        ConfigError: None fulfils the rule; it says what can be had.
    """
    parsed = RULE.fullmatch(rule)
    if parsed is None:
        raise ValueError(rule)
    order = np.argsort(-probabilities, kind="stable")
    ranked = probabilities[order]
    last = np.flatnonzero(np.append(ranked[1:] < ranked[:-1], True))  # equal ones are on one side
    above = ranked[last]
    below = np.append(ranked[1:], 0.0).astype(ranked.dtype)[last]
    predicted = last + 1
    hits = right[order].cumsum()[last]
    rates = {"precision": hits / predicted, "recall": hits / right.sum()}
    if parsed["bounded"]:
        bounded = rates.pop(parsed["bounded"])
        (other,) = rates.values()
        merits = np.where(bounded >= float(parsed["least"]), other, -1.0)
        if merits.max() < 0:
            highest = f"{parsed['bounded']}>={np.floor(1000 * bounded.max()) / 1000:g}"
            raise _refuse(f"no threshold reaches {rule} on validation", f"{KEY} '{highest}'")
    elif parsed["missed"]:
        # What is saved against predicting the second class of no sample.
        merits = float(parsed["missed"]) * hits - float(parsed["alarm"]) * (predicted - hits)
        if merits.max() <= 0:
            raise _refuse(
                f"by {rule} no threshold is better on validation than never predicting the second class",
                f"{KEY} f1",
            )
    else:
        # Nearly the highest F1, and of these the nearest to one half.
        f1 = 2 * hits / (predicted + right.sum())
        distances = np.abs((above.astype(float) + below) / 2 - 0.5)
        merits = np.where(f1 < _NEARLY * f1.max(), -np.inf, -distances)
    index = merits.argmax()
    # No more digits than the probabilities have that it divides.
    middle = np.float32((float(above[index]) + float(below[index])) / 2)
    return float(
        str(middle if below[index] < middle <= above[index] else np.float32(above[index]))
    )


def _refuse(message: str, hint: str) -> ConfigError:
    return ConfigError(message, key=KEY, hint=hint)


def set_threshold(
    predictor: Predictor, run_dir: Path, typed: str, trusted_packages: Sequence[str] = ()
) -> None:
    """Let a predictor use another threshold than that of its run.

    Args:
        predictor: Of the run.
        run_dir: Its directory, whose validation samples a rule chooses by.
        typed: A number, `f1`, `recall>=0.8`, `precision>=0.9`, or `cost=10:1`, the cost of a missed sample of
            the second class and of a false alarm.
        trusted_packages: What the user trusts besides.

    Raises:
        ConfigError: The run does not predict one of two classes, or no threshold fulfils the rule.
    """
    typed = typed.replace(" ", "")
    is_rule = RULE.fullmatch(typed)
    if not is_rule and not (reads_as_number(typed) and 0 <= float(typed) <= 1):
        raise _refuse(
            f"expected a number from 0 to 1, f1, recall>=0.8, precision>=0.9 or cost=10:1, got {typed!r}",
            f"{KEY} 0.3, or {KEY} 'recall>=0.8' (in quotes)",
        )
    if (
        predictor.kind != "probabilities"
        or predictor.task is None
        or predictor.task.num_classes != 2
    ):
        raise _refuse("the model does not predict probabilities of two classes", "leave it out")
    if not is_rule:
        predictor.use_threshold(float(typed), {"chosen": "as typed"})
        return
    if isinstance(predictor.model, MeanOfRuns):
        raise _refuse(
            f"a rule chooses by the validation samples of one run, and {run_dir} has several",
            f"type a number: {KEY} 0.3",
        )
    probabilities, right = _validation_of(predictor, run_dir, trusted_packages)
    name = predictor.names[1]
    if not right.any() or not np.isfinite(probabilities).all():
        raise _refuse(
            f"validation has no samples of class {name!r} with finite probabilities", f"{KEY} 0.3"
        )
    value = choose_by(typed, probabilities, right)
    scores = scores_at(value, probabilities, right)
    about = {"chosen": f"by {typed} on validation", "subset": "validation", **scores}
    predictor.use_threshold(value, about)
    if right.sum() < _FEWEST:
        samples = pluralize(int(right.sum()), "validation sample")
        predictor.notes.append(f"the threshold rests on only {samples} of {name!r}")


def _validation_of(
    predictor: Predictor, run_dir: Path, trusted_packages: Sequence[str]
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    config = read_config(run_dir, trusted_packages)
    check_addresses(config, trust(()))
    data = open_data(config, prepare=False)
    if not isinstance(data, DataModule) or not len(data.splits.rows["val"]):
        raise _refuse("the run has no validation samples to choose by", f"{KEY} 0.3")
    if RunRecord.load(run_dir).data_sha256 not in ("", data.digest()):
        raise _refuse(
            f"the data is not what {run_dir} was trained on: its SHA-256 differs, so its validation "
            "samples may have been trained on",
            f"restore it, or type a number: {KEY} 0.3",
        )
    device = next(predictor.model.parameters()).device
    with torch.no_grad():
        return _validate(
            data, lambda inputs: predictor.postprocess(predictor.model(inputs.to(device)))
        )
