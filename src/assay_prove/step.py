"""A training step on fake tensors, for real where these cannot follow, and the message if it fails."""

from __future__ import annotations

import copy
import itertools
import traceback
import weakref
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, final

import torch
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from assay.assemble.assembly import assemble_module
from assay.assemble.model import build_model
from assay.assemble.node import build
from assay.assemble.trainer_options import world_size
from assay.check.report import Memory, Step
from assay.config.unread_keys import OUR_DATA
from assay.data.core.batch_order import should_drop_last
from assay.data.core.normalize import TargetScale
from assay.data.core.placement import device_memory, free_device_memory
from assay.errors import AssayError, ConfigError, DeviceError, first_line, user_frame
from assay.task.task_of import task_of
from assay.torch_internals import (
    MODULE_CALL,
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    TorchDispatchMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    tree_iter,
)
from assay_prove.show import format_bytes
from assay_prove.smoke_batch import SCALE_IMAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import lightning as L
    from lightning.pytorch.plugins import Precision

    from assay.finetune.interface import FineTuning
    from assay.module import Module

    Sizes = Mapping[bool, Sequence[int]]


_aten = torch.ops.aten
_PRODUCTS = {
    *(_aten.mm, _aten.addmm, _aten.bmm, _aten.baddbmm, _aten.mv, _aten.addmv, _aten.dot),
    *(
        _aten.convolution,
        _aten.convolution_backward,
        _aten._scaled_dot_product_flash_attention_for_cpu,
    ),
}


@final
class SameType(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Refuses products of tensors of different types."""

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Look at the types, then run the operation."""
        del types
        if func.overloadpacket in _PRODUCTS:
            kinds = dict.fromkeys(
                value.dtype for value in args if isinstance(value, torch.Tensor) and value.ndim
            )
            if len(kinds) > 1:
                named = " and ".join(str(kind).removeprefix("torch.") for kind in kinds)
                raise RuntimeError(f"both must have the same type, not {named}")
        return func(*args, **(kwargs or {}))


@final
class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Counts the bytes of the storages that are alive, and the most there were at once."""

    def __init__(self, already: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.live = self.peak = 0
        self._sizes: dict[int, int] = {}
        for tensor in already:
            self._count(tensor)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Run the operation and count what it made."""
        del types
        result = func(*args, **(kwargs or {}))
        for value in tree_iter(result):
            if isinstance(value, torch.Tensor):
                for part in dense_parts(value):
                    self._count(part)
        return result

    def _count(self, tensor: torch.Tensor) -> None:
        # torch gives a storage one Python object for as long as any tensor uses it.
        storage = tensor.untyped_storage()
        name = id(storage)
        if name not in self._sizes:
            self._sizes[name] = storage.nbytes()
            weakref.finalize(storage, self._drop, name)
            self.live += self._sizes[name]
            self.peak = max(self.peak, self.live)

    def _drop(self, name: int) -> None:
        self.live -= self._sizes.pop(name)

    def __enter__(self) -> Self:
        """Count from here on, also what is given back while its tensor lives, as gathered shards are."""
        self._resize = resize = torch.UntypedStorage.resize_

        def counted(storage: torch.UntypedStorage, size: int) -> Any:
            resize(storage, size)
            if id(storage) in self._sizes:
                self.live += storage.nbytes() - self._sizes[id(storage)]
                self._sizes[id(storage)] = storage.nbytes()
                self.peak = max(self.peak, self.live)
            return storage

        torch.UntypedStorage.resize_ = counted  # type: ignore[method-assign, assignment]  # until it is left
        super().__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        return self

    def __exit__(self, *raised: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]  # as it was
        super().__exit__(*raised)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def dense_parts(tensor: Any) -> tuple[torch.Tensor, ...]:
    """The tensors that have the memory: of a sparse one its indices and values, of shards what is here."""
    if hasattr(tensor, "to_local"):
        return (tensor.to_local(),)
    if tensor.is_sparse:
        return (tensor._indices(), tensor._values())
    return (tensor,)


def layer_at_fault(error: Exception, model: nn.Module) -> tuple[str, str]:
    """The innermost layer that raised an error: its name, and a description with its inputs."""
    names = {layer: name for name, layer in model.named_modules()}
    calls = [
        called
        for frame, _ in traceback.walk_tb(error.__traceback__)
        if frame.f_code is MODULE_CALL and (called := frame.f_locals)["self"] in names
    ]
    if not calls:
        return "", ""
    layer = calls[-1]["self"]
    name = names[layer]
    description = f"{type(layer).__name__}({layer.extra_repr()})"
    shapes = _shapes([*calls[-1]["args"], *calls[-1]["kwargs"].values()])
    if name:
        return name, f"layer {name!r}, {description}, got {shapes}"
    return "", f"{description} got {shapes}"


def _key_of_layer(name: str, node: Any, key: str) -> str:
    """Full config key of the node that a layer was built from, as far as names tell."""
    for part in filter(None, name.split(".")):
        arguments = None
        if isinstance(node, DictConfig):
            arguments = node.get("_args_")
        if part.isdigit() and isinstance(arguments, ListConfig) and int(part) < len(arguments):
            node = arguments[int(part)]
            key = f"{key}._args_[{part}]"
        elif isinstance(node, DictConfig) and isinstance(node.get(part), DictConfig):
            node = node[part]
            key = f"{key}.{part}"
        else:
            break
    return key


def _shapes(values: list[Any]) -> str:
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    named = [str(list(tensor.shape)) for tensor in tensors]
    if any(tensor.dtype is not torch.float32 for tensor in tensors):
        kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
        named = list(map(" ".join, zip(named, kinds, strict=True)))
    return " and ".join(named) or "no tensor"


def model_on_meta(
    config: DictConfig, precision: Precision
) -> tuple[nn.Module, FineTuning | None]:
    """The model and its fine-tuning; with weights where it computes with them while it is made."""
    model, finetune = _make_on_meta(lambda: build_model(config))
    if config.trainer.get("channels_last"):
        model.to(memory_format=torch.channels_last)
    return precision.convert_module(model), finetune


def module_on_meta(config: DictConfig, precision: Precision) -> nn.Module:
    """A custom LightningModule, likewise."""
    module: nn.Module = _make_on_meta(lambda: build(config, "module"))
    return precision.convert_module(module)


def _make_on_meta(make: Callable[[], Any]) -> Any:
    try:
        with torch.device("meta"):
            return make()
    except (Exception, SystemExit):
        return make()  # an error now is one of the config


_LARGE_SIDE = 512
"""Side of an image from which on it is scaled, rather than the batch made smaller."""
_FAR = 1.5
_NEAR = 0.8
"""Shares of the memory: an estimate beyond the first cannot be wrong enough, one beyond the second may be."""


def check_capacity(
    memory: Memory,
    trainer: L.Trainer,
    shape: Sequence[int],
    *,
    whole: bool = True,
) -> list[str]:
    """Refuse a step with inputs of a shape that is far beyond the memory of the device."""
    known = (SingleDeviceStrategy, DDPStrategy, ModelParallelStrategy)
    if not isinstance(trainer.strategy, known) or trainer.num_nodes > 1:
        return []  # which may hold a part of it, or be on machines unlike this one
    device = trainer.strategy.root_device
    available = device_memory(device)
    processes = 1
    if device.type == "cpu":  # these share it
        processes = trainer.num_devices
    needed = memory.peak * processes
    if not whole:
        needed -= memory.activations * processes
    where = "this machine" if device.type == "cpu" else str(device)
    text = f"a step takes about {format_bytes(needed)}, and {where} has {format_bytes(available)}"
    if not available or needed <= _NEAR * available:
        free = free_device_memory(device)
        if 0 < free < needed:
            return [
                f"{text}, of which {format_bytes(free)} are free: other processes hold the rest"
            ]
        return []
    if needed <= _FAR * available:
        return [f"{text}: it may not fit"]
    if (
        memory.activations > memory.peak / 2
        and memory.activations * processes < _FAR * available * shape[0]
    ):
        hint = "trainer.micro_batch=auto, or a smaller data.batch_size"
        if len(shape) == len("NCHW") and max(shape[2:]) > _LARGE_SIDE:
            hint = SCALE_IMAGES
        raise ConfigError(text, key="data.batch_size", hint=hint)
    raise ConfigError(
        text,
        key="model",
        hint="a smaller model, precision=bf16_true, or device=fsdp2 on several GPUs",
    )


_DEPENDS_ON_DATA = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


@final
@dataclass(frozen=True)
class Batch:
    """What the batches of training look like."""

    inputs: tuple[int, ...]
    input_dtype: torch.dtype
    targets: tuple[int, ...]
    target_dtype: torch.dtype

    def of_size(self, rows: int) -> Batch:
        """Such a batch of another size."""
        return replace(self, inputs=(rows, *self.inputs[1:]), targets=(rows, *self.targets[1:]))


class StepError(Exception):
    """A step cannot be done."""

    def __init__(self, stage: str, error: Exception, where: str, key: str) -> None:
        message = first_line(error)
        if frame := user_frame(error):
            message = f"{message} ({frame})"
        if where:
            message = f"{where}: {message}"
        super().__init__(message)
        self.stage = stage
        self.where = where
        self.key = key
        self.depends_on_data = isinstance(error, _DEPENDS_ON_DATA)


def as_fake(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """A copy with a fake parameter or buffer on the CPU for each real one; tied ones stay tied."""
    module = copy.deepcopy(module)  # now: torch's copies of fake tensors write where no memory is
    fakes: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in fakes:
            with mode:
                empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            if isinstance(tensor, nn.Parameter):
                empty = nn.Parameter(empty, tensor.requires_grad)
            fakes[id(tensor)] = empty
        return fakes[id(tensor)]

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in list(tensors.items()):
                if tensor is not None and not isinstance(tensor, nn.UninitializedParameter):
                    tensors[name] = fake(tensor)  # type: ignore[assignment]  # of the same kind as before
    return module


def take_step(
    module: Module,
    batch: Batch,
    precision: Precision,
    node: Any,
    mode: FakeTensorMode | None,
) -> Step:
    """Two optimizer steps, the second one counted: from then on every step is like it."""

    def step() -> tuple[int, ...]:
        shape: tuple[int, ...] = ()

        @torch.enable_grad()  # an optimizer may call it with gradients switched off
        def closure() -> Any:
            nonlocal shape
            # In Lightning's order: the gradients of the step before are there until the forward is done.
            loss, shape = _forward(module, batch, precision, node)
            optimizer.zero_grad()
            with _translate_errors("backward"):
                loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            return loss.detach()

        with _translate_errors("optimizer"):
            optimizer.step(closure)
        return shape

    with mode or nullcontext(), SameType():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer: Any = module.configure_optimizers()
        if isinstance(optimizer, dict):
            optimizer = optimizer["optimizer"]
        step()
        held = (*module.parameters(), *module.buffers())
        grads = (parameter.grad for parameter in module.parameters())
        state = (value for state in optimizer.state.values() for value in state.values())
        parts = [
            [
                part
                for one in tensors
                if isinstance(one, torch.Tensor)
                for part in dense_parts(one)
            ]
            for tensors in (held, grads, state)
        ]
        with (
            LiveMemory(itertools.chain(*parts)) as memory,
            FlopCounterMode(display=False) as flops,
        ):
            outputs = step()
    weights, gradients, kept_by_optimizer = map(_storage_bytes, parts)
    activations = memory.peak - weights - gradients - kept_by_optimizer
    return Step(
        outputs,
        flops.get_total_flops(),
        Memory(weights, gradients, kept_by_optimizer, max(0, activations)),
    )


def _try_sizes(parts: TriedParts, module: Module, batch: Batch, sizes: Sizes) -> None:
    """Forward passes with the other batches that there will be: the last of an epoch, those of evaluation."""
    phases = {
        True: ("training", batch),
        False: ("evaluation", _evaluation_batch(parts.config, batch)),
    }
    with torch.no_grad(), SameType():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        for train, (phase, of_phase) in phases.items():
            module.train(train)
            for rows in sizes[train]:
                when = f"with a batch of {rows} in {phase}"
                _forward(
                    module, of_phase.of_size(rows), parts.precision, parts.config.model, when
                )
    module.train()


def _forward(
    module: Module,
    batch: Batch,
    precision: Precision,
    node: Any,
    when: str = "",
) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Loss of the batch, and shape of the model's outputs."""
    # Fake ones inside a fake mode.
    inputs = torch.zeros(batch.inputs, dtype=batch.input_dtype)
    targets = torch.zeros(batch.targets, dtype=batch.target_dtype)
    with precision.forward_context():
        try:
            outputs = module(inputs)
            if not isinstance(outputs, torch.Tensor):
                raise TypeError(
                    f"expected a tensor from the model, got a {type(outputs).__name__}"
                )
            if not outputs.ndim or len(outputs) != len(inputs):
                raise ValueError(
                    f"the model returns {list(outputs.shape)} for {len(inputs)} samples"
                )
        except Exception as error:
            name, layer = layer_at_fault(error, module.model)
            where = ", ".join(part for part in (when, layer) if part)
            raise StepError("model", error, where, _key_of_layer(name, node, "model")) from error
        with _translate_errors("loss", when):
            loss: torch.Tensor = module.compared(outputs, targets)
    return loss, tuple(module.combined(outputs).shape)


@contextmanager
def _translate_errors(stage: str, when: str = "") -> Iterator[None]:
    try:
        yield
    except StepError:
        raise
    except Exception as error:
        part = stage
        if stage == "backward":
            part = "model"
        raise StepError(stage, error, when, part) from error


def _storage_bytes(tensors: list[torch.Tensor]) -> int:
    sizes = {
        id(tensor.untyped_storage()): tensor.untyped_storage().nbytes() for tensor in tensors
    }
    return sum(sizes.values())


FEW = 4
"""Samples of a batch where nothing says how many there are, or all would take time."""
_VALUES = 1 << 20
"""Inputs of a batch up to which it is computed for real."""


_LARGE = 4 << 30
"""Bytes of weights from which on a model is not built for real to see whether fake tensors were wrong."""


@final
@dataclass(frozen=True)
class TriedParts:
    """The parts of a job with which steps are tried."""

    config: DictConfig
    model: nn.Module
    loss: nn.Module
    metrics: Mapping[str, Any]
    optimization: Mapping[str, Any]
    precision: Precision


def prove_step(
    parts: TriedParts,
    batch: Batch,
    sizes: Sizes,
    mode: FakeTensorMode,
) -> tuple[Step | None, str]:
    """Cost of a step, or the reason why it is unknown; other batch sizes are tried, too."""
    config = parts.config
    parameters = list(parts.model.parameters())
    if any(isinstance(p, nn.UninitializedParameter) for p in parameters):
        _try_for_real(parts, batch, sizes, of_values=True, steps=False)
        return None, "the model takes its shape from the first batch"
    try:
        module = build_fake_module(parts, mode)
        step = take_step(module, batch, parts.precision, config.model, mode)
        with mode:
            _try_sizes(parts, module, batch, sizes)
        return step, ""
    except StepError as error:
        if sum(p.numel() * p.element_size() for p in parameters) <= _LARGE:
            _try_for_real(parts, batch, sizes, of_values=error.depends_on_data)
        elif not error.depends_on_data:
            raise _to_config_error(config, error, batch) from error
        if error.depends_on_data:
            return None, f"{error.where or error.stage}: what it does depends on the data"
        return None, f"fake tensors do not support it: {error}"


def _try_for_real(
    parts: TriedParts, batch: Batch, sizes: Sizes, *, of_values: bool, steps: bool = True
) -> None:
    """Refuse a job that fails with small real batches: fake tensors may be at fault themselves."""
    config = parts.config
    precision = parts.precision
    model = precision.convert_module(build_model(config)[0])
    module = _build_step_module(parts, model, precision.convert_module(copy.deepcopy(parts.loss)))
    base = batch.of_size(*_small_sizes(config, [batch.inputs[0]]))
    rows = base.inputs[0]
    few = {
        True: _small_sizes(config, sizes[True]),
        False: _small_sizes(config, sizes[False], rows),
    }
    try:
        if steps:
            take_step(module, base, precision, config.model, None)
        else:
            _try_sizes(parts, module, base, {True: [rows], False: []})
        of_values = False
        _try_sizes(parts, module, base, few)
    except StepError as error:
        if not of_values:
            raise _to_config_error(config, error, batch) from error


def _small_sizes(config: DictConfig, sizes: Sequence[int], otherwise: int = FEW) -> list[int]:
    """Numbers of samples that are few enough to be computed for real."""
    most = max(FEW, _VALUES // max(1, int(config.spec.num_features)))
    return sorted({size for size in sizes if size <= most}) or ([otherwise] if sizes else [])


def build_fake_module(parts: TriedParts, mode: FakeTensorMode) -> Module:
    """Build the run's module from fake copies of its parts."""
    fake_loss = as_fake(parts.precision.convert_module(copy.deepcopy(parts.loss)), mode)
    return _build_step_module(parts, as_fake(parts.model, mode), fake_loss)


def _build_step_module(parts: TriedParts, model: nn.Module, loss: nn.Module) -> Module:
    config = parts.config
    # Of the kind that the run will have: the numbers change neither shapes nor types.
    scale = TargetScale()
    if task_of(config.spec.task).has_real_targets and config.data.get("standardize_targets"):
        numbers = int(config.spec.num_targets)
        scale = TargetScale([0.0] * numbers, [1.0] * numbers)
    others = {"loss": loss, "metrics": parts.metrics, **copy.deepcopy(parts.optimization)}
    return assemble_module(config, model, others, target_scale=scale)


def _to_config_error(config: DictConfig, error: StepError, batch: Batch) -> AssayError:
    """The error for a step that fails."""
    if isinstance(error.__cause__, AssayError):
        return error.__cause__
    if "NVIDIA driver" in str(error):
        return DeviceError(f"device: {error}", hint="device=cpu, or install a driver for it")
    shape = list(config.spec.input_shape)
    hint = f"a sample of this data has the shape {shape}; the model's outputs: {config.spec.num_outputs}"
    if error.stage == "loss" and task_of(config.spec.task).has_masks:
        hint += "; masks need a model with outputs for each pixel, such as model=unet"
    if not batch.input_dtype.is_floating_point:
        hint = _of_integers(config, str(batch.input_dtype).removeprefix("torch."))
    phase = "a training step"
    if " in evaluation" in error.where:
        phase = "evaluation"
    text = f"{phase} fails: {error}"
    trained = list(batch.inputs[1:])
    if error.stage == "model" and trained != shape:
        text += f"; data.transform and augment make samples {trained} to train"
        hint = "keep one size in data.transform and augment, or take a model for any, such as small_cnn"
    if " in training" in error.where:
        hint = "data.drop_last=true leaves out the smaller last batch; or another data.batch_size"
    if error.stage == "backward" and "scalar outputs" in str(error):
        return ConfigError(
            "returns several values for a batch; a training step needs a single value",
            key="loss",
            hint="take their mean in its forward",
        )
    if error.stage == "backward" and "does not require grad" in str(error):
        return ConfigError(
            "a training step fails: the loss does not depend on the model's parameters",
            key=error.key,
            hint="leave out .detach(), .item() and torch.no_grad() in the model and the loss",
        )
    if error.stage == "backward":
        hint = "choose another model or loss"
    if error.stage == "optimizer":
        hint = "choose another optimizer"
    # auto cannot know of each model that its gradients are sparse
    if error.stage in ("optimizer", "backward") and "fused" in str(error):
        return ConfigError(text, key="optimizer.fused", hint="optimizer.fused=null")
    return ConfigError(text, key=error.key, hint=hint)


def _of_integers(config: DictConfig, dtype: str) -> str:
    """What to do with integers that a model does not take."""
    if config.spec.get("vocab_size"):
        return "the inputs are token ids of texts: model=bag_of_embeddings, or model=text_transformer"
    takes = "; an embedding takes int64"
    if dtype in ("int32", "int64"):
        takes = ", which an embedding takes"
    instead = "return floating-point numbers from the data set"
    if "dtype" in (OmegaConf.select(config, "data.source") or {}):
        instead = "data.source.dtype=float32"
    return f"the inputs are {dtype}{takes}; for floating-point inputs: {instead}"


def _evaluation_batch(config: DictConfig, batch: Batch) -> Batch:
    """A batch with samples as they are evaluated, which training may cut or enlarge."""
    shape = config.spec.input_shape
    targets = batch.targets
    if len(targets) > 2:  # masks, as high and wide as their pictures
        targets = (*targets[:-2], *shape[-2:])
    return replace(batch, inputs=(batch.inputs[0], *shape), targets=targets)


def batch_sizes(config: DictConfig) -> dict[bool, list[int]]:
    """Numbers of samples on one device, each once."""
    data = config.data
    spec = config.spec
    processes = world_size(config)
    if data.get("_target_") != OUR_DATA:
        return {True: [], False: [int(spec.get("train_batch_size") or 1)]}
    size = int(data.batch_size)
    trained = set[int]()
    if not should_drop_last(data.get("drop_last", "auto"), spec.num_train, size, processes):
        trained = _num_samples(spec.num_train, size, processes, even=True) - {size}
    evaluated = set[int]()
    for count in (spec.num_val, spec.num_test):
        evaluated |= _num_samples(count, int(data.eval_batch_size), processes, even=False)
    return {True: sorted(trained), False: sorted(evaluated)}


def _num_samples(samples: int, batch_size: int, processes: int, *, even: bool) -> set[int]:
    """Of the batches that `assay.data.core.loaders.BatchOrder` cuts without leaving any out."""
    if processes == 1:
        return {min(samples, batch_size), samples % batch_size} - {0}
    count = max(1, -(-samples // (batch_size * processes)))
    per_process = {-(-samples // processes)}
    if not even:
        per_process |= {samples // processes}
    return {size for part in per_process for size in (part // count, -(-part // count))} - {0}
