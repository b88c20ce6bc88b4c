"""Training steps on fake tensors: shapes and types are worked out, nothing is computed or allocated."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from assay.check.proof.dtype_check import SameType
from assay.check.proof.layers import watched
from assay.check.proof.memory import LiveMemory, dense_parts
from assay.error_location import own_frame
from assay.errors import first_line
from assay.torch_internals import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lightning.pytorch.plugins import Precision

    from assay.module import Module

_DEPENDS_ON_DATA = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)


@final
@dataclass(frozen=True)
class Batch:
    """What the batches of training look like.

    Attributes:
        inputs: Shape with the batch.
        input_dtype: Of the inputs.
        targets: Shape with the batch.
        target_dtype: Of the targets.
    """

    inputs: tuple[int, ...]
    input_dtype: torch.dtype
    targets: tuple[int, ...]
    target_dtype: torch.dtype

    def of_size(self, rows: int) -> Batch:
        """Such a batch of another size."""
        return replace(self, inputs=(rows, *self.inputs[1:]), targets=(rows, *self.targets[1:]))

    def zeros(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One such batch; a fake one inside a fake mode."""
        return (
            torch.zeros(self.inputs, dtype=self.input_dtype),
            torch.zeros(self.targets, dtype=self.target_dtype),
        )


@final
@dataclass(frozen=True)
class Memory:
    """Bytes on the device at the fullest moment of a step.

    Attributes:
        weights: Parameters and buffers.
        gradients: One for each trainable parameter.
        optimizer: What the optimizer keeps.
        activations: What is left of the peak: outputs kept for the backward pass, and passing values.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def peak(self) -> int:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


@final
@dataclass(frozen=True)
class Step:
    """What a step comes to.

    Attributes:
        outputs: Shape of the model's outputs.
        flops: Of forward and backward of one batch, counting a multiplication and an addition as two.
        memory: At its peak, which is the sum of its parts.
    """

    outputs: tuple[int, ...]
    flops: int
    memory: Memory


class StepError(Exception):
    """A step cannot be done.

    Args:
        stage: `model`, `loss`, `backward` or `optimizer`.
        text: What went wrong, in one line.
        where: The layer, in words.
        key: Config key of the part, as far as it is known.
        depends_on_data: Whether only fake tensors are at fault, which hold no values to decide on.
    """

    def __init__(self, stage: str, text: str, where: str, key: str, *, depends_on_data: bool) -> None:
        super().__init__(f"{where}: {text}" if where else text)
        self.stage, self.text, self.where, self.key = stage, text, where, key
        self.depends_on_data = depends_on_data


def new_mode() -> FakeTensorMode:
    """A mode of fake tensors; those of different modes do not go together."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def as_fake(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Replace each parameter and buffer by a fake one on the CPU; tied ones stay tied.

    Args:
        module: On the meta device, or real; changed in place.
        mode: Of the fake tensors.
    """
    made: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            with mode:
                empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
            is_parameter = isinstance(tensor, nn.Parameter)
            made[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
        return made[id(tensor)]

    for part in module.modules():
        for tensors in (part._parameters, part._buffers):
            for name, tensor in list(tensors.items()):
                if tensor is not None and not isinstance(tensor, nn.UninitializedParameter):
                    tensors[name] = fake(tensor)  # type: ignore[assignment]  # of the same kind as before
    return module


def take_step(
    module: Module, batch: Batch, precision: Precision, node: Any, mode: FakeTensorMode | None
) -> Step:
    """Two optimizer steps, the second one counted: from then on every step is like it.

    Args:
        module: Its model and loss, of the precision's type, are changed; fake where there is a mode.
        batch: What to feed.
        precision: Lightning's plugin.
        node: The model's config node.
        mode: Of the fake tensors; None: the steps are really done.

    Raises:
        StepError: Some part cannot do its share.
    """
    run = _Run(module, batch, precision, node)
    with mode or nullcontext(), SameType():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        optimizer = run.optimizer()
        run.step(optimizer)
        parameters = list(module.parameters())
        kept = [value for state in optimizer.state.values() for value in state.values()]
        state = [value for value in kept if isinstance(value, torch.Tensor)]
        weights = _bytes([*parameters, *module.buffers()])
        grads = [part for p in parameters if p.grad is not None for part in dense_parts(p.grad)]
        gradients = _bytes(grads)
        there = [*parameters, *module.buffers(), *state, *grads]
        with LiveMemory(there) as memory, FlopCounterMode(display=False) as flops:
            outputs = run.step(optimizer)
    rest = memory.peak - weights - gradients - _bytes(state)
    return Step(outputs, flops.get_total_flops(), Memory(weights, gradients, _bytes(state), max(0, rest)))


def try_sizes(
    module: Module, batch: Batch, sizes: Mapping[bool, Sequence[int]], precision: Precision, node: Any
) -> None:
    """Forward passes with the other batches that there will be: the last of an epoch, those of evaluation.

    Args:
        module: As for `take_step`.
        batch: Of training.
        sizes: Numbers of samples in training (True) and in evaluation (False).
        precision: Lightning's plugin.
        node: The model's config node.

    Raises:
        StepError: The model or the loss cannot take one of them, or gives outputs of another shape.
    """
    with torch.no_grad(), SameType():  # type: ignore[no-untyped-call]  # torch leaves it untyped
        for training, numbers in sizes.items():
            module.train(training)
            for rows in numbers:
                when = f"with a batch of {rows} in {'training' if training else 'evaluation'}"
                _Run(module, batch.of_size(rows), precision, node, when).forward()
    module.train()


@final
class _Run:
    def __init__(self, module: Module, batch: Batch, precision: Precision, node: Any, when: str = "") -> None:
        self._module, self._batch, self._precision, self._node = module, batch, precision, node
        self._when = when

    def optimizer(self) -> torch.optim.Optimizer:
        made: Any = self._module.configure_optimizers()
        optimizer: torch.optim.Optimizer = made["optimizer"] if isinstance(made, dict) else made
        return optimizer

    def step(self, optimizer: torch.optim.Optimizer) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()

        def closure() -> Any:
            nonlocal shape
            # In Lightning's order: the gradients of the step before are there until the forward is done.
            loss, shape = self.forward()
            optimizer.zero_grad()
            self._guarded("backward", loss.backward)
            return loss.detach()

        self._guarded("optimizer", lambda: optimizer.step(closure))
        return shape

    def forward(self) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Loss of the batch, and shape of the model's outputs."""
        module = self._module
        inputs, targets = self._batch.zeros()
        shapes: list[tuple[int, ...]] = []
        with watched(module.model) as layers, self._precision.forward_context():
            try:
                outputs = module(inputs)
                if not isinstance(outputs, torch.Tensor):
                    raise TypeError(f"the model gives a {type(outputs).__name__}; a tensor was expected")
                if not outputs.ndim or len(outputs) != len(inputs):
                    raise ValueError(f"the model gives {list(outputs.shape)} for {len(inputs)} samples")
                shapes.append(tuple(outputs.shape))
            except StepError:
                raise
            except Exception as error:
                where = ", ".join(part for part in (self._when, layers.where()) if part)
                raise _step_error("model", error, where, layers.key(self._node, "model")) from error
            loss: torch.Tensor = self._guarded("loss", lambda: module.compared(outputs, targets))
        return loss, shapes[0]

    def _guarded(self, stage: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except StepError:
            raise
        except Exception as error:
            key = {"backward": "model"}.get(stage, stage)
            raise _step_error(stage, error, self._when, key) from error


def _step_error(stage: str, error: Exception, where: str, key: str) -> StepError:
    depends = isinstance(error, _DEPENDS_ON_DATA)
    first = first_line(error)
    if frame := own_frame(error):
        first = f"{first} ({frame})"
    return StepError(stage, first, where, key, depends_on_data=depends)


def _bytes(tensors: list[torch.Tensor]) -> int:
    sizes = {id(tensor.untyped_storage()): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(sizes.values())
