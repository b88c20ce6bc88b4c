"""Evaluation steps of somebody's own LightningModule: in evaluation mode, with the batches there will be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from lightning.pytorch.utilities.model_helpers import is_overridden

from assay.build.trainer.num_processes import world_size
from assay.check.proof.smoke_batch import made_up
from assay.config.unread_keys import OUR_DATA
from assay.data.loading.batch_order import drops_last
from assay.errors import ConfigError, one_line_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import lightning as L
    from lightning.pytorch.plugins import Precision
    from omegaconf import DictConfig


def batch_sizes(config: DictConfig) -> dict[bool, list[int]]:
    """Numbers of samples on one device, each once.

    Returns:
        Those of training (True) other than `data.batch_size`, and those of evaluation (False).
    """
    data, spec, processes = config.data, config.spec, world_size(config)
    if data.get("_target_") != OUR_DATA:
        return {True: [], False: [int(spec.get("train_batch_size") or 1)]}
    trained = (
        set()
        if drops_last(data.get("drop_last", "auto"), spec.num_train, int(data.batch_size), processes)
        else _sizes(spec.num_train, int(data.batch_size), processes, even=True)
    )
    evaluated = (
        _sizes(n, int(data.eval_batch_size), processes, even=False) for n in (spec.num_val, spec.num_test)
    )
    return {True: sorted(trained - {int(data.batch_size)}), False: sorted(set().union(*evaluated))}


def _sizes(samples: int, batch_size: int, processes: int, *, even: bool) -> set[int]:
    """Of the batches that `assay.data.loading.batch_order.BatchOrder` cuts without leaving any out."""
    if processes == 1:
        full, last = divmod(samples, batch_size)
        return ({batch_size} if full else set()) | ({last} if last else set())
    count = max(1, -(-samples // (batch_size * processes)))
    own = {-(-samples // processes)} if even else {samples // processes, -(-samples // processes)}
    return {size for part in own for size in (part // count, -(-part // count))} - {0}


_STEPS: Final = ("validation_step", "test_step")


def try_eval_steps(
    config: DictConfig, module: L.LightningModule, precision: Precision, base: int, sizes: Sequence[int]
) -> None:
    """Refuse a module whose step fails in evaluation mode or with another batch, and not otherwise.

    A step may need what only a run has: its trainer, a logger, real values. So one that fails in training
    mode with a batch of training, too, tells nothing.

    Args:
        config: The job, with its `spec`.
        module: Real, on the CPU; changed.
        precision: Lightning's plugin.
        base: Samples in a batch of training.
        sizes: Samples in each batch of evaluation.

    Raises:
        ConfigError: Naming the step and the batch.
    """
    for name in _STEPS:
        if not is_overridden(name, module) or _error(config, module, precision, name, base, training=True):
            continue
        for training, rows in [*((True, rows) for rows in sizes), *((False, rows) for rows in sizes)]:
            error = _error(config, module, precision, name, rows, training=training)
            if error is not None:
                why = f"with a batch of {rows}" if training else "in evaluation mode"
                as_against = f"though not with one of {base}" if training else "though not in training mode"
                raise ConfigError(
                    f"{name} fails {why}, {as_against}: {one_line_of(error)}",
                    key="module",
                    hint=f"let it take batches of {', '.join(map(str, sizes))} after module.eval()",
                )


def _error(
    config: DictConfig, module: Any, precision: Precision, name: str, rows: int, *, training: bool
) -> BaseException | None:
    module.train(training)
    inputs, targets = made_up(config, rows, config.spec.input_shape)
    inputs = precision.convert_input(inputs)
    try:
        with torch.no_grad(), precision.forward_context():
            getattr(module, name)((inputs, targets), 0)
    except (Exception, SystemExit) as error:
        return error
    return None
