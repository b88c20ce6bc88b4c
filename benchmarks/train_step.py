"""A training step with loss and accuracy tracked: assay against a loop written by hand.

    uv run python benchmarks/train_step.py --model mlp

Both sides train the same class of model from the same weights on the same tensors in memory and shuffle each
epoch. Each has a process of its own; the hand-written loop's (`by_hand.py`) has never imported Lightning,
which would make each step of its optimizer slower. Rounds are interleaved; the median of the ratios counts,
and the hand-written loop against itself tells how much of it is noise. A step is timed from the start of an
epoch to the end of its metrics; the whole fit, with set-up, logs and checkpoints, is told besides.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

sys.path.insert(0, str(Path(__file__).parents[1]))

import lightning as L
import torch
from benchmarks.interleaved import answer, by_hand_and_ours, ratios
from lightning.pytorch.callbacks import Checkpoint

from assay.assemble.assembly import Assembly, assemble
from assay.assemble.trainer import silence_lightning
from assay.compose.compose import compose, job_config
from assay.record.provenance import cpu_model
from assay_report.info import auto_choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.data.core.data_module import DataModule

DEFAULT_CALLBACKS = ("checkpoint", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar")


@final
class Stopwatch(Checkpoint):
    """Times epochs from their start to when their metrics are logged, before any checkpoint is saved."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds, self._clock = 0.0, clock
        self.epochs: list[float] = []
        self._start = 0.0

    def on_train_epoch_start(self, *_: Any) -> None:
        """Begin."""
        self._start = self._clock()

    def on_train_epoch_end(self, *_: Any) -> None:
        """End."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.epochs.append(self._clock() - self._start)
        self.seconds += self.epochs[-1]


def job(options: argparse.Namespace, folder: str, *overrides: str) -> Assembly:
    """The assay side, ready to fit."""
    callbacks = (
        [f"callbacks.{name}=null" for name in DEFAULT_CALLBACKS]
        if options.no_callbacks
        else ["callbacks.checkpoint.monitor=train/loss"]
    )
    return assemble(
        job_config(
            compose(
                [
                    *("data=synthetic", "data.source.num_samples=10000", "data.source.input_shape=[1,8,8]"),
                    *(f"model={options.model}", "scheduler=none", *callbacks),
                    *("trainer.limit_val_batches=0", *overrides, *options.overrides),
                    f"hydra.run.dir={folder}",
                ]
            )
        )
    )


def by_assay(options: argparse.Namespace, epochs: int) -> tuple[float, float]:
    """Seconds a step, and of the whole fit a step."""
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        assembly = job(options, folder, f"trainer.max_epochs={epochs}")
        clock = getattr(time, options.clock)
        trainer, watch = assembly.trainer, Stopwatch(clock)
        trainer.callbacks.insert(0, watch)  # type: ignore[attr-defined]  # a plain attribute
        start = clock()
        trainer.fit(assembly.module, datamodule=assembly.datamodule)
        whole = clock() - start
        return watch.seconds / trainer.global_step, whole / trainer.global_step


def hand_over(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Write what the hand-written loop trains; returns what of that can be printed."""
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        assembly = job(options, folder)
    data: DataModule = assembly.datamodule  # type: ignore[assignment]  # the config says so
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.train_dataloader()]
    inputs, targets = (torch.cat(column) for column in zip(*batches, strict=True))
    optimizer: Any = assembly.module.configure_optimizers()
    plain = {"optimizer": "AdamW", "options": {"lr": optimizer.defaults["lr"]}}
    if options.optimizer == "same":
        plain = {"optimizer": type(optimizer).__name__, "options": optimizer.defaults}
        if type(optimizer) is torch.optim.AdamW:
            plain["options"] = {k: v for k, v in optimizer.defaults.items() if k != "decoupled_weight_decay"}
    torch.save(
        {
            **plain,
            "inputs": inputs.contiguous(),
            "targets": targets.contiguous(),
            "weights": assembly.module.model.state_dict(),  # type: ignore[union-attr]  # a module
            "model": options.model,
            "num_classes": data.spec.num_classes,
            "batch_size": data.batch_size,
            "threads": options.threads,
            "clock": options.clock,
            "bfloat16": assembly.trainer.precision == "bf16-mixed",
            "device": assembly.trainer.strategy.root_device.type,
        },
        path,
    )
    return plain


def parser(description: str) -> argparse.ArgumentParser:
    """What the benchmarks of this kind are asked."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("overrides", nargs="*", help="of assay's side, such as optimizer.fused=null")
    made.add_argument("--model", default="small_cnn", choices=("linear", "mlp", "small_cnn", "resnet18"))
    made.add_argument("--pairs", type=int, default=5)
    made.add_argument("--epochs", type=int, default=5)
    made.add_argument("--threads", type=int, default=1)
    made.add_argument(
        "--clock",
        default="perf_counter",
        choices=("perf_counter", "thread_time"),
        help="thread_time: of the processor, for a machine that is busy with other work",
    )
    made.add_argument("--no-callbacks", action="store_true")
    made.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    return made


def machine(threads: int) -> str:
    """What both sides run on."""
    versions = f"python {platform.python_version()}, torch {torch.__version__}, lightning {L.__version__}"
    return f"{cpu_model()}, {auto_choice()['chooses']}, {versions}, {threads} thread(s)"


def main() -> None:
    """Print both sides, the ratio, its spread, and what it ran on."""
    made = parser(str(__doc__))
    made.add_argument(
        "--optimizer",
        default="same",
        choices=("same", "default"),
        help="of the hand-written loop: assay's, or torch.optim.AdamW with torch's defaults",
    )
    options = made.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        answer(lambda epochs: by_assay(options, epochs))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.pt"
        plain = hand_over(options, path)
        means, noise, found = by_hand_and_ours(__file__, path, options.pairs, epochs=options.epochs)
    print(machine(options.threads))
    callbacks = "no callbacks" if options.no_callbacks else "default callbacks"
    print(
        f"model={options.model} {' '.join(options.overrides)}, {callbacks}, "
        f"{options.pairs} rounds of {options.epochs} epochs, {options.clock}"
    )
    print(f"  by hand   {1e6 * statistics.median(means):9.0f} µs a step, {json.dumps(plain)}")
    print(ratios("assay", [step for step, _ in found], means))
    print(ratios("whole fit", [whole for _, whole in found], means))
    print(f"  hand/hand                {statistics.median(noise):.3f} ({min(noise):.3f} to {max(noise):.3f})")


if __name__ == "__main__":
    main()
