"""Checks for the tests of plugins, which the built-in sources, tasks and losses pass as well."""
# ruff: noqa: S101 - as in all tests

from __future__ import annotations

import copy
from contextlib import contextmanager
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from assay.data.core.data_module import DataModule
from assay.data.core.source import with_defaults
from assay.errors import AssayError
from assay.loss.targets import is_mean_over_samples
from assay.task.predictions import StoredPredictions
from assay.task.task import LOGIT_KINDS, LOSS_KINDS
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch import Tensor
    from torchmetrics import MetricCollection

    from assay.task.predictions import Kind
    from assay.task.task import Task

_RAW_INPUT = {
    "": "",
    "arrays": "input_names layout in_layout",
    "images": "decoding",
    "table": "file_options targets",
}
"""Attributes of a source that declares its raw input."""
_SIZE = 24


@contextmanager
def _named(component: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{type(component).__name__}: {error}") from error


def _close(what: str, got: Any, expected: Any) -> None:
    torch.testing.assert_close(
        got,
        expected,
        rtol=1e-4,
        atol=1e-5,
        equal_nan=True,
        msg=lambda difference: f"{what}: {' '.join(difference.split())}",
    )


def _refuses(what: str, call: Callable[[], object]) -> None:
    try:
        call()
    except (AssayError, OSError, ValueError):
        return
    raise AssertionError(f"{what}: expected a ValueError, got none")


def check_source(source: Any, arguments: Mapping[str, Any] | None = None) -> None:
    """Check what a data source declares against what it reads, and a batch of it.

    Args:
        source: With 20 samples or more, which are read several times.
        arguments: Those of its constructor, to check the task and the paths that it declares.

    Raises:
        AssertionError: It breaks a promise of `assay.data.core.source.Source`.
    """
    with _named(source):
        ForkingPickler.dumps(source)  # as for a worker
        again = copy.deepcopy(source)
        source = with_defaults(source)
        info = source.info
        for name in _RAW_INPUT[info.raw_input].split():
            assert hasattr(source, name), f"raw_input={info.raw_input}: expected {name}, got none"
        source.prepare()
        state = torch.get_rng_state()
        subsets = source.read()
        same_state = torch.equal(state, torch.get_rng_state())
        assert same_state, "read(): expected no draws from torch's random numbers, got some"
        copies = again.read()
        for name, samples in subsets.items():
            same_data = copies[name].digest() == samples.digest()
            assert same_data, f"read(): expected the same {name} each time, got another one"
            sizes = {len(samples.inputs), len(samples), len(samples.names or samples)}
            assert len(sizes) == 1, (
                f"{name}: expected equally many inputs and targets, got {sizes}"
            )
            assert info.has_encoder or not samples.encoder, f"{name}: expected info.has_encoder"
            if samples.columns:
                widths = (len(samples.columns), samples.inputs.shape[1])
                assert widths[0] == widths[1], f"{name}: expected names of columns, got {widths}"
        # The datamodule checks the targets.
        transform: dict[str, Any] = {"train": [], "eval": [], "normalize": None}
        data = DataModule(again, 4, 4, {"val": 0.2, "test": 0.2}, transform, drop_last=True)
        data.setup()
        spec = data.spec
        for loader in (data.train_dataloader(), data.test_dataloader()):
            inputs, _ = data.on_after_batch_transfer(next(iter(loader)), 0)
            is_right = inputs.is_floating_point() and inputs.shape[1:] == spec.input_shape
            got = f"{inputs.dtype} {[*inputs.shape]}"
            assert is_right or spec.vocab_size, f"expected floats {spec.input_shape}, got {got}"
        if arguments is None:
            return
        task = task_of(source.task).name
        declared = (info.find_task and info.find_task(dict(arguments))) or task
        assert declared == task, f"info.find_task: expected {task}, got {declared}"
        make: Any = type(source)
        for path in info.paths:
            if not path.downloads:
                lost = {**arguments, path.argument: "nowhere"}
                # Called before `lost` changes.
                _refuses(f"{path.argument}=nowhere", lambda: make(**lost).read())  # noqa: B023


def check_loss(loss: Any, outputs: Tensor, targets: Tensor) -> None:
    """Check a loss: a scalar, its gradient and precision, its mean over batches, its probabilities.

    Args:
        loss: As it is trained with.
        outputs: Of a model for 4 samples or more, float32.
        targets: Of the same samples.

    Raises:
        AssertionError: It breaks a promise that training relies on.
    """
    with _named(loss):
        value, slope = _descend(loss, outputs, targets)
        assert slope.any(), "gradient: expected one that is not 0"
        _descend(loss, 1e6 * outputs, targets)
        order = torch.arange(len(outputs)).flip(0)
        _close("the loss in another order", loss(outputs[order], targets[order]), value)
        narrow = outputs.bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value, _ = _descend(loss, narrow, targets)
        _close("the loss of bfloat16", value, loss(narrow.float(), targets))
        if is_mean_over_samples(loss):
            parts = [loss(outputs[rows], targets[rows]) for rows in order[:, None]]
            _close("the mean of batches", torch.stack(parts).mean(), loss(outputs, targets))
        kind = getattr(loss, "kind", None)
        if kind is not None and kind not in LOSS_KINDS - LOGIT_KINDS:
            chances = loss.probabilities(outputs)
            is_share = ((chances >= 0) & (chances <= 1)).all()
            assert is_share, f"probabilities: expected 0 to 1, got {chances}"
            if chances.ndim == targets.ndim + 1 and not targets.is_floating_point():
                total = chances.sum(1)
                _close("sum of the probabilities of a sample", total, torch.ones_like(total))
        if not type(loss).__module__.startswith("torch."):
            _refuses("targets of fewer samples", lambda: loss(outputs, targets[:-1]))


def _descend(loss: Any, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    leaf = outputs.detach().clone().requires_grad_()
    value = loss(leaf, targets)
    assert value.ndim == 0, f"loss of a batch: expected a scalar, got {[*value.shape]}"
    (slope,) = torch.autograd.grad(value, leaf)
    size = value.abs() + slope.norm()
    assert size.isfinite(), f"outputs up to {outputs.max():g}: expected a finite loss, got {size}"
    return value.detach(), slope


def check_task(
    task: Task,
    loss: nn.Module,
    metrics: MetricCollection,
    *,
    size: int = 3,
    input_shape: Sequence[int] = (4,),
    class_names: Sequence[str] = (),
) -> None:
    """Check a task on made-up targets: a batch, its loss and metrics, scores, figures and tables.

    Args:
        task: To check.
        loss: One that suits it.
        metrics: Those that suit it.
        size: What `task.size_key` counts.
        input_shape: Of a sample.
        class_names: As the data names its classes or targets; made up where classes are counted.

    Raises:
        AssertionError: It breaks a promise of `assay.task.task.Task`.
    """
    with _named(task_of(task)):
        size = task.num_classes or size
        if task.size_key == "num_classes":
            class_names = [f"c{label}" for label in range(size)]
        targets = task.fake_targets(_SIZE, size, input_shape)
        _close("as_targets() of targets", task.as_targets(targets), targets)
        task.check("train", targets, class_names)
        task.check_subsets({"train": targets, "test": targets[:0]}, class_names)
        if not task.learns_from_inputs:
            wrong = targets.reshape(_SIZE, 1, 1, 1, -1)
            _refuses("check() of 5 dimensions", lambda: task.check("train", wrong, class_names))
        kind = getattr(loss, "kind", None)
        assert kind not in LOSS_KINDS - task.loss_kinds, f"loss_kinds: expected one with {kind}"
        spec = {"input_shape": input_shape, "class_names": class_names, task.size_key: size}
        shape = task.output_shape(spec, task.num_outputs(spec, kind))
        draw = torch.Generator().manual_seed(0)
        outputs = torch.randn(_SIZE, *shape, generator=draw)
        inputs = torch.randn(_SIZE, *input_shape, generator=draw)
        compared = task.loss_targets(inputs, task.batch_targets(targets, torch.float32), None)
        _descend(loss, *task.for_loss(outputs, compared))
        seen = (task.probabilities(loss) or nn.Identity())(outputs)
        hard = task.hard_targets(compared)
        metrics.update(seen, hard)
        if task.reconstructs:
            seen = task.described(nn.Identity(), inputs, outputs)
            hard = targets
        _check_predictions(task, seen, hard, task.output_kind(loss), tuple(class_names))


def _check_predictions(
    task: Task, seen: Tensor, hard: Tensor, kind: Kind, names: tuple[str, ...]
) -> None:
    if not task.generates and not task.reconstructs:
        table = task.typed(task.postprocess(seen, kind).numpy(), kind, names).to_frame()
        assert len(table) == _SIZE, f"table of predictions: expected 24 rows, got {len(table)}"
    evaluate = partial(_evaluate, task, kind, names)
    stored, scores = evaluate(seen, hard)
    order = torch.arange(_SIZE).flip(0)
    flipped, again = evaluate(seen[order], hard[order])
    _close("what is kept in another order", flipped.outputs, stored.outputs[order])
    assert np.isfinite([*scores.values()]).all(), f"scores: expected finite ones, got {scores}"
    _close("scores in another order", again, scores)
    errors = task.error_scores(stored)
    _close("error_scores in another order", task.error_scores(flipped), errors[order])
    task.figures(stored)
    if task.size_key == "num_classes" and kind == "probabilities":
        _check_absent_class(evaluate, seen, hard)


def _evaluate(
    task: Task, kind: Kind, names: tuple[str, ...], seen: Tensor, hard: Tensor
) -> tuple[StoredPredictions, dict[str, float]]:
    """Predictions as a run keeps them, and their scores."""
    outputs, targets = task.kept(seen, hard, kind)
    keys = ("",) * len(seen)
    kept = outputs.float().numpy()
    stored_kind = task.kept_kind or kind
    stored = StoredPredictions(task.name, stored_kind, keys, kept, targets.numpy(), names)
    return stored, {score.name: score.value for score in task.scores(stored)}


def _check_absent_class(evaluate: Callable[..., Any], seen: Tensor, hard: Tensor) -> None:
    """Perfect predictions score the same without samples of a class, or are undefined, but never 0."""
    absent = hard.where(hard < hard.max(), 0)
    if hard.ndim == 2:
        absent = hard.where(torch.arange(hard.shape[1]) > 0, 0)
    scores = []
    for targets in (hard, absent):
        perfect = targets
        if targets.shape != seen.shape:
            perfect = F.one_hot(targets, seen.shape[1]).movedim(-1, 1)
        scores.append(evaluate(perfect.float(), targets)[1])
    for name, value in scores[1].items():
        if not np.isnan(value):
            _close(f"{name} of perfect predictions without a class", value, scores[0][name])
