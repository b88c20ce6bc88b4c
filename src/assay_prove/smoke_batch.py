"""One random batch through augmentation, loss and metrics, before anything is written."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from omegaconf import OmegaConf
from torch import nn
from torchmetrics import Metric

from assay.check.values import MICRO_BATCH, WHOLE_BATCH
from assay.config.tree import walk
from assay.data.core.normalize import input_dtype
from assay.data.core.placement import free_memory
from assay.errors import (
    AssayError,
    ConfigError,
    display_path,
    first_line,
    is_users_own,
    user_frame,
)
from assay.loss.targets import is_mean_over_samples
from assay.metrics.per_target import ByHead
from assay.metrics.tracker import is_scalar, to_nested_lists
from assay.module import Module
from assay.targets.annotation import as_typed_key
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import lightning as L
    from omegaconf import DictConfig
    from torch import Tensor
    from torchmetrics import MetricCollection

    from assay.metrics.tracker import Tracker
    from assay.module import Observation


def check_micro_batch(config: DictConfig, loss: nn.Module, trainer: L.Trainer) -> None:
    """Refuse micro-batches if they would change the loss of a batch."""
    size = config.trainer.get("micro_batch")
    if size is None:
        return
    weighing = [
        f" with {type(callback).__name__}"
        for callback in trainer.callbacks  # type: ignore[attr-defined]  # a plain attribute
        if getattr(callback, "weighs_classes", False)
    ]
    if weighing or not is_mean_over_samples(loss):
        name = type(loss).__name__ + "".join(weighing[:1])
        raise ConfigError(
            f"{name} is not known to be a mean over samples, so micro-batches could change the loss",
            key=MICRO_BATCH,
            hint=f"{WHOLE_BATCH}, a loss without class weights, or, in a custom class that is such a mean, "
            "mean_over_samples = True",
        )
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        raise ConfigError(
            f"cannot be used with {type(trainer.strategy).__name__}",
            key=MICRO_BATCH,
            hint=WHOLE_BATCH,
        )
    if size == "auto" and isinstance(trainer.strategy, DDPStrategy):
        raise ConfigError(
            "one process would repeat its step while the others wait for its gradients",
            key=MICRO_BATCH,
            hint=f"{MICRO_BATCH}=32, the same in all processes",
        )


_FEW = 4
_MANY = 16
_MOST_VALUES = 1 << 26
_COPIES = 5
"""Numbers of a random batch, which would take more memory than a step, and what becomes of each."""
SCALE_IMAGES = "scale or crop them: data.source.image_size=[224,224], data/transform=random_crop"
_VIEWS = "augment=two_views"
_SIZE = re.compile(r"torch\.Size\((\[[^]]*\])\)")


@final
@dataclass(frozen=True)
class SmokeResult:
    """What a random batch showed."""

    names: dict[str, list[str]]
    inputs: tuple[int, ...]
    targets: tuple[int, ...]
    target_dtype: torch.dtype
    num_views: int = 1


class _Outputs(nn.Module):
    """Stands in for the model: values that are probabilities as well as logits."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.center = nn.Parameter(torch.tensor(0.5))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.center + 0.4 * (2 * torch.rand(len(inputs), *self.shape) - 1)


def try_parts(
    config: DictConfig,
    loss: nn.Module,
    metrics: Mapping[str, MetricCollection],
    augment: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None,
) -> SmokeResult:
    """Refuse parts that cannot take this data's batches, or each other's outputs."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a made-up batch may lack a class
        torch.default_generator.manual_seed(0)  # of the CPU alone, which is forked here
        task = task_of(config.spec.task)
        plain = batch = _smoke_batch(config, _MANY)
        views = None
        num_views = 1
        if task.compares_views:
            views = augment
            num_views = _num_views(config, augment)
        stand_in = Module(
            model=_Outputs(task.output_shape(config.spec, int(config.spec.num_outputs))),
            task=task,
            loss=loss,
            optimizer=torch.optim.SGD,
            metrics=metrics,
            augment=views,
        )

        def train() -> Observation | None:
            stand_in.training_step(batch, 0)
            return stand_in._step.observed

        tracker = stand_in.val_tracker
        names = {
            "val": _try_stage(
                config, "eval", stand_in, tracker, lambda: stand_in.evaluated(plain)
            )
        }
        if augment is not None and not task.compares_views:
            batch = _try_augment(config, augment, loss, stand_in)
        names["train"] = _try_stage(config, "train", stand_in, stand_in.train_tracker, train)
    compared = torch.zeros(1, dtype=torch.int64)
    if num_views == 1:
        compared = task.loss_targets(*batch, None)
    inputs = tuple(batch[0].shape[1:])
    return SmokeResult(names, inputs, tuple(compared.shape[1:]), compared.dtype, num_views)


def _smoke_batch(config: DictConfig, rows: int) -> tuple[Tensor, Tensor]:
    spec = config.spec
    shape = spec.get("train_shape") or spec.input_shape
    rows = max(2, min(rows, _MOST_VALUES // math.prod(shape)))
    if 4 * rows * math.prod(shape) * _COPIES > free_memory():
        raise ConfigError(
            f"there is no memory to train on samples as large as {list(shape)}",
            key="data",
            hint=SCALE_IMAGES,
        )
    if rows == spec.num_outputs:
        rows += 1  # else a transposed shape would pass for the right one
    return random_batch(config, rows, shape)


def random_batch(config: DictConfig, rows: int, shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Numbers of the shape and type that the data will give."""
    spec = config.spec
    task = task_of(spec.task)
    labels = int(spec.get("num_classes") or 0)
    size = labels
    if not task.learns_from_inputs:
        size = max(1, int(spec[task.size_key]))
    halved = task.fake_targets((rows + 1) // 2, size, shape)
    targets = halved.repeat_interleave(2, 0)[:rows]  # two of each class, for losses of pairs
    # the first and the last id among them; 0 is padding
    if vocab_size := int(spec.get("vocab_size") or 0):
        ids = torch.linspace(1, vocab_size - 1, rows * math.prod(shape), dtype=torch.float64)
        return ids.round().long().view(rows, *shape), targets
    inputs = torch.randn(rows, *shape)
    if cardinalities := list(spec.get("cardinalities") or ()):
        codes = torch.arange(rows)[:, None] % torch.tensor(cardinalities)
        inputs[:, -len(cardinalities) :] = codes
    dtype = input_dtype("32-true", spec.get("input_dtype", "float32"))
    return (inputs if dtype.is_floating_point else (inputs > 0).to(dtype)), targets


def _try_augment(
    config: DictConfig,
    augment: Any,
    loss: nn.Module,
    stand_in: Module,
) -> tuple[Tensor, Tensor]:
    inputs, labels = _smoke_batch(config, _FEW)
    targets = task_of(config.spec.task).loss_targets(inputs, labels, None)
    try:
        batch: tuple[Tensor, Tensor] = augment(inputs, targets)
    except Exception as error:
        hint = "augment=none"
        if unmet := _unmet_need(config, augment, inputs, targets):
            raise ConfigError(unmet, key="augment", hint=hint) from error
        message = f"cannot be applied to inputs {list(inputs.shape[1:])} and {_targets_in_words(config)}"
        if "'Long'" in str(error):
            whole = (
                entry.key for entry in walk(config.augment, "augment") if type(entry.raw) is int
            )
            hint = f"write whole numbers with a point: {as_typed_key(next(whole, 'augment.alpha'))}=1.0"
        raise _error(error, "augment", f"{message}: {_text(error)}", hint) from error
    if getattr(loss, "kind", "") != "embedding" and _are_numbers_of_samples(targets, batch[1]):
        raise ConfigError(
            f"{type(augment).__name__} labels its outputs by the sample that they come from, "
            f"but {_targets_in_words(config)} are to be learnt",
            key="augment",
            hint="augment=none",
        )
    try:
        stand_in.training_step(batch, 0)
    except Exception as error:
        message = f"{type(loss).__name__} cannot take the targets it makes: {_text(error)}"
        raise _error(error, "augment", message, "augment=none") from error
    return batch


def _unmet_need(config: DictConfig, augment: Any, inputs: Tensor, targets: Tensor) -> str:
    """What an augmentation that fails needs and the data lacks: classes or pictures; empty where unknown."""
    if not config.get("augment"):
        return ""
    counts = [entry for entry in walk(config.augment, "augment") if "num_classes" in entry.key]
    if counts and not config.spec.get("num_classes"):
        return f"mixes classes, and the data has {_targets_in_words(config)}"
    if inputs.ndim == 4:
        return ""
    pictures = torch.rand(len(inputs), 3, 32, 32)
    try:
        augment(pictures, targets)
    except Exception:
        return ""
    return f"takes pictures [channels, height, width], and the data has inputs {list(inputs.shape[1:])}"


def _are_numbers_of_samples(targets: Tensor, augmented: Tensor) -> bool:
    """Whether an augmentation makes labels of its own; of few samples they would pass for classes."""
    if augmented.ndim != 1 or augmented.is_floating_point():
        return False
    if targets.ndim > 1 or targets.is_floating_point():
        return True
    return not {*augmented.tolist()} <= {*targets.tolist()}


def _num_views(config: DictConfig, augment: Any) -> int:
    """Views that an augmentation makes of each sample; it is refused where there is nothing to compare."""
    name = config.spec.task
    if augment is None:
        raise ConfigError(
            f"data.task={name} compares views of a sample, but none are created",
            key="augment",
            hint=_VIEWS,
        )
    inputs, targets = _smoke_batch(config, _FEW)
    try:
        views, samples = augment(inputs, targets)
    except Exception as error:
        raise _error(
            error,
            "augment",
            f"cannot be applied to inputs {list(inputs.shape[1:])}: {_text(error)}",
            "transforms for samples of this shape",
        ) from error
    counts = samples.new_zeros(1)
    if samples.ndim == 1 and len(samples) == len(views) and not samples.is_floating_point():
        counts = samples.unique(return_counts=True)[1]
    if len(counts) != len(inputs) or counts.min() < 2 or counts.min() != counts.max():
        raise ConfigError(
            f"does not return several views of each sample with the index of their sample, which "
            f"data.task={name} requires",
            key="augment",
            hint=_VIEWS,
        )
    return int(counts[0])


def _try_stage(
    config: DictConfig,
    stage: str,
    stand_in: Module,
    tracker: Tracker,
    observe: Callable[[], Observation | None],
) -> list[str]:
    suits = task_of(config.spec.task).suits
    try:
        observed = observe()
    except Exception as error:
        message = f"{type(stand_in.loss).__name__} cannot take {_targets_in_words(config)}: {_text(error)}"
        raise _error(error, "loss", message, suits) from error
    assert observed is not None  # noqa: S101 - a training step has just set it
    predictions = stand_in.scored(observed)
    targets = observed[2]
    several = tracker.metrics
    for name, metric in tracker.metrics.items(keep_base=True, copy_state=False):
        try:
            copied = metric.clone()
            if hasattr(copied, "validate_args"):
                copied.validate_args = True  # off in a run, where it would wait for the device
            arguments = predictions.float(), targets
            if isinstance(several, ByHead):
                arguments = several.select_head(str(name), *arguments)
            copied.update(*arguments)
            to_nested_lists(copied.compute())
            _check_reset(metric, copied)
        except Exception as error:
            key = f"metrics.{stage}.metrics.{str(name).removeprefix(f'{tracker.stage}/')}"
            if OmegaConf.select(config, key) is None:
                key = f"metrics.{stage}"
            message = f"{type(metric).__name__} cannot score {_targets_in_words(config)}: {_text(error)}"
            hint = suits
            if not targets.numel():
                hint = "the data has no labels: metrics=none"
            if frame := user_frame(error) or definition_place(metric.compute):
                message = f"{message} ({frame})"
                hint = f"~{key} leaves it out"
            raise _error(error, key, message, hint) from error
    tracker.update(*observed)
    names = [name for name, value in tracker.compute().items() if is_scalar(value)]
    tracker.reset()
    return names


def _check_reset(before: Metric, after: Metric) -> None:
    """Refuse a metric whose numbers add up over epochs, as nothing resets them."""
    within = [one for one in after.modules() if isinstance(one, Metric)]
    if any(one.metric_state or type(one).reset is not Metric.reset for one in within):
        return
    first, second = (
        {
            name: value
            for name, value in vars(one).items()
            if not (name.startswith("_") or callable(value))
        }
        for one in (before, after)
    )
    if repr(first) != repr(second):
        raise ValueError(
            "its reset() does not clear what it counts; self.add_state in its __init__ declares it"
        )


def _targets_in_words(config: DictConfig) -> str:
    return task_of(config.spec.task).in_words(config.spec)


def _error(error: Exception, key: str, message: str, hint: str) -> AssayError:
    if isinstance(error, AssayError):
        return error
    return ConfigError(message, key=key, hint=hint)


def _text(error: Exception) -> str:
    short = _SIZE.sub(r"\1", first_line(error).partition(". ")[0].rstrip("."))
    return short or type(error).__name__


def definition_place(function: Any) -> str:
    """Where the user has written a function or method, such as `my_project/net.py:12`; else empty."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None or not is_users_own(code.co_filename):
        return ""
    return f"{display_path(code.co_filename)}:{code.co_firstlineno}"
