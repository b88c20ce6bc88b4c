"""Of which sizes a job's batches are, beside the full ones of training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.build.trainer.num_processes import world_size
from assay.config.unread_keys import OUR_DATA
from assay.data.loading.batch_order import drops_last

if TYPE_CHECKING:
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
