"""Steps done for real: where fake tensors cannot follow, and evaluation steps of a custom module."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from assay.build.assembly import build_optimization
from assay.build.model import build_model
from assay.build.node import build
from assay.build.trainer_options import world_size
from assay.check.fake_step import StepError, take_step, try_sizes
from assay.config.unread_keys import OUR_DATA
from assay.data.batch_order import drops_last
from assay.data.normalize import TargetScale
from assay.errors import AssayError, ConfigError
from assay.module import Module
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightning.pytorch.plugins import Precision
    from omegaconf import DictConfig

    from assay.check.fake_step import Batch, Step
    from assay.torch_internals import FakeTensorMode

    Sizes = Mapping[bool, Sequence[int]]


FEW = 4
"""Samples of a batch where nothing says how many there are, or all would take time."""
_VALUES = 1 << 20
"""Inputs of a batch up to which it is computed for real."""


def error_of_step(
    config: DictConfig, loss: nn.Module, batch: Batch, precision: Precision, sizes: Sizes
) -> StepError | None:
    """The error of small real batches, if there is one: fake tensors may be at fault themselves."""
    model = precision.convert_module(build_model(config)[0])
    module = module_of(config, model, precision.convert_module(copy.deepcopy(loss)))
    base = batch.of_size(*few_of(config, [batch.inputs[0]]))
    few = {
        True: few_of(config, sizes[True]),
        False: few_of(config, sizes[False], base.inputs[0]),
    }
    first = {True: [base.inputs[0]]} if is_lazy(model) else {}
    try:
        try_sizes(module, base, first, precision, config.model)  # gives lazy parameters their shapes
        try_step(config, module, base, precision, few, None)
    except StepError as error:
        return error
    return None


def try_step(  # noqa: PLR0917 - each is a part of the step
    config: DictConfig,
    module: Module,
    batch: Batch,
    precision: Precision,
    sizes: Sizes,
    mode: FakeTensorMode | None,
) -> Step:
    """A training step, fake or real, then forward passes of the other batches that there will be."""
    step = take_step(module, batch, precision, config.model, mode)
    with mode or nullcontext():
        try_sizes(module, batch, {True: sizes[True]}, precision, config.model)
        evaluated = replace(batch, inputs=(batch.inputs[0], *config.spec.input_shape))
        try_sizes(module, evaluated, {False: sizes[False]}, precision, config.model)
    return step


def few_of(config: DictConfig, sizes: Sequence[int], otherwise: int = FEW) -> list[int]:
    """Numbers of samples that are few enough to be computed for real."""
    most = max(FEW, _VALUES // max(1, int(config.spec.num_features)))
    return sorted({size for size in sizes if size <= most}) or ([otherwise] if sizes else [])


def is_lazy(model: nn.Module) -> bool:
    """Whether a model takes some of its shapes from the first batch."""
    return any(isinstance(p, nn.UninitializedParameter) for p in model.parameters())


def bytes_of(model: nn.Module) -> int:
    """Of the parameters that have a shape."""
    known = [p for p in model.parameters() if not isinstance(p, nn.UninitializedParameter)]
    return sum(p.numel() * p.element_size() for p in known)


def module_of(config: DictConfig, model: nn.Module, loss: nn.Module) -> Module:
    """The run's module over parts that may be fake."""
    metrics = {stage: build(config, f"metrics.{stage}") for stage in ("train", "eval")}
    return Module(
        model=model,
        task=task_of(config.spec.task),
        loss=loss,
        metrics=metrics,
        target_scale=_target_scale(config),
        **build_optimization(config),
    )


def _target_scale(config: DictConfig) -> TargetScale:
    """One of the kind that the run will have: the numbers change neither shapes nor types."""
    spec = config.spec
    wanted = task_of(spec.task).has_real_targets and bool(config.data.get("standardize_targets"))
    return TargetScale([0.0] * spec.num_targets, [1.0] * spec.num_targets) if wanted else TargetScale()


def refusal(config: DictConfig, error: StepError, batch: Batch) -> AssayError:
    """What to tell of a step that fails."""
    key = error.key or error.stage
    if isinstance(error.__cause__, AssayError):
        return error.__cause__
    shape = list(config.spec.input_shape)
    hint = f"a sample of this data has the shape {shape}; the model's outputs: {config.spec.num_outputs}"
    if not batch.input_dtype.is_floating_point:
        hint = _of_integers(config, str(batch.input_dtype).removeprefix("torch."))
    text = f"{'evaluation' if ' in evaluation' in error.where else 'a training step'} fails: {error}"
    if error.stage == "model" and config.spec.get("train_shape"):
        text += f"; data.transform.train makes samples {list(config.spec.train_shape)}, .eval {shape}"
    if " in training" in error.where:
        hint = "data.drop_last=true leaves out the smaller last batch; or another data.batch_size"
    if error.stage == "backward" and "scalar outputs" in str(error):
        key, hint = "loss", "take the mean over samples in its forward"
    elif error.stage == "backward" and "does not require grad" in str(error):
        text = "a training step fails: the loss does not depend on the model's parameters"
        hint = "leave out .detach(), .item() and torch.no_grad() in the model and the loss"
    elif "fused" in str(error):  # auto cannot know of each model that its gradients are sparse
        key, hint = "optimizer.fused", "optimizer.fused=null"
    return ConfigError(text, key=key, hint=hint)


def _of_integers(config: DictConfig, dtype: str) -> str:
    """What to do with integers that a model does not take."""
    if config.spec.get("vocab_size"):
        return "the inputs are token ids of texts: model=bag_of_embeddings, or model=text_transformer"
    return f"the inputs are {dtype}, which an embedding takes; to have numbers: data.source.dtype=float32"


def batch_sizes(config: DictConfig) -> dict[bool, list[int]]:
    """Numbers of samples on one device, each once."""
    data, spec, processes = config.data, config.spec, world_size(config)
    if data.get("_target_") != OUR_DATA:
        return {True: [], False: [int(spec.get("train_batch_size") or 1)]}
    trained = (
        set()
        if drops_last(data.get("drop_last", "auto"), spec.num_train, int(data.batch_size), processes)
        else _num_samples(spec.num_train, int(data.batch_size), processes, even=True)
    )
    evaluated = (
        _num_samples(n, int(data.eval_batch_size), processes, even=False)
        for n in (spec.num_val, spec.num_test)
    )
    return {True: sorted(trained - {int(data.batch_size)}), False: sorted(set().union(*evaluated))}


def _num_samples(samples: int, batch_size: int, processes: int, *, even: bool) -> set[int]:
    """Of the batches that `assay.data.batch_order.BatchOrder` cuts without leaving any out."""
    if processes == 1:
        full, last = divmod(samples, batch_size)
        return ({batch_size} if full else set()) | ({last} if last else set())
    count = max(1, -(-samples // (batch_size * processes)))
    own = {-(-samples // processes)} if even else {samples // processes, -(-samples // processes)}
    return {size for part in own for size in (part // count, -(-part // count))} - {0}
