"""Steps done for real where fake tensors cannot follow, and what is told of one that fails."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from torch import nn

from assay.build.assembly import module_of
from assay.build.model import build_model
from assay.build.trainer_options import world_size
from assay.check.fake_step import StepError, take_step, try_sizes
from assay.config.unread_keys import OUR_DATA
from assay.data.loaders import drops_last
from assay.data.normalize import TargetScale
from assay.errors import AssayError, ConfigError
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightning.pytorch.plugins import Precision

    from assay.check.fake_step import Batch
    from assay.module import Module

    Sizes = Mapping[bool, Sequence[int]]


FEW = 4
"""Samples of a batch where nothing says how many there are, or all would take time."""
_VALUES = 1 << 20
"""Inputs of a batch up to which it is computed for real."""


def error_of_step(
    config: DictConfig,
    loss: nn.Module,
    batch: Batch,
    precision: Precision,
    sizes: Sizes,
    *,
    of_values: bool = False,
    steps: bool = True,
) -> StepError | None:
    """The error of small real batches, if there is one: fake tensors may be at fault themselves."""
    model = precision.convert_module(build_model(config)[0])
    module = module_over(config, model, precision.convert_module(copy.deepcopy(loss)))
    base = batch.of_size(*few_of(config, [batch.inputs[0]]))
    few = few_of(config, sizes[False], base.inputs[0])
    try:
        if steps:
            take_step(module, base, precision, config.model, None)
        else:
            try_sizes(module, base, {True: [base.inputs[0]]}, precision, config.model)
        of_values = False
        try_sizes(module, base, {True: few_of(config, sizes[True])}, precision, config.model)
        try_sizes(module, evaluated(config, base), {False: few}, precision, config.model)
    except StepError as error:
        return None if of_values else error
    return None


def few_of(config: DictConfig, sizes: Sequence[int], otherwise: int = FEW) -> list[int]:
    """Numbers of samples that are few enough to be computed for real."""
    most = max(FEW, _VALUES // max(1, int(config.spec.num_features)))
    return sorted({size for size in sizes if size <= most}) or ([otherwise] if sizes else [])


def bytes_of(model: nn.Module) -> int:
    """Of the parameters that have a shape."""
    known = [p for p in model.parameters() if not isinstance(p, nn.UninitializedParameter)]
    return sum(p.numel() * p.element_size() for p in known)


def module_over(config: DictConfig, model: nn.Module, loss: nn.Module) -> Module:
    """The run's module over parts that may be fake."""
    # Of the kind that the run will have: the numbers change neither shapes nor types.
    scaled = task_of(config.spec.task).has_real_targets and config.data.get("standardize_targets")
    numbers = int(config.spec.num_targets) if scaled else 0
    scale = TargetScale([0.0] * numbers, [1.0] * numbers) if numbers else TargetScale()
    return module_of(config, model, loss, target_scale=scale)


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
        trained = list(config.spec.train_shape)
        text += f"; data.transform.train makes samples {trained}, data.transform.eval {shape}"
        hint = "give data.transform.train and data.transform.eval one size, or take a model for any"
    if " in training" in error.where:
        hint = "data.drop_last=true leaves out the smaller last batch; or another data.batch_size"
    if error.stage == "backward" and "scalar outputs" in str(error):
        return ConfigError(
            "gives several values for a batch; a training step needs a single one",
            key="loss",
            hint="take their mean in its forward",
        )
    if error.stage == "backward" and "does not require grad" in str(error):
        return ConfigError(
            "a training step fails: the loss does not depend on the model's parameters",
            key=key,
            hint="leave out .detach(), .item() and torch.no_grad() in the model and the loss",
        )
    if error.stage in ("optimizer", "backward"):
        hint = f"choose another {'optimizer' if error.stage == 'optimizer' else 'model or loss'}"
        if "fused" in str(error):  # auto cannot know of each model that its gradients are sparse
            key, hint = "optimizer.fused", "optimizer.fused=null"
    return ConfigError(text, key=key, hint=hint)


def _of_integers(config: DictConfig, dtype: str) -> str:
    """What to do with integers that a model does not take."""
    if config.spec.get("vocab_size"):
        return "the inputs are token ids of texts: model=bag_of_embeddings, or model=text_transformer"
    takes = ", which an embedding takes" if dtype in ("int32", "int64") else "; an embedding takes int64"
    own = "dtype" not in (OmegaConf.select(config, "data.source") or {})
    instead = "return floating-point numbers from the data set" if own else "data.source.dtype=float32"
    return f"the inputs are {dtype}{takes}; to have numbers: {instead}"


def evaluated(config: DictConfig, batch: Batch) -> Batch:
    """A batch with samples as they are evaluated, which training may cut or enlarge."""
    return replace(batch, inputs=(batch.inputs[0], *config.spec.input_shape))


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
    """Of the batches that `assay.data.loaders.BatchOrder` cuts without leaving any out."""
    if processes == 1:
        full, last = divmod(samples, batch_size)
        return ({batch_size} if full else set()) | ({last} if last else set())
    count = max(1, -(-samples // (batch_size * processes)))
    own = {-(-samples // processes)} if even else {samples // processes, -(-samples // processes)}
    return {size for part in own for size in (part // count, -(-part // count))} - {0}
