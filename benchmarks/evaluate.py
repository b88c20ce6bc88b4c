"""A validation batch with loss and accuracy tracked: assay against a loop written by hand.

    uv run python benchmarks/evaluate.py --model mlp

As `train_step.py`, of the validation after each epoch of a fit; its training is one batch, and is not timed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from benchmarks.interleaved import answer, by_hand_and_ours, ratios
from benchmarks.train_step import job, machine, parser
from lightning.pytorch.callbacks import Callback

from assay.assemble.trainer import silence_lightning

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from assay.data.core.data_module import DataModule

OVERRIDES = (
    *("data.split.val=0.5", "data.eval_batch_size=64", "trainer.limit_train_batches=1"),
    # The hand-written loop tracks loss and accuracy as well, and nothing else.
    *(f"~metrics.eval.metrics.{name}" for name in ("precision", "recall", "f1", "auroc", "confusion_matrix")),
    *("trainer.limit_val_batches=1.0", "callbacks.checkpoint.monitor=val/loss"),
)


@final
class Stopwatch(Callback):
    """Times validation from before its first batch to when its metrics are logged."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: list[float] = []
        self._clock = clock
        self._start = 0.0

    def on_validation_start(self, *_: Any) -> None:
        """Begin."""
        self._start = self._clock()

    def on_validation_end(self, *_: Any) -> None:
        """End."""
        self.seconds.append(self._clock() - self._start)


def overrides(options: argparse.Namespace) -> tuple[str, ...]:
    """Of assay's side."""
    return OVERRIDES[: -1 if options.no_callbacks else None]


def by_assay(options: argparse.Namespace, epochs: int) -> tuple[float]:
    """Seconds a batch."""
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        assembly = job(options, folder, *overrides(options), f"trainer.max_epochs={epochs}")
        trainer, watch = assembly.trainer, Stopwatch(getattr(time, options.clock))
        trainer.callbacks.insert(0, watch)  # type: ignore[attr-defined]  # a plain attribute
        trainer.fit(assembly.module, datamodule=assembly.datamodule)
        return (sum(watch.seconds) / len(watch.seconds) / int(trainer.num_val_batches[0]),)


def hand_over(options: argparse.Namespace, path: Path) -> int:
    """Write what the hand-written loop evaluates; returns its number of batches."""
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        assembly = job(options, folder, *overrides(options))
    data: DataModule = assembly.datamodule  # type: ignore[assignment]  # the config says so
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.val_dataloader()]
    inputs, targets = (torch.cat(column) for column in zip(*batches, strict=True))
    torch.save(
        {
            "optimizer": "",
            "inputs": inputs.contiguous(),
            "targets": targets.contiguous(),
            "weights": assembly.module.model.state_dict(),  # type: ignore[union-attr]  # a module
            "model": options.model,
            "num_classes": data.spec.num_classes,
            "batch_size": data.eval_batch_size,
            "threads": options.threads,
            "clock": options.clock,
            "device": assembly.trainer.strategy.root_device.type,
        },
        path,
    )
    return len(batches)


def main() -> None:
    """Print both sides, the ratio, its spread, and what it ran on."""
    options = parser(str(__doc__)).parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        answer(lambda epochs: by_assay(options, epochs))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.pt"
        batches = hand_over(options, path)
        means, noise, found = by_hand_and_ours(__file__, path, options.pairs, epochs=options.epochs)
    print(machine(options.threads))
    callbacks = "no callbacks" if options.no_callbacks else "default callbacks"
    rounds = f"{options.pairs} rounds of {options.epochs}×{batches} batches"
    print(f"model={options.model}, {callbacks}, {rounds}, {options.clock}")
    print(f"  by hand   {1e6 * statistics.median(means):9.0f} µs a batch of 64")
    print(ratios("assay", [one for one, *_ in found], means))
    print(f"  hand/hand                {statistics.median(noise):.3f} ({min(noise):.3f} to {max(noise):.3f})")


if __name__ == "__main__":
    main()
