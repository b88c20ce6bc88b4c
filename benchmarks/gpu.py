"""A GPU: training steps by hand, of assay and of stock Lightning; pictures, and tokens of a GPT.

    uv run python benchmarks/gpu.py                                    # steps of all four models
    uv run python benchmarks/gpu.py --device cpu --models linear --samples 640 --pairs 1 --epochs 1
    uv run python benchmarks/gpu.py --parts cifar10_fast --pictures DIR  # or made pictures
    uv run python benchmarks/gpu.py --parts gpt --precision bf16

`steps`: three sides train the same network from the same weights on the same pictures of CIFAR-10's shape, in
turns, in a process each. By hand (`by_hand.py`) and assay have the data on the device; `stock` is Lightning's
Trainer with a `DataLoader`, as tutorials write it. `cifar10_fast`: seconds of training of the experiment, and
its accuracy, which means something where the pictures are real. `gpt`: tokens a second, and which share of
the card's bf16 FLOP that is, at 6 FLOP a parameter and token and 12 a layer, channel, token and token of the
context (PaLM, appendix B). With `--device cpu` and small sizes all of it runs without a GPU,
the experiment without compilation.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import lightning as L
import torch
from benchmarks.by_hand import model_of
from benchmarks.interleaved import WARM_UP, Side, answer, ratios
from benchmarks.train_step import Stopwatch, hand_over, machine
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import assay
from assay.assemble.trainer import silence_lightning

if TYPE_CHECKING:
    from torch import Tensor

HERE = Path(__file__).parent
MODELS = ("linear", "mlp", "small_cnn", "resnet18")
BF16_FLOPS = {"H100": 989e12, "H200": 989e12, "GH200": 989e12, "A100": 312e12, "L40S": 362e12}
"""Dense, as NVIDIA's data sheets tell them of the SXM cards."""


class Stock(L.LightningModule):
    """A LightningModule as tutorials write it."""

    def __init__(self, job: dict[str, Any]) -> None:
        super().__init__()
        self.model = model_of(job)
        self.job = job

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Loss and accuracy."""
        outputs = self.model(batch[0])
        loss = F.cross_entropy(outputs, batch[1])
        accuracy = (outputs.argmax(1) == batch[1]).float().mean()
        self.log_dict({"loss": loss, "accuracy": accuracy}, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """As both others."""
        made: torch.optim.Optimizer = getattr(torch.optim, self.job["optimizer"])(
            self.parameters(), **self.job["options"]
        )
        return made


def by_stock(path: str, workers: int, epochs: int) -> float:
    """Seconds a step of Lightning's Trainer."""
    job: dict[str, Any] = torch.load(path, weights_only=True)
    data = TensorDataset(job["inputs"].cpu(), job["targets"].cpu())
    loader = DataLoader(
        data,
        job["batch_size"],
        shuffle=True,
        pin_memory=job["device"] == "cuda",
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    watch = Stopwatch(time.perf_counter)
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        trainer = L.Trainer(
            accelerator=job["device"],
            devices=1,
            precision="bf16-mixed" if job["bfloat16"] else "32-true",
            max_epochs=epochs,
            callbacks=[watch],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        trainer.fit(Stock(job), loader)
    return watch.seconds / trainer.global_step


def compare_steps(options: argparse.Namespace, model: str) -> None:
    """Print a step of each side."""
    words = [
        *(f"device={options.device}", f"precision={options.precision}", f"data.batch_size={options.batch}"),
        *(f"data.source.num_samples={options.samples}", "data.source.input_shape=[3,32,32]"),
        *options.overrides,
    ]
    given = argparse.Namespace(
        model=model,
        overrides=words,
        no_callbacks=False,
        optimizer="same",
        threads=options.threads,
        clock="perf_counter",
    )
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as sides:
        path = Path(folder) / "job.pt"
        hand_over(given, path)
        shared = ("--side", str(path), "--workers", str(options.workers))
        ours = ("--side", "--model", model, "--threads", str(options.threads), *words)
        hand, assays, stock = (
            sides.enter_context(side)
            for side in (
                Side(str(HERE / "by_hand.py"), str(path)),
                Side(str(HERE / "train_step.py"), *ours),
                Side(__file__, *shared),
            )
        )
        rounds = []
        for turn in range(WARM_UP + options.pairs):
            one = [side.ask(epochs=options.epochs) for side in (hand, assays, stock, hand)]
            if turn >= WARM_UP:
                rounds.append([(one[0] + one[3]) / 2, one[1][0], one[2], one[0] / one[3]])
    means, own, stocks, noise = (list(column) for column in zip(*rounds, strict=True))
    print(f"{model}, batch {options.batch}, {options.precision}")
    print(f"  by hand   {1e6 * statistics.median(means):9.0f} µs a step")
    print(ratios("assay", own, means))
    print(ratios("stock", stocks, means))
    print(f"  hand/hand                {statistics.median(noise):.3f} ({min(noise):.3f} to {max(noise):.3f})")


def time_cifar10_fast(options: argparse.Namespace) -> None:
    """Print how long the experiment trains."""
    words = ["experiment=cifar10_fast", f"device={options.device}"]
    if options.device == "cpu":
        words += ["trainer.compile=false"]
    words += options.overrides
    if options.pictures:
        words += ["data=image_folder", f"data.source.root={options.pictures.resolve()}"]
    else:
        shape = "data.source.input_shape=[3,32,32]"
        words += ["data=synthetic", f"data.source.num_samples={options.samples}", shape]
    watch = Stopwatch(time.perf_counter)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        result = assay.train([*words, "baseline=none"], callbacks=[watch])
    print(f"cifar10_fast {watch.seconds:.2f} s of training, accuracy {result.metrics['test/accuracy']:.1%}")


def time_gpt(options: argparse.Namespace) -> None:
    """Print tokens a second, and the share of the card's FLOP."""
    watch = Stopwatch(time.perf_counter)
    steps = options.gpt_steps
    words = [
        *("data=text_files", f"device={options.device}", f"precision={options.precision}", "baseline=none"),
        *(f"trainer.max_steps={2 * steps}", f"trainer.limit_train_batches={steps}", "trainer.max_epochs=2"),
        *("trainer.limit_val_batches=0", "trainer.limit_test_batches=0", "scheduler=none"),
        *("callbacks.checkpoint=null", "callbacks.last_checkpoint=null", *options.overrides),
    ]
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        result: Any = assay.train(words, callbacks=[watch])
    model, data = result.module.model, result.trainer.datamodule
    size, length = data.batch_size, data.spec.input_shape[0]
    tokens = steps * size * length / watch.epochs[-1]  # of the second epoch; the first compiles
    layers, width = len(model.blocks), model.tokens.embedding_dim
    flops = tokens * (6 * result.parameters + 12 * layers * width * length)
    share = ""
    if torch.cuda.is_available():
        name = torch.cuda.get_device_name()
        card = next((peak for card, peak in BF16_FLOPS.items() if card in name), None)
        if card:
            share = f", {flops / card:.1%} of the bf16 FLOP of {name}"
    print(f"gpt {result.parameters:,} parameters: {tokens:,.0f} tokens/s, {flops / 1e12:.3g} TFLOP/s{share}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("overrides", nargs="*", help="of assay's side, such as trainer.compile=true")
    parser.add_argument("--device", default="gpu", choices=("gpu", "cpu"))
    parser.add_argument("--parts", nargs="+", default=["steps"], choices=("steps", "cifar10_fast", "gpt"))
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="of stock Lightning's DataLoader")
    parser.add_argument("--pictures", type=Path, help="CIFAR-10 as a folder of one folder per class")
    parser.add_argument("--gpt-steps", type=int, default=200)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.side:
        answer(lambda epochs: by_stock(options.side, options.workers, epochs))
        return
    print(machine(options.threads))
    if "steps" in options.parts:
        for model in options.models:
            compare_steps(options, model)
    if "cifar10_fast" in options.parts:
        time_cifar10_fast(options)
    if "gpt" in options.parts:
        time_gpt(options)


if __name__ == "__main__":
    main()
