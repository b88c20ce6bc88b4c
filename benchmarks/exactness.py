"""What exactness costs: a step of a run that is seeded, watched and can be stopped, against one that is not.

    uv run python benchmarks/exactness.py

One run trains epoch after epoch, and each has other callbacks: all of those that make a run exact (generators
are seeded before each step, a NaN stops the run in its step, a signal stops it after one, a checkpoint notes
where it was saved), one of them, or none (`plain`). `deterministic` is torch's own switch on top.
Neighbouring epochs are compared, so that what else the machine does counts less, and time is the processor's;
the median of the ratios counts, and plain against itself tells how much of it is noise.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from typing import Any, final

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from assay.assemble.assembly import assemble
from assay.assemble.trainer import silence_lightning
from assay.compose.compose import compose, job_config
from assay.record.provenance import cpu_model
from assay_report.info import auto_choice

EXACT = ("SeedEachStep", "NonFinite", "StopOnSignal")
SIDES: dict[str, tuple[str, ...]] = {
    "exact": (),
    "exact, deterministic": (),
    **{f"only {name}": tuple(other for other in EXACT if other != name) for name in EXACT},
    "plain": EXACT,
}
WARM_UP = 2


@final
class Rounds(Callback):
    """Gives each epoch the callbacks of its side, after an epoch without, and takes the time of both."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []
        self._turns = [turn for side in SIDES for turn in ("plain", side)]
        self._started = 0.0

    def on_train_epoch_start(self, trainer: Any, *_: Any) -> None:
        """Change sides."""
        if trainer.current_epoch == 0:
            self._every = list(trainer.callbacks)
        without = SIDES[self._turn(trainer)]
        trainer.callbacks = [kept for kept in self._every if type(kept).__name__ not in without]
        torch.use_deterministic_algorithms("deterministic" in self._turn(trainer))
        self._started = time.process_time()

    def on_train_epoch_end(self, trainer: Any, *_: Any) -> None:
        """Take the time."""
        seconds = time.process_time() - self._started
        self.seconds.append((self._turn(trainer), seconds / trainer.num_training_batches))

    def _turn(self, trainer: Any) -> str:
        return self._turns[int(trainer.current_epoch) % len(self._turns)]


def measure(model: str, rounds: int) -> list[tuple[str, float]]:
    """Side and seconds a step of each epoch."""
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        given = [
            *("data=synthetic", "data.source.num_samples=10000", "data.source.input_shape=[1,8,8]"),
            *(f"model={model}", "scheduler=none", "callbacks=[non_finite]", "trainer.limit_val_batches=0"),
            *(f"trainer.max_epochs={2 * len(SIDES) * rounds}", f"hydra.run.dir={folder}"),
        ]
        assembly = assemble(job_config(compose(given)))
        rounds_of = Rounds()
        trainer: Any = assembly.trainer
        trainer.callbacks.append(rounds_of)
        trainer.fit(assembly.module, datamodule=assembly.datamodule)
    return rounds_of.seconds


def main() -> None:
    """Print each side against plain, the spread, and what it ran on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mlp")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    seconds = measure(options.model, options.rounds + WARM_UP)[2 * len(SIDES) * WARM_UP :]
    ratios: dict[str, list[float]] = {name: [] for name in SIDES}
    for (_, before), (side, after) in zip(seconds[::2], seconds[1::2], strict=True):
        ratios[side].append(after / before)
    plain = statistics.median(one for side, one in seconds if side == "plain")
    print(f"{cpu_model()}, {auto_choice()['chooses']}, python {platform.python_version()}, ", end="")
    print(f"torch {torch.__version__}, lightning {lightning.__version__}, {options.threads} thread(s)")
    print(f"model={options.model}, {options.rounds} rounds; plain is {1e6 * plain:.0f} µs a step")
    for name, found in ratios.items():
        low, high = statistics.quantiles(found, n=4)[::2]
        print(
            f"  {name + ' / plain':<32} {statistics.median(found):8.3f}  (quartiles {low:.3f} to {high:.3f})"
        )


if __name__ == "__main__":
    main()
