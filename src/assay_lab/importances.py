"""How important each column of a table is to a run: what its score loses when the column is shuffled."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from assay.data.core.data_module import DataModule
from assay.data.core.rendering import read_inputs
from assay.module import Module
from assay.quoting import format_number, join_first
from assay.task.multitask import split_by_head
from assay.task.task_of import task_of
from assay_analysis.importances import Importances, write_importances
from assay_lab.baseline import choose_score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from assay.assemble.assembly import Assembly
    from assay.record.run_record import RunRecord
    from assay.task.predictions import StoredPredictions

log = logging.getLogger("assay")
_REPEATS = 5
_MOST_ROWS = 2000
_FEWEST_ROWS = 50
_MOST_WORK = 20_000_000_000
"""Rows times parameters: some seconds of one core."""


def measure_importances(
    assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None
) -> None:
    """Write the importances of a table's columns, by permutation (Breiman 2001, "Random Forests").

    All inputs that a column becomes are shuffled together among test rows.
    """
    data = assembly.datamodule
    module = assembly.module
    if assembly.config.get("baseline") == "none" or not isinstance(data, DataModule):
        return
    if predictions is None or predictions.targets is None or not isinstance(module, Module):
        return
    places = _places_of_columns(data)
    is_scored = predictions.kind in ("probabilities", "values") or module.task.has_heads
    if not places or not is_scored or data.tested != "test" or not assembly.holds_whole_model:
        return
    num_test = len(data.splits.rows["test"])
    parameters = record.model.get("parameters", 1)
    affordable = _MOST_WORK // (len(places) * _REPEATS * parameters)
    num_rows = min(num_test, _MOST_ROWS, affordable)
    if num_rows < min(num_test, _FEWEST_ROWS):
        log.info("importances of columns: left out, they would take minutes")
        return
    drawn = np.random.default_rng(0).permutation(num_test)[:num_rows]
    inputs, targets = read_inputs(data, "test", np.sort(drawn).tolist())
    score, points = _choose_score(predictions)

    def evaluate(given: Tensor) -> float:
        batch = data.prepare_batch(given.to(data.device), targets.to(data.device), data.dtype)
        observed = module.evaluated(batch)
        kept = module.task.kept(module.scored(observed), observed[2], predictions.kind)
        outputs, right = (values.float().cpu().numpy() for values in kept)
        return points(right, outputs)

    module.eval().to(data.device)
    with torch.no_grad(), assembly.trainer.precision_plugin.forward_context():
        value = evaluate(inputs)
        columns = {
            name: [value - evaluate(_shuffle(inputs, of_column, at)) for at in range(_REPEATS)]
            for name, of_column in places.items()
        }
    write_importances(
        Path(assembly.config.run_dir), Importances(score, value, num_rows, num_test, columns)
    )
    means = sorted(
        ((float(np.mean(falls)), name) for name, falls in columns.items()), reverse=True
    )
    first = join_first([f"{name} {format_number(mean)}" for mean, name in means])
    log.info("importances of columns, the fall of %s: %s", score, first)


def _places_of_columns(data: DataModule) -> dict[str, list[int]]:
    """Which inputs each of the user's columns has become; empty where the inputs are no columns."""
    names = getattr(data.encoder, "input_columns", None)
    if names is None:
        names = data.splits.data["test"].columns
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def _shuffle(inputs: Tensor, places: Sequence[int], repeat: int) -> Tensor:
    order = np.random.default_rng(repeat).permutation(len(inputs))
    shuffled = inputs.clone()
    shuffled[:, places] = inputs[order][:, places]
    return shuffled


def _choose_score(predictions: StoredPredictions) -> tuple[str, Callable[[Any, Any], float]]:
    """As the baseline's; of several targets, the mean of what each is scored by."""
    if not task_of(predictions.task).has_heads:
        return choose_score(predictions)

    def average(targets: Any, outputs: Any) -> float:
        given = replace(predictions, targets=targets, outputs=outputs)
        values = [
            choose_score(of_head)[1](of_head.targets, of_head.outputs)
            for _, of_head in split_by_head(given)
        ]
        return float(np.mean(values))

    return "mean score", average
