"""An epoch on JPEGs: as typed, with what the run's note proposes, and in stock Lightning.

    uv run python benchmarks/picture_epoch.py --pictures DIR  # a folder of one folder per class

All train the `small_cnn` that `typed` chooses, at its size of pictures, with batches of BATCH (256), random
crops and flips, the same optimizer, on the same pictures, and are validated on the same others. `stock`
decodes with `ImageFolder` and `DataLoader`; of 0 and 2 workers, the faster one counts. Each training is a
process of its own, in turns, for each seed. Seconds are those of epochs after the first one, validation
included; `first` adds what comes before them, decoding too.

With `--steps`, an epoch is cut to so many training and a tenth as many validation batches. `--extra` adds
overrides to `typed` and `proposed`. For less memory, start it in a control group that limits it, such as that
of `systemd-run --scope -p MemoryMax=2G`; the largest resident size of each side is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.datasets import ImageFolder  # type: ignore[import-untyped]  # it has no stubs
from torchvision.transforms import v2  # type: ignore[import-untyped]  # as above
from typing_extensions import override

import assay
from assay.assemble.recipe import choose_widths
from assay.model.small_cnn import SmallCNN
from assay.record.provenance import cpu_model

BATCH, RATE, DECAY = int(os.environ.get("BATCH", "256")), 3e-3, 0.05
GOALS = {"typed": 2.5, "proposed": 4.5}
PROPOSED = ("precision=bf16",)
"""What the note at the end of a run says on a processor that computes in bfloat16."""


class Clock(L.Callback):
    """When each epoch ended, its validation included, and the accuracy then."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.ends: list[float] = []
        self.accuracy = 0.0
        self.rows: dict[str, Any] = {}

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep which pictures are trained on, and their size, where assay chooses them."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
        if hasattr(data, "splits"):
            self.rows = {name: data.splits.rows[name].tolist() for name in ("train", "val")}
            self.rows["shape"] = list(data.spec.input_shape)

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the time."""
        self.ends.append(time.perf_counter() - self.start)
        self.accuracy = float(trainer.callback_metrics["val/accuracy"])

    def answer(self) -> dict[str, Any]:
        """What a side prints."""
        peak = max(
            resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        return {"ends": self.ends, "accuracy": self.accuracy, "rows": self.rows, "peak": peak / 1e6}


class Stock(L.LightningModule):
    """A LightningModule as tutorials write it."""

    def __init__(self, shape: list[int], samples: int, classes: int) -> None:
        super().__init__()
        widths, stride = choose_widths(shape, samples)
        self.model = SmallCNN(shape, classes, widths=widths, stride=stride)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Accuracy."""
        hits = self.model(batch[0]).argmax(1) == batch[1]
        self.log("val/accuracy", hits.float().mean(), batch_size=len(hits))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=RATE, weight_decay=DECAY)


def run_ours(pictures: str, seed: int, epochs: int, limits: dict[str, Any], extra: tuple[str, ...]) -> Clock:
    """Train from the command line's overrides."""
    clock = Clock()
    extra += tuple(f"trainer.{name}={limit}" for name, limit in limits.items())
    fixed = (f"optimizer.lr={RATE}", f"optimizer.weight_decay={DECAY}", "scheduler=none", "baseline=none")
    words = [
        *("data=image_folder", f"data.source.root={pictures}", "model=small_cnn", f"data.batch_size={BATCH}"),
        *("callbacks=default", "device=cpu", f"seed={seed}", f"trainer.max_epochs={epochs}", *fixed),
        *("data.split.seed=0", *extra),
    ]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        assay.train(words, callbacks=[clock])
    return clock


def run_stock(
    pictures: str, seed: int, epochs: int, *, workers: int, rows: dict[str, Any], limits: dict[str, Any]
) -> Clock:
    """Train on the same pictures in Lightning's Trainer."""
    scale = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
    scale.append(v2.Normalize([0.4914, 0.4822, 0.4465], [0.247, 0.2435, 0.2616]))
    shape = rows.pop("shape")
    size = shape[1:]
    resize, flip = v2.Resize(size), v2.RandomHorizontalFlip()
    crops = [resize, v2.RandomCrop(size, padding=min(size) // 8), flip]
    if min(size) >= 64:
        crops = [v2.RandomResizedCrop(size, (0.44, 1.0)), flip]
    L.seed_everything(seed, verbose=False)
    sets = {
        "train": ImageFolder(pictures, v2.Compose([*crops, *scale])),
        "val": ImageFolder(pictures, v2.Compose([resize, *scale])),
    }
    loaders = {
        name: torch.utils.data.DataLoader(
            torch.utils.data.Subset(sets[name], rows[name]),
            BATCH,
            shuffle=name == "train",
            drop_last=name == "train",
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        for name in sets
    }
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            default_root_dir=folder,
            callbacks=[clock],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **limits,
            num_sanity_val_steps=0,
        )
        network = Stock(shape, len(rows["train"]), len(sets["train"].classes))
        trainer.fit(network, loaders["train"], loaders["val"])
    return clock


def ask(side: str, seed: int, asked: argparse.Namespace, rows: dict[str, Any]) -> dict[str, Any]:
    """Train one side in a process of its own."""
    words = ["--side", side, "--pictures", str(Path(asked.pictures).resolve()), "--seed", str(seed)]
    words += ["--epochs", str(asked.epochs), "--steps", str(asked.steps), "--extra", *asked.extra]
    done = subprocess.run(  # noqa: S603 - this file
        [sys.executable, __file__, *words],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "THP_MEM_ALLOC_ENABLE": "0" if side.startswith("stock") else "1"},
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", required=True, help="folder of one folder per class")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0, help="training batches of an epoch; 0: all")
    parser.add_argument("--extra", nargs="*", default=[], help="overrides of typed and proposed")
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    limits: dict[str, Any] = {}
    if asked.steps:
        limits = {"limit_train_batches": asked.steps, "limit_val_batches": max(1, asked.steps // 10)}
    if asked.side:
        told = asked.pictures, asked.seed, asked.epochs
        if asked.side.startswith("stock"):
            given = json.load(sys.stdin)
            clock = run_stock(*told, workers=int(asked.side[-1]), rows=given, limits=limits)
        else:
            proposed = PROPOSED if asked.side == "proposed" else ()
            clock = run_ours(*told, limits, (*asked.extra, *proposed))
        print("\n" + json.dumps(clock.answer()))
        return
    print(f"{cpu_model()}, {os.cpu_count()} cores, torch {torch.__version__}")
    answers: dict[str, list[dict[str, Any]]] = {}
    rows: dict[str, Any] = {}
    stock = ["stock 0", "stock 2"]
    for seed in range(asked.seeds):
        for side in ("typed", "proposed", *stock):
            answer = ask(side, seed, asked, rows)
            answers.setdefault(side, []).append(answer)
            rows = rows or answer["rows"]
        stock = [min(stock, key=lambda side: _epoch(answers[side]))]  # the faster one, in the other rounds
    (fastest,) = stock
    for side, found in answers.items():
        accuracy = ", ".join(f"{one['accuracy']:.1%}" for one in found)
        ratio = _epoch(answers[fastest]) / _epoch(found)
        goal = f", goal {GOALS[side]}" if side in GOALS else ""
        first = found[-1]["ends"][0]
        print(
            f"{side:9} {_epoch(found):6.1f} s an epoch, first {first:.1f} s; {fastest} takes {ratio:.2f} "
            f"times as long{goal}; accuracy {accuracy}; peak {found[-1]['peak']:.2f} GB"
        )


def _epoch(answers: list[dict[str, Any]]) -> float:
    """Seconds, the median of all epochs but the first one of each training."""
    return statistics.median(
        float(later - before)
        for answer in answers
        for before, later in zip(answer["ends"], answer["ends"][1:], strict=False)
    )


if __name__ == "__main__":
    main()
