"""`assay predict` against its own model: files in, rows of a file out, both sides in one run.

    uv run python benchmarks/predict.py [--clock process_time]

Untrained networks over an .npy file, a folder of JPEG files and a CSV file, written to Parquet. `model` is
the bare network on ready batches of the same size that lie in memory, `reading` what makes samples of the
files, on its own. Each round times all three; the medians over the rounds count. Where both share the same
cores, predict cannot take less than both in turn; `of both` says how near it comes. On a machine that is
busy with something else, `--clock process_time` counts processor time, with OMP_NUM_THREADS=1, so that no
thread is counted that waits for another.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from PIL import Image

import assay
from assay.record.provenance import cpu_model
from assay_serve.predict import predict
from assay_serve.raw_files import blocks

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
NUM_ROWS = 50_000
BATCHES = {"small_cnn": (1024, 64), "resnet18": (128, 16), "mlp": (NUM_ROWS, 4096)}
"""Samples in all, and in a batch."""


def pictures(folder: Path) -> None:
    """The same pixels as an array and as files."""
    most = max(number for name, (number, _) in BATCHES.items() if name != "mlp")
    pixels = np.random.default_rng(0).integers(0, 256, (most, 3, 32, 32), dtype=np.uint8)
    for number in {number for name, (number, _) in BATCHES.items() if name != "mlp"}:
        arrays = folder / f"arrays_{number}"
        arrays.mkdir()
        np.save(arrays / "inputs.npy", pixels[:number])
        np.save(arrays / "targets.npy", np.arange(number) % 2)
        for index, picture in enumerate(pixels[:number]):
            place = folder / f"image_folder_{number}" / f"class_{index % 2}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture.transpose(1, 2, 0)).save(place / f"{index:04}.jpg")


def table(folder: Path) -> None:
    """Ten numbers, two categories and a class."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.normal(size=(NUM_ROWS, 10)).round(4)).add_prefix("x")
    frame["colour"] = draw.choice(["red", "green", "blue"], NUM_ROWS)
    frame["size"] = draw.choice(["s", "m", "l", "xl"], NUM_ROWS)
    frame["kind"] = np.where(frame["x0"] > 0, "plus", "minus")
    frame.to_csv(folder / "rows.csv", index=False)


def seconds(work: Callable[[], None]) -> float:
    """That it takes."""
    clock = time.process_time if "process_time" in sys.argv else time.perf_counter
    began = clock()
    work()
    return clock() - began


def compare(model: str, words: list[str], inputs: Path, folder: Path) -> None:
    """Print the throughputs and their ratios."""
    number, size = BATCHES[model]
    short = ["trainer.max_epochs=1", "trainer.limit_train_batches=1", "trainer.limit_val_batches=1"]
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        typed = [*words, *short, f"model={model}", f"hydra.run.dir={folder}", f"data.eval_batch_size={size}"]
        predictor = assay.load(assay.train(typed).run_dir)
    preprocess = predictor.preprocess
    assert preprocess is not None  # noqa: S101 - assay's own data
    samples = torch.cat([block.samples for block in blocks(preprocess, [inputs], size)])
    ready = [preprocess.normalized(batch) for batch in torch.split(samples, size)]

    @torch.no_grad()
    def bare() -> None:
        for batch in ready:
            predictor.model(batch).cpu()

    def reading() -> None:
        for _ in blocks(preprocess, [inputs], size):
            pass

    def verb() -> None:
        found = predict(predictor, folder, [inputs], out=folder / "found.parquet")
        assert (found.num_samples, found.num_failed) == (number, 0)  # noqa: S101 - all or no figure

    rounds = [[seconds(work) for work in (bare, reading, verb)] for _ in range(ROUNDS + 1)][1:]
    rates = [number / median(column) for column in zip(*rounds, strict=True)]
    share = median(model_s / verb_s for model_s, _, verb_s in rounds)
    both = median((model_s + read_s) / verb_s for model_s, read_s, verb_s in rounds)
    print(
        f"{f'{model}, {inputs.suffix or inputs.name}':<28}"
        + "".join(
            f"{name} {rate:9,.0f}/s   "
            for name, rate in zip(("model", "reading", "predict"), rates, strict=True)
        )
        + f"{share:4.0%} of the model's, {both:4.0%} of both",
        flush=True,
    )


def main() -> None:
    """Each kind of input, pictures with a small and a usual network."""
    folder = Path(tempfile.mkdtemp())
    print(f"{cpu_model()}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    try:
        pictures(folder)
        table(folder)
        for model in ("small_cnn", "resnet18"):
            for data in ("arrays", "image_folder"):
                root = folder / f"{data}_{BATCHES[model][0]}"
                inputs = root / "inputs.npy" if data == "arrays" else root
                words = [f"data={data}", f"data.source.root={root}"]
                compare(model, words, inputs, folder / f"{model}_{data}")
        words = ["data=table", f"data.source.path={folder / 'rows.csv'}", "data.source.target=kind"]
        compare("mlp", words, folder / "rows.csv", folder / "mlp")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
