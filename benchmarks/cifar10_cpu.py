"""Time to an accuracy on pictures that were never trained on: ours, by hand, and a usual recipe.

    uv run python benchmarks/cifar10_cpu.py --pictures DIR     # a folder of CIFAR-10's classes
    uv run python benchmarks/cifar10_cpu.py                    # torchvision's CIFAR-10, downloaded

`assay` is `experiment=cifar10_cpu`; `by hand` the same network, optimizer and schedule in a loop of torch
alone; `stock` ResNet-20 (He et al. 2016, section 4.2) with SGD, momentum, a one-cycle schedule, random crops
and flips in Lightning's Trainer. All see the same training pictures, decoded before the clock starts, and are
validated on the same others after each epoch, within the time. Sides run one after another, each alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import v2  # type: ignore[import-untyped]  # it has no stubs
from typing_extensions import override

import assay
from assay.augment.flip_crop import FlipCrop
from assay.callbacks.whitening import whiten_patches
from assay.model.fast_cnn import FastCNN
from assay.record.provenance import cpu_model

if TYPE_CHECKING:
    from collections.abc import Sequence

MEAN, STD = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.247, 0.2435, 0.2616])


class Clock(L.Callback):
    """Seconds since training began, and the accuracy, at the end of each validation."""

    def __init__(self) -> None:
        self.curve: list[tuple[float, float]] = []
        self.pictures: dict[str, tuple[Tensor, Tensor]] = {}

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Keep what assay trains on, for the others, and start."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]  # a plain attribute
        for name in ("train", "val") if hasattr(data, "subset") else ():
            subset = data.subset(name, "eval")
            rows = data.splits.rows[name]
            self.pictures[name] = subset.data.inputs[rows], subset.data.targets[rows]
        self.start = time.perf_counter()

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the time."""
        accuracy = float(trainer.callback_metrics["val/accuracy"])
        self.curve.append((time.perf_counter() - self.start, accuracy))


def run_ours(overrides: Sequence[str]) -> Clock:
    """Train `experiment=cifar10_cpu`."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        assay.train(["experiment=cifar10_cpu", "device=cpu", *overrides], callbacks=[clock])
    return clock


def run_by_hand(
    pictures: dict[str, tuple[Tensor, Tensor]], epochs: int, batch: int
) -> list[tuple[float, float]]:
    """Train the same network with a loop of torch alone."""
    scaled = {name: (_normalize(images), targets.long()) for name, (images, targets) in pictures.items()}
    images, targets = scaled["train"]
    torch.manual_seed(0)
    start = time.perf_counter()
    model = FastCNN([3, 32, 32], 10).to(memory_format=torch.channels_last)
    filters = whiten_patches(images[:5000], (2, 2), 0.0005).float()
    model.whiten.weight.data.copy_(torch.cat([filters, -filters])).requires_grad_(False)
    model.whiten.weight.requires_grad_(False)
    groups = [
        {"params": [p for p in model.parameters() if p.requires_grad and p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.005, fused=True)
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.005, total_steps=steps + 1, pct_start=0.05, cycle_momentum=False
    )
    augment = FlipCrop(padding=0.0625, alternate=True)
    curve: list[tuple[float, float]] = []
    for epoch in range(epochs):
        augment.set_epoch(epoch)
        order = torch.randperm(len(images))
        for rows in order[: len(order) // batch * batch].view(-1, batch):
            inputs, wanted = augment(
                images[rows].contiguous(memory_format=torch.channels_last), targets[rows]
            )
            if epoch < epochs / 2:
                inputs = F.interpolate(inputs, (24, 24), mode="bilinear", antialias=True)
            with torch.autocast("cpu", torch.bfloat16):
                outputs = model(inputs.contiguous(memory_format=torch.channels_last))
            loss = F.cross_entropy(outputs.float(), wanted, label_smoothing=0.2)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch left it untyped
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            parts = [model(part).argmax(1) for part in scaled["val"][0].chunk(5)]
        model.train()
        accuracy = float((torch.cat(parts) == scaled["val"][1]).float().mean())
        curve.append((time.perf_counter() - start, accuracy))
    return curve


def _normalize(images: Tensor) -> Tensor:
    return (images.float() / 255 - MEAN[:, None, None]) / STD[:, None, None]


class ResNet20(nn.Sequential):
    """The CIFAR network of He et al. (2016), with their shortcuts A as 1x1 convolutions (B)."""

    def __init__(self) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
        width = 16
        for out, stride in ((16, 1), (32, 2), (64, 2)):
            for index in range(3):
                layers.append(Residual(width, out, stride if index == 0 else 1))
                width = out
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity() if width == out else nn.Conv2d(width, out, 1, stride, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Add both and cut at zero."""
        total: Tensor = self.body(inputs) + self.shortcut(inputs)
        return total.relu()


class Stock(L.LightningModule):
    """A LightningModule as tutorials write it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = ResNet20()

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Accuracy."""
        hits = self.model(batch[0]).argmax(1) == batch[1]
        self.log("val/accuracy", hits.float().mean(), batch_size=len(hits))

    def configure_optimizers(self) -> Any:
        """SGD with one cycle."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Pictures(torch.utils.data.Dataset[Any]):
    """Decoded pictures with transforms, one by one."""

    def __init__(self, pictures: tuple[Tensor, Tensor], *transforms: Any) -> None:
        scale = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN.tolist(), STD.tolist())]
        self.images, self.targets = pictures
        self.transform = v2.Compose([*transforms, *scale])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.transform(self.images[row]), int(self.targets[row])


def run_stock(
    pictures: dict[str, tuple[Tensor, Tensor]], epochs: int, workers: int, target: float
) -> list[tuple[float, float]]:
    """Train the usual recipe until its accuracy reaches a target."""
    loader = torch.utils.data.DataLoader
    crops = v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    train = loader(Pictures(pictures["train"], *crops), 128, shuffle=True, drop_last=True, **options)
    val = loader(Pictures(pictures["val"]), 500, **options)
    clock = Clock()

    class Stop(L.Callback):
        @override
        def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            trainer.should_stop = clock.curve[-1][1] >= target

    L.seed_everything(0)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            default_root_dir=folder,
            callbacks=[clock, Stop()],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
        )
        trainer.fit(Stock(), train, val)
    return clock.curve


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pictures", type=Path, help="folder of one folder per class")
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--stock-epochs", type=int, default=12, help="length of the usual recipe's schedule")
    parser.add_argument("--workers", type=int, default=0, help="of the usual recipe's DataLoaders")
    parser.add_argument("--sides", nargs="+", default=["by hand", "stock"])
    parser.add_argument("overrides", nargs="*", help="of assay's side")
    arguments = parser.parse_args()
    overrides = list(arguments.overrides)
    if arguments.pictures:
        overrides += ["data=image_folder", f"data.source.root={arguments.pictures.resolve()}"]
    print(f"{cpu_model()}, {os.cpu_count()} cores, torch {torch.__version__}, target {arguments.target:.0%}")
    ours = run_ours(overrides)
    curves = {"assay": ours.curve}
    if "by hand" in arguments.sides:
        curves["by hand"] = run_by_hand(ours.pictures, len(ours.curve), 500)
    if "stock" in arguments.sides:
        curves["stock"] = run_stock(
            ours.pictures, arguments.stock_epochs, arguments.workers, arguments.target
        )
    times: dict[str, float] = {}
    for name, curve in curves.items():
        print(f"{name:8} " + "  ".join(f"{accuracy:.1%} at {seconds:.0f} s" for seconds, accuracy in curve))
        times[name] = next(
            (seconds for seconds, accuracy in curve if accuracy >= arguments.target), float("nan")
        )
    for name, seconds in times.items():
        print(
            f"{name:8} {seconds:7.1f} s to {arguments.target:.0%}, {seconds / times['assay']:.2f} of assay's"
        )
    if not times["assay"] < float("inf"):
        sys.exit("assay did not reach the accuracy")


if __name__ == "__main__":
    main()
