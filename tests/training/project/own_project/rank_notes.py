"""Notes in a file a rank what each step draws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

if TYPE_CHECKING:
    import lightning as L


class RankNotes(Callback):
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.seeds: list[int] = []
        self.first_inputs: list[float] = []

    @override
    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self.seeds.append(torch.initial_seed())
        self.first_inputs.append(float(batch[0].double().sum()))

    @override
    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        notes = {
            "seeds": self.seeds,
            "first_inputs": self.first_inputs,
            "world_size": trainer.world_size,
            "backend": torch.distributed.get_backend(),
            "weights": float(sum(p.double().abs().sum() for p in pl_module.parameters())),
        }
        (self.folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(notes), encoding="utf-8")
