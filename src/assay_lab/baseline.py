"""The baseline of a run: a simple model that its score on the test is compared with."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # it has no stubs
from torch.nn.functional import adaptive_avg_pool2d

from assay.config.serialize import value_of
from assay.data.core.data_module import DataModule
from assay.data.core.loaders import KeyedDataset
from assay.data.core.normalize import expand_categories, stored_shape
from assay.data.core.rendering import sample_names
from assay.data.core.subset import blocks
from assay.data.text.tokenizer import UNSPACED
from assay.quoting import repeat_command
from assay.record.scores import describe_baseline
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from omegaconf import DictConfig
    from torch import Tensor

    from assay.assemble.assembly import Assembly
    from assay.data.core.subset import Subset
    from assay.figure import Array
    from assay.record.run_record import RunRecord
    from assay.task.predictions import StoredPredictions

    Score = Callable[[Any, Any], float]

log = logging.getLogger("assay")
_MOST_ROWS = 20_000
_MOST_CATEGORIES = 255
"""Of a column, for scikit-learn's gradient boosting."""
_MOST_STREAMED = 2000
"""Samples that are decoded one by one."""
_MOST_VALUES = 100_000_000
_BLOCK = 64
_MOST_WORK = {"linear": 40_000_000, "gradient_boosting": 4_000_000}
"""Values times outputs that are fitted on: some seconds of one core."""
_MOST_FEATURES = 4096
_WORD = f"{UNSPACED}|(?:(?!{UNSPACED})\\w){{2,}}"
_SIDE = 32
"""Pixels that a side of a picture is averaged to."""
_DRAWS = 100
_PERFECT = 0.999


def score_baseline(
    assembly: Assembly, record: RunRecord, predictions: StoredPredictions | None
) -> None:
    """Put into a record what a simple model scores on the samples that the run was tested on."""
    requested = assembly.config.get("baseline") or "none"
    data = assembly.datamodule
    if requested == "none" or predictions is None or not isinstance(data, DataModule):
        return
    task = task_of(predictions.task)
    is_scored = predictions.kind in ("probabilities", "values", "confusions")
    is_scored &= predictions.targets is not None
    if task.has_heads or task.learns_from_inputs or not is_scored or data.tested != "test":
        return
    start = time.perf_counter()
    score, points = choose_score(predictions)  # imports what is to be limited
    # on a busy machine several threads wait for each other at each of its small loops
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # a baseline may stop before it has converged
        baseline = _compare(data, requested, predictions, score, points)
    record.baseline = {**baseline, "seconds": round(time.perf_counter() - start, 2)}
    record.baseline["advice"] = ""
    if baseline["run"] < _PERFECT and baseline["ahead"] != "run":
        record.baseline["advice"] = advise(assembly.config, record)
    record.metrics[f"baseline/{baseline['score']}"] = baseline["value"]
    record.directions[f"baseline/{baseline['score']}"] = "max"
    log.info("baseline: %s", describe_baseline(record.baseline))


def _compare(
    data: DataModule, requested: str, predictions: StoredPredictions, score: str, points: Score
) -> dict[str, Any]:
    rows = {name: row for row, name in enumerate(sample_names(data))}
    if len(rows) != len(data.splits.rows["test"]):
        raise ValueError("two test samples have the same name")
    if predictions.kind == "confusions":
        counts = predictions.outputs.reshape(-1, *[len(predictions.class_names)] * 2)
        majority = np.zeros_like(counts)
        majority[:, :, np.argmax(data.spec.class_counts)] = counts.sum(2)
        outputs: Any = majority.reshape(len(majority), -1)
        return _verdict("majority", score, points, outputs, predictions)
    order = [rows[key] for key in predictions.keys]
    inputs, targets = _read(data, "train")
    val, val_targets = _read(data, "val")
    test, _ = _read(data, "test")
    is_real = task_of(predictions.task).has_real_targets
    names = [requested]
    if requested == "auto":
        names = _candidates(data, is_real=is_real, several=targets.ndim > 1)
    about = predictions.outputs.shape[1], data.spec.categories
    fitted = {name: _fit(name, inputs, targets, *about, is_real=is_real) for name in names}
    name = names[0]
    if len(names) > 1 and len(val_targets):
        name = max(names, key=lambda one: points(val_targets, fitted[one](val)))
    return _verdict(name, score, points, fitted[name](test)[order], predictions)


def _verdict(
    name: str, score: str, points: Score, outputs: Any, predictions: StoredPredictions
) -> dict[str, Any]:
    targets: Any = predictions.targets
    model_points = points(targets, predictions.outputs)
    value = points(targets, outputs)
    generator = np.random.default_rng(0)
    draws = [generator.integers(0, len(targets), len(targets)) for _ in range(_DRAWS)]
    moves = [
        points(targets[draw], predictions.outputs[draw]) - points(targets[draw], outputs[draw])
        for draw in draws
    ]
    if not np.isfinite(model_points):
        raise ValueError(f"{score} is undefined for these test samples")
    difference = model_points - value
    noise = float(np.nanstd(moves))
    ahead = "run" if difference > 0 else "baseline"
    if abs(difference) <= 2 * noise:
        ahead = ""
    return {
        "name": name,
        "score": score,
        "value": value,
        "run": model_points,
        "difference": difference,
        "noise": noise,
        "ahead": ahead,
    }


def choose_score(predictions: StoredPredictions) -> tuple[str, Score]:
    """Name of the score, and what computes it from targets and outputs; more is better."""
    from sklearn import metrics  # type: ignore[import-untyped]  # it has no stubs

    task = task_of(predictions.task)
    if task.has_real_targets:
        return "r2", lambda targets, values: float(metrics.r2_score(targets, values))
    if predictions.kind == "confusions":
        from assay.task.figures.class_figures import class_iou

        num_classes = len(predictions.class_names)
        return "mean_iou", lambda _, outputs: float(
            np.nanmean(class_iou(outputs.sum(0), num_classes))
        )
    if task.by_class and task.num_classes != 2:
        return "accuracy", lambda targets, outputs: float((outputs.argmax(1) == targets).mean())

    def average_precision(targets: Any, outputs: Any) -> float:
        seen = targets.any(0)  # a label that no sample has is in no mean
        if targets.ndim == 1:
            outputs = outputs[:, 1]
        else:
            targets = targets[:, seen]
            outputs = outputs[:, seen]
        if seen.any():
            return float(metrics.average_precision_score(targets, outputs))
        return float("nan")

    return "average_precision", average_precision


def _candidates(data: DataModule, *, is_real: bool, several: bool) -> list[str]:
    """Those that suit the inputs, besides which the majority or the mean always does."""
    simplest = "mean" if is_real else "majority"
    if data.spec.vocab_size:
        if is_real or "train" not in data.splits.raw:
            return [simplest]
        return ["tfidf", simplest]
    if len(data.spec.input_shape) == 3:
        return ["linear", simplest]
    if data.spec.num_features > _MOST_FEATURES:
        return [simplest]
    if several and not is_real:
        return ["linear", simplest]
    of_series = []
    if is_real and data.encoder is None:
        of_series = ["last_value"]
    return ["gradient_boosting", "linear", *of_series, simplest]


def _read(data: DataModule, name: str) -> tuple[Any, Array]:
    """Inputs of a subset, texts or numbers `[N, F]`, and targets; pictures are read in blocks."""
    subset = data.ready_subset(name, "eval")
    positions = torch.arange(len(subset.rows))
    if name != "test":
        most = _MOST_ROWS if subset.data.in_memory else _MOST_STREAMED
        most = min(most, max(1, _MOST_VALUES // data.spec.num_features))
        drawn = torch.randperm(len(positions), generator=torch.Generator().manual_seed(0))
        positions = drawn[:most]
    rows = subset.rows[positions]
    raw = data.splits.raw.get(name)
    targets = subset.data.targets[rows]
    if targets.is_floating_point():
        targets = targets.float().reshape(len(targets), -1)
    if data.spec.vocab_size and raw is not None:
        encoder: Any = data.encoder
        return raw[encoder.column].iloc[positions.numpy()].astype(str).tolist(), targets.numpy()
    inputs = [torch.empty(0, *stored_shape(asdict(data.spec))).flatten(1)]
    for block in _blocks(subset, rows):
        if block.dtype != torch.float64:
            block = block.float()  # noqa: PLW2901 - the same samples
        if len(data.spec.input_shape) == 3 and block[0, 0].numel() > _SIDE**2:
            block = adaptive_avg_pool2d(block, _SIDE)  # noqa: PLW2901 - as above
        inputs.append(block.flatten(1))
    return torch.cat(inputs[1:] or inputs).numpy(), targets.numpy()


def _blocks(subset: Subset, rows: Tensor) -> Iterator[Tensor]:
    if subset.data.in_memory:
        yield from blocks(subset.data.inputs, rows)
        return
    dataset = KeyedDataset(subset.data, subset.transforms, 0)
    for chunk in rows.split(_BLOCK):  # type: ignore[no-untyped-call]  # torch leaves it untyped
        yield torch.stack([dataset[0, row, row][0] for row in chunk.tolist()])


def _fit(
    name: str,
    inputs: Any,
    targets: Array,
    size: int,
    categories: Sequence[int],
    *,
    is_real: bool,
) -> Callable[[Any], Array]:
    """A function from inputs to what a model of so many outputs says of them."""
    if name == "last_value":
        return lambda given: np.tile(given[:, -1:], (1, size))
    is_text = isinstance(inputs, list)
    if (name == "tfidf" and not is_text) or (name in _MOST_WORK and is_text):
        raise ValueError(f"baseline={name}: the inputs are {'not ' * (not is_text)}texts")
    if name in _MOST_WORK:
        num_models = size if size > 2 or is_real else 1
        most = max(1000, _MOST_WORK[name] // max(1, inputs.shape[1] * num_models))
        inputs = inputs[:most]
        targets = targets[:most]
    several = targets.ndim > 1
    width = np.shape(inputs)[-1]
    estimator = _estimator(name, categories, width, is_real=is_real, several=several)
    model = estimator.fit(inputs, targets)

    def predict(given: Any) -> Array:
        if is_real:
            values: Array = model.predict(given).reshape(len(given), -1)
            return values
        outputs = np.zeros((len(given), size))
        outputs[:, model.classes_.astype(int)] = model.predict_proba(given)
        return outputs

    return predict


def _estimator(
    name: str, categories: Sequence[int], width: int, *, is_real: bool, several: bool
) -> Any:
    """Of scikit-learn, which takes a second to import."""
    from sklearn import (
        dummy,
        ensemble,
        linear_model,
        multiclass,
        multioutput,
        pipeline,
        preprocessing,
    )
    from sklearn.feature_extraction.text import TfidfVectorizer  # type: ignore[import-untyped]  # no stubs

    linear = linear_model.LogisticRegression(max_iter=200)
    boosting = ensemble.HistGradientBoostingClassifier
    if is_real:
        linear = linear_model.RidgeCV(np.logspace(-3, 3, 7))
        boosting = ensemble.HistGradientBoostingRegressor
    first = width - len(categories)
    few = [place for place, size in enumerate(categories, first) if size < _MOST_CATEGORIES]

    def expand(given: Array) -> Array:
        return expand_categories(torch.from_numpy(given), categories).numpy()

    columns = preprocessing.FunctionTransformer(expand)
    estimators = {
        "majority": dummy.DummyClassifier(),
        "mean": dummy.DummyRegressor(),
        "tfidf": pipeline.make_pipeline(
            TfidfVectorizer(token_pattern=_WORD, max_features=50_000), linear
        ),
        "linear": pipeline.make_pipeline(columns, preprocessing.StandardScaler(), linear),
        "gradient_boosting": boosting(random_state=0, categorical_features=few or None),
    }
    if not several:
        return estimators[name]
    if is_real:
        return multioutput.MultiOutputRegressor(estimators[name])
    return multiclass.OneVsRestClassifier(estimators[name])


def advise(config: DictConfig, record: RunRecord) -> str:
    """What to type next, by what the run has measured."""
    epochs = value_of(config, "trainer.max_epochs")
    best = record.best.get("epoch")
    lr = value_of(config, "optimizer.lr")
    if any(override.lstrip("+").startswith("optimizer.lr=") for override in record.overrides):
        lr = None  # it was chosen already
    if isinstance(best, int) and isinstance(epochs, int) and best >= epochs > 0:
        return f"the last epoch was the best: trainer.max_epochs={2 * epochs}"
    if isinstance(best, int) and isinstance(epochs, int) and best <= epochs // 5:
        remedy = ""
        if lr:
            remedy = f": optimizer.lr={lr / 3:.2g}"
        return f"the best epoch was {best} of {epochs}, then it overfits{remedy}"
    if not lr:
        return ""
    rates = f"optimizer.lr={lr / 3:.2g},{lr:.2g},{3 * lr:.2g}"
    again = repeat_command(record.overrides, rates, config_dir=record.config_dir)
    return f"search for a learning rate: {again}"
