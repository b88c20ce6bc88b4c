"""Three ranks over gloo, of which the last two have no sample; each writes what it computes as JSON."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torchmetrics as tm
from torch.distributed import FileStore  # type: ignore[attr-defined]  # it is there

from assay.metrics.r2 import R2
from assay.metrics.tracker import Tracker

if TYPE_CHECKING:
    from torch import Tensor

SIZE = 3
NUM = 5


def samples(kind: str) -> tuple[Tensor, Tensor]:
    """Predictions and targets."""
    generator = torch.Generator().manual_seed(1)
    if kind == "regression":
        return torch.randn(NUM, 1, generator=generator), torch.randn(NUM, 1, generator=generator)
    if kind == "multilabel":
        return torch.rand(NUM, 2, generator=generator), torch.tensor([[0, 1], [1, 0], [1, 1], [0, 0], [1, 0]])
    return torch.rand(NUM, 3, generator=generator).softmax(1), torch.tensor([0, 2, 1, 2, 0])


def tracker(kind: str) -> Tracker:
    """One with metrics whose states are sums, and lists of floats and of integers."""
    metrics: dict[str, Any] = {
        "regression": {"mse": tm.MeanSquaredError(), "r2": R2(), "pearson": tm.PearsonCorrCoef()},
        "multilabel": {"ap": tm.AveragePrecision(task="multilabel", num_labels=2)},
        "multiclass": {
            "accuracy": tm.Accuracy(task="multiclass", num_classes=3),
            "auroc": tm.AUROC(task="multiclass", num_classes=3),
            "binned": tm.AUROC(task="multiclass", num_classes=3, thresholds=9),
            "matrix": tm.ConfusionMatrix(task="multiclass", num_classes=3),
        },
    }
    return Tracker(tm.MetricCollection(metrics[kind]), "val")


def computed(kind: str, rank: int) -> dict[str, Any]:
    """What one rank comes to; all samples are the first one's."""
    predictions, targets = samples(kind)
    shared = tracker(kind)
    for epoch in range(2):
        if rank == 0:
            for part in (slice(0, 2), slice(2, NUM)):
                shared.update(torch.tensor(epoch + 0.5), predictions[part], targets[part])
        else:
            shared.take_stand_in(predictions[:1], targets[:1])
        values = {name: value.tolist() for name, value in shared.compute().items()}
        shared.reset()
    return values


KINDS = ("regression", "multilabel", "multiclass")


def main() -> None:
    """Fork the ranks and wait for them."""
    children = []
    for rank in range(SIZE):
        child = os.fork()
        if child == 0:
            store = FileStore(str(Path("store").absolute()), SIZE)
            torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=SIZE)
            found = {kind: computed(kind, rank) for kind in KINDS}
            Path(f"rank{rank}.json").write_text(json.dumps(found))
            torch.distributed.destroy_process_group()
            os._exit(0)
        children.append(child)
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert codes == [0] * SIZE
