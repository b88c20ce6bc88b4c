"""`assay predict` against its own model: files in, rows of a file out, both sides in one run.

    uv run python benchmarks/predict.py

Untrained networks of usual sizes over an .npy file and over a folder of JPEG files, written to Parquet. What
it is held against is the bare network on ready batches of the same size, that lie in memory. Rounds
alternate; the medians count.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image

import assay
from assay.run.predict.predict import predict

if TYPE_CHECKING:
    from assay.run.predict.predictor import Predictor

ROUNDS = 3
NUM_SAMPLES = 512
BATCH = 128


def trained(folder: Path, *overrides: str) -> Predictor:
    """A run of one step."""
    short = ("trainer.max_epochs=1", "trainer.limit_train_batches=1", "trainer.limit_val_batches=1")
    result = assay.train([*overrides, *short, f"hydra.run.dir={folder}", f"data.eval_batch_size={BATCH}"])
    return assay.load(result.run_dir)


def compare(name: str, predictor: Predictor, inputs: Path, samples: torch.Tensor, folder: Path) -> None:
    """Print both throughputs and their ratio."""
    assert predictor.preprocess is not None  # noqa: S101 - assay's own data
    ready = [predictor.preprocess.normalized(block) for block in torch.split(samples, BATCH)]
    bare, whole = [], []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        with torch.no_grad():
            for block in ready:
                predictor.model(block).cpu()
        bare.append(time.perf_counter() - began)
        began = time.perf_counter()
        found = predict(predictor, folder, [inputs], out=folder / "found.parquet")
        whole.append(time.perf_counter() - began)
        assert (found.num_samples, found.num_failed) == (len(samples), 0)  # noqa: S101 - all or no figure
    model, verb = (len(samples) / median(times[1:]) for times in (bare, whole))
    print(f"{name:<28} model {model:10,.0f}/s   predict {verb:10,.0f}/s   {verb / model:.1%}")


def main() -> None:
    """Both kinds of input, and two networks each."""
    folder = Path(tempfile.mkdtemp())
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (NUM_SAMPLES, 3, 32, 32), dtype=np.uint8)
    (folder / "arrays").mkdir()
    np.save(folder / "arrays" / "inputs.npy", pixels)
    np.save(folder / "arrays" / "targets.npy", np.arange(NUM_SAMPLES) % 10)
    for index, picture in enumerate(pixels):
        place = folder / "photos" / f"class_{index % 10}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture.transpose(1, 2, 0)).save(place / f"{index:04}.jpg")
    try:
        for model in ("small_cnn", "resnet18"):
            for data, root in (("arrays", folder / "arrays"), ("image_folder", folder / "photos")):
                run = folder / f"{model}_{data}"
                predictor = trained(run, f"data={data}", f"data.source.root={root}", f"model={model}")
                inputs = root / "inputs.npy" if data == "arrays" else root
                compare(f"{model}, {data}", predictor, inputs, torch.from_numpy(pixels), run)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
