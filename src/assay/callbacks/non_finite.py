"""Stops a run at the first NaN or infinity, and reports where it came from."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, final

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from typing_extensions import override

from assay.errors import NON_FINITE, NonFiniteError, check_numbers
from assay.quoting import join_first
from assay.torch_internals import mark_non_finite, tree_leaves

if TYPE_CHECKING:
    import lightning as L
    from torch import nn
    from torch.optim import Optimizer


def note_non_finite(tensors: Sequence[Tensor], mark: Tensor, one: Tensor) -> None:
    """Set `mark` to 1 if a number is not finite, without waiting for the device."""
    # Types are checked first: this runs in each step, and attribute look-ups cost more.
    plain = [
        value
        if type(value) is Tensor and not (value.is_sparse or value.is_complex())
        else _real_values(value)
        for value in tensors
    ]
    mark_non_finite(plain, mark, one)


def _real_values(tensor: Any) -> Tensor:
    """Return the real numbers of a tensor that may be sparse, complex, or distributed."""
    values: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    values = values._values() if values.is_sparse else values
    if values.is_complex():
        return torch.view_as_real(values)
    return values


def floating_tensors(value: Any) -> Iterator[Tensor]:
    """Yield all floating-point tensors in nested containers."""
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from floating_tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from floating_tensors(item)


def is_finite(value: Any) -> bool:
    """Return whether all numbers in nested containers are finite; waits for the device."""
    return all(
        bool(_real_values(tensor.detach()).isfinite().all()) for tensor in floating_tensors(value)
    )


def non_finite_rows(batch: Any) -> list[int]:
    """Return the positions in a batch with values that are not finite."""
    rows: set[int] = set()
    for tensor in floating_tensors(batch):
        if tensor.ndim:
            wrong = ~tensor.detach().isfinite().reshape(len(tensor), -1).all(1)
            rows |= set(wrong.nonzero().flatten().tolist())
    return sorted(rows)


def non_finite_gradients(module: nn.Module) -> list[str]:
    """Name the parameters whose gradient is not finite, those near the output first."""
    named = [
        (name, value.grad) for name, value in module.named_parameters() if value.grad is not None
    ]
    return [name for name, grad in reversed(named) if not is_finite(grad)]


def non_finite_weights(module: nn.Module) -> list[str]:
    """Name the parameters and buffers that are not finite."""
    return [name for name, value in module.state_dict().items() if not is_finite(value)]


log = logging.getLogger("assay")

_ON_ACCELERATOR = 16


class _Step(NamedTuple):
    """What is still to be checked of a step."""

    batch: int
    epoch: int
    batch_idx: int
    loss: Tensor = torch.zeros(())
    mark: Tensor | None = None
    """Of the gradients."""


@final
class NonFinite(Callback):
    """Stops a run at a NaN or an infinity in the loss, a gradient or a metric, before a checkpoint holds it.

    The message names the batch and its samples, and those among them whose inputs are not finite.
    `debug=anomaly` finds the operation that a NaN came from.

    On the CPU, loss and gradients are checked before the optimizer updates the weights. On an accelerator a
    check waits for the device, so that the numbers of `every_n_steps` steps are checked together, and before
    a checkpoint is saved; by then the weights have been updated.

    Gradients under fp16's loss scaling are not checked: its scaler skips such steps by design. A value that
    is not finite in validation stops the run as well.

    Args:
        every_n_steps: How many steps are checked together; by default 1 on the CPU and 16 elsewhere.

    Raises:
        ValueError: `every_n_steps` is below 1.
    """

    def __init__(self, every_n_steps: int | None = None) -> None:
        check_numbers("[1, inf)", every_n_steps=every_n_steps)
        self.every_n_steps = every_n_steps
        self._every = 1
        self._one = torch.ones(())
        self._mark = torch.zeros(())
        self._loss: Tensor | None = None
        self._together = False
        self._batch: tuple[int, Any, int] = (-1, None, 0)
        self._pending: list[_Step] = []
        self._scaled = False

    # -- a step --------------------------------------------------------------------------------------------

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        default = 1
        if pl_module.device.type != "cpu":
            default = _ON_ACCELERATOR
        self._every = self.every_n_steps or default
        self._one = torch.ones((), device=pl_module.device)
        self._scaled = getattr(trainer.precision_plugin, "scaler", None) is not None
        self._pending = []
        self._mark = torch.zeros_like(self._one)
        self._loss = None
        # Whether a loss is checked together with its gradients: one check costs less than two.
        self._together = (
            self._every == 1 and pl_module.automatic_optimization and not self._scaled
        )

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._batch = (
            trainer.fit_loop.epoch_loop.batch_progress.total.completed,
            batch,
            batch_idx,
        )

    @override
    def on_before_backward(
        self, trainer: L.Trainer, pl_module: L.LightningModule, loss: Tensor
    ) -> None:
        if self._every > 1:
            number, _, index = self._batch
            self._pending.append(_Step(number, trainer.current_epoch, index, loss.detach(), None))
        elif (
            self._together
            and trainer.accumulate_grad_batches == 1
            and (loss.dtype, loss.device) == (torch.float32, self._one.device)
        ):
            self._loss = loss.detach()
        else:
            self._check_loss(trainer, pl_module, loss)

    def _check_loss(self, trainer: L.Trainer, module: L.LightningModule, loss: Tensor) -> None:
        if not math.isfinite(loss.item()):
            self._fail(trainer, module, f"the loss became {loss.item()}")

    @override
    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer
    ) -> None:
        """Check the gradients, or mark them for a later check."""
        if self._scaled:
            return
        parameters = [
            parameter for group in optimizer.param_groups for parameter in group["params"]
        ]
        loss = self._loss
        self._loss = None
        checked = [grad for parameter in parameters if (grad := parameter.grad) is not None]
        if loss is not None:
            checked.append(loss)
        if not checked:
            return
        if self._every == 1:
            note_non_finite(checked, self._mark, self._one)
            if self._mark.item():
                self._mark.zero_()
                if loss is not None:
                    self._check_loss(trainer, pl_module, loss)
                self._fail(trainer, pl_module, "")
        elif self._pending:
            mark = torch.zeros_like(self._one)
            note_non_finite(checked, mark, self._one)
            self._pending[-1] = self._pending[-1]._replace(mark=mark)

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if len(self._pending) >= self._every:
            self._check_pending(trainer)
        elif self._loss is not None:  # no hook was called before the optimizer step
            loss = self._loss
            self._loss = None
            self._check_loss(trainer, pl_module, loss)
        self._batch = (-1, None, 0)

    # -- further checks -------------------------------------------------------------------------------------

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._check_pending(trainer)
            _check_metrics(trainer)

    @override
    def on_save_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._check_pending(trainer)
        _check_metrics(trainer)
        spoilt = non_finite_weights(pl_module)
        if spoilt:
            raise _error(f"the weights are no longer finite: {join_first(spoilt)}")

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check_pending(trainer)
        _check_metrics(trainer)

    def _check_pending(self, trainer: L.Trainer) -> None:
        """Check the pending steps; waits for the device."""
        pending = self._pending
        self._pending = []
        if not pending:
            return
        losses = torch.stack([step.loss.float() for step in pending])
        marks = torch.stack(
            [0 * self._one if step.mark is None else step.mark for step in pending]
        )
        for step, loss, spoilt in zip(
            pending, *torch.stack([losses, marks]).tolist(), strict=True
        ):
            if spoilt or not math.isfinite(loss):
                problem = "a gradient is not finite"
                if not math.isfinite(loss):
                    problem = f"the loss became {loss}"
                read = getattr(trainer.train_dataloader, "read_batch", None)
                batch = read(step.epoch, step.batch_idx) if read else None
                raise _step_error(trainer, problem, step, batch)

    def _fail(self, trainer: L.Trainer, module: L.LightningModule, problem: str) -> NoReturn:
        number, batch, batch_idx = self._batch
        step = _Step(number, trainer.current_epoch, batch_idx)
        problem = (
            problem or f"the gradient of {join_first(non_finite_gradients(module))} is not finite"
        )
        raise _step_error(trainer, problem, step, batch)


def _step_error(trainer: L.Trainer, problem: str, step: _Step, batch: Any) -> NonFiniteError:
    """An error that describes the batch and samples of a step; logs all samples."""
    text = f"batch {step.batch} (epoch {step.epoch + 1}, batch {step.batch_idx + 1} of it)"
    samples = _samples_of(trainer.train_dataloader, step.epoch, step.batch_idx)
    if samples:
        log.error("%s holds the samples %s", text, " ".join(map(str, samples)))
    rows = non_finite_rows(batch)
    if rows and rows[-1] < len(samples):
        samples = [samples[row] for row in rows]
    if samples:
        text += f", sample{'s' * (len(samples) > 1)} {join_first(samples)}"
    if rows:
        message = f"{problem} in {text}; the inputs are already not finite"
        return NonFiniteError(message, hint=NON_FINITE)
    return _error(f"{problem} in {text}")


def _samples_of(loader: Any, epoch: int, batch: int) -> list[int]:
    if not hasattr(loader, "samples"):
        return []
    samples: list[int] = loader.samples(epoch, batch).tolist()
    return samples


def _describe_spoilt(trainer: L.Trainer) -> str:
    """Where validation data is not finite, for which it is read once more; empty where all of it is."""
    loaders = tree_leaves(trainer.val_dataloaders)
    for loader, count in zip(loaders, trainer.num_val_batches, strict=False):
        for index, batch in enumerate(loader):
            if index >= count:
                break
            if rows := non_finite_rows(batch):
                if samples := _samples_of(loader, 0, index):
                    return f"sample {samples[rows[0]]}"
                return f"batch {index + 1}"
    return ""


def _check_metrics(trainer: L.Trainer) -> None:
    """Check the latest metrics of training and validation."""
    metrics = {
        k: v for k, v in trainer.callback_metrics.items() if k.startswith(("train/", "val/"))
    }
    if not metrics:
        return
    device = trainer.strategy.root_device  # one wait instead of one per metric
    finite = torch.stack(
        [value.isfinite().all().to(device) for value in metrics.values()]
    ).tolist()
    failed = [
        name for name, is_finite_value in zip(metrics, finite, strict=True) if not is_finite_value
    ]
    monitored = {getattr(callback, "monitor", None) for callback in trainer.callbacks}  # type: ignore[attr-defined]
    for name in failed:
        value = metrics[name]
        loss = f"{name.partition('/')[0]}/loss"
        # Beside a finite loss a score is NaN that is undefined, as of a class that the subset lacks.
        is_undefined = loss in metrics and loss not in failed and bool(value.isnan().all())
        message = f"{name} became {value.item()} in epoch {trainer.current_epoch + 1}"
        if not is_undefined:
            if name.startswith("val/") and (place := _describe_spoilt(trainer)):
                spoilt = f"the validation data holds NaN or infinity, first in {place}"
                raise NonFiniteError(f"{message}: {spoilt}", hint=NON_FINITE)
            raise _error(message)
        if name in monitored:
            raise NonFiniteError(
                f"{message}, but {loss} is finite: {name} is undefined for these samples",
                hint=f"monitor {loss}, or split the data differently (data.split)",
            )


def _error(message: str) -> NonFiniteError:
    fixes = "lower optimizer.lr, or set trainer.gradient_clip_val=1.0"
    return NonFiniteError(message, hint=f"{fixes}; debug=anomaly names the operation")
