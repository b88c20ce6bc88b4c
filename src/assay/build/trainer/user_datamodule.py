"""How many batches, and of what size, somebody's own datamodule gives: only its loader knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.utilities.combined_loader import CombinedLoader

from assay.data.data_module import DataModule

if TYPE_CHECKING:
    import lightning as L


@final
@dataclass(frozen=True)
class OwnBatches:
    """What the loaders of training say.

    Attributes:
        count: Batches of an epoch and process; None where they do not tell.
        size: Samples of a batch; None where they do not tell.
    """

    count: int | None = None
    size: int | None = None

    def as_config(self) -> dict[str, int | None]:
        """For the config node `spec`."""
        return {"train_batches": self.count, "train_batch_size": self.size}


def own_batches(datamodule: L.LightningDataModule) -> OwnBatches | None:
    """Ask the loaders of a datamodule; nothing is read from them.

    Args:
        datamodule: After its `setup`; assay's own cuts its batches as the config says.

    Returns:
        None for assay's own.
    """
    if isinstance(datamodule, DataModule):
        return None
    try:
        with torch.random.fork_rng(devices=[]):
            given: Any = datamodule.train_dataloader()
            loaders = given if isinstance(given, CombinedLoader) else CombinedLoader(given, "max_size_cycle")
            counts = [sized_len(loader) for loader in loaders.flattened]
            size = _size(loaders.flattened[0])
    except Exception:  # it may need the trainer, or what the run makes first
        return OwnBatches()
    known = [count for count in counts if count is not None]
    least = min if loaders._mode == "min_size" else max
    return OwnBatches(least(known) if known and len(known) == len(counts) else None, size)


def _size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) and size > 0 else None
