from __future__ import annotations

import gc
import logging
import random
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from assay.callbacks.batch_norm import BATCH_NORMS
from assay.errors import AssayError
from assay.loop.lightning_internals import CURRENT_HOOK, skips_backward, without_gradient_sync
from assay.quoting import pluralize
from assay.record.run_record import cause_of_exception

if TYPE_CHECKING:
    from collections.abc import Callable

    import lightning as L

    Forward = Callable[[], tuple[Tensor | None, dict[str, Any]]]
    Backward = Callable[[Tensor | None], None]

log = logging.getLogger("assay.notes")


@final
class MicroBatch:
    """Takes the gradient of a batch as the weighted sum of those of its pieces, with one step in the end."""

    def __init__(self, requested: int | Literal["auto"]) -> None:
        self._asked = requested
        self.sizes: dict[int, int] = {}
        self.on_change: Callable[[], None] = lambda: None

    def prepare(self, trainer: L.Trainer) -> None:
        """Ask what does not change while training."""
        self._trainer = trainer
        self._module: Any = trainer.lightning_module
        self._sensitive = [
            part for part in self._module.modules() if isinstance(part, BATCH_NORMS)
        ]

    def run(
        self, batch: Any, forward: Forward, zero_grad: Callable[[], None], backward: Backward
    ) -> dict[str, Any]:
        """Take the gradient of a batch."""
        trainer = self._trainer
        module = self._module
        number: int = trainer.fit_loop.epoch_loop.batch_progress.total.completed
        with trainer.precision_plugin.train_step_context():
            num_samples = len(module.augmented(batch)[1])
        if self._asked == "auto":
            before = _State(module)
        else:
            before = None

        def zero_grad_once() -> None:
            if before is None or before.gradients is None:
                zero_grad()
            if before is not None:
                before.note_gradients()

        while True:
            count = self._count(num_samples, number)
            try:
                return self._take(num_samples, count, forward, zero_grad_once, backward)
            except (RuntimeError, MemoryError) as error:
                if before is None or cause_of_exception(error) != "out_of_memory":
                    raise
                largest = -(-num_samples // count)
                self.sizes[number] = max(self._least, largest // 2)
                if self._count(num_samples, number) == count:
                    raise AssayError(
                        f"out of memory: the device has no room for {pluralize(largest, 'sample')} at a time",
                        hint="a smaller model or input, precision=bf16, or a device with more memory",
                    ) from error
            finally:
                module.piece = None
            before.restore()  # not in the handler, where the error still holds what the step has computed
            log.warning(
                "note: out of memory in batch %d: from here on at most %d samples are computed at a time; lr "
                "and batch size stay as they are (trainer.micro_batch=auto)",
                *(number, self.sizes[number]),
            )
            self.on_change()

    @property
    def _least(self) -> int:
        # of one sample there is no variance
        return 1 + any(part.training for part in self._sensitive)

    def _count(self, num_samples: int, number: int) -> int:
        """In how many pieces a batch is taken."""
        known_sizes = [batch for batch in self.sizes if batch <= number]
        if self._asked != "auto":
            size = self._asked
        elif known_sizes:
            size = self.sizes[max(known_sizes)]
        else:
            size = num_samples
        return max(1, min(-(-num_samples // size), num_samples // self._least))

    def _take(
        self,
        num_samples: int,
        count: int,
        forward: Forward,
        zero_grad: Callable[[], None],
        backward: Backward,
    ) -> dict[str, Any]:
        trainer = self._trainer
        module = self._module
        sum_before: Tensor | float = 0.0
        for index in range(count):
            start = num_samples * index // count
            stop = num_samples * (index + 1) // count
            if count > 1:
                module.piece = slice(start, stop)
            else:
                module.piece = None
            with without_gradient_sync(trainer.strategy, block=index < count - 1):
                loss, outputs = forward()
                module.piece = None  # hooks see the batch
                if index == 0:
                    zero_grad()
                if loss is not None and count > 1:
                    loss = loss * ((stop - start) / num_samples) + sum_before
                    outputs = {"loss": loss.detach()}
                    sum_before = loss.detach()
                if index == count - 1:
                    backward(loss)
                elif loss is not None and not skips_backward(trainer.fit_loop.epoch_loop):
                    scaler = getattr(trainer.precision_plugin, "scaler", None)
                    (loss if scaler is None else scaler.scale(loss)).backward()
        return outputs


@final
class _State:
    """What a step may change before the optimizer moves the weights."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._device = module.device
        self._hook = vars(module)[CURRENT_HOOK]
        self._buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        self._numpy = np.random.get_state()
        self._python = random.getstate()
        self._cpu = torch.get_rng_state()
        accelerated = self._device.type != "cpu"
        self._backend: Any
        if accelerated:
            self._backend = torch.get_device_module(self._device)
        else:
            self._backend = None
        if self._backend is not None:
            self._on_device = self._backend.get_rng_state(self._device)
        else:
            self._on_device = None
        self.gradients: list[tuple[nn.Parameter, Tensor | None]] | None = None

    def note_gradients(self) -> None:
        """Keep the gradients that this step adds to; nothing is done the second time."""
        if self.gradients is None:
            parameters = self._module.parameters()
            self.gradients = [
                (parameter, None if parameter.grad is None else parameter.grad.clone())
                for parameter in parameters
            ]

    def restore(self) -> None:
        vars(self._module)[CURRENT_HOOK] = self._hook
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                buffer.copy_(self._buffers[name])
        for parameter, gradient in self.gradients or ():
            if gradient is not None:
                parameter.grad = gradient.clone()
            else:
                parameter.grad = None
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        torch.set_rng_state(self._cpu)
        gc.collect()
        if self._backend is not None:
            self._backend.set_rng_state(self._on_device, self._device)
            self._backend.empty_cache()
