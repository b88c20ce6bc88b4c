"""Pictures of what speaks for a class, against loops over the same patches through the public interface."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import assay
from assay_analysis import predictions_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

    from assay_analysis.predictions_file import KeptSample

SIDE = 32
CELL = SIDE // 8
ROW = 5
COLUMN = 2


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Noise, whose cell (5, 2) of an 8×8 grid tells the class."""
    path = tmp_path_factory.mktemp("arrays") / "noise.npz"
    draw = np.random.default_rng(0)
    targets = np.arange(300) % 3
    inputs = draw.normal(0, 0.1, (300, 3, SIDE, SIDE)).astype(np.float32)
    rows = slice(ROW * CELL, (ROW + 1) * CELL)
    columns = slice(COLUMN * CELL, (COLUMN + 1) * CELL)
    for number, target in enumerate(targets):
        inputs[number, target, rows, columns] += draw.choice([0.1, 1.0])
    np.savez(path, inputs=inputs, targets=targets)
    return path


@pytest.fixture(scope="module")
def run(train: Train, arrays: Path) -> Trained:
    return train(
        "data=arrays", f"data.source.root={arrays}", "model=linear", "optimizer.lr=0.01",
        "trainer.max_epochs=5", "baseline=auto", "callbacks=[last_checkpoint]",
    )  # fmt: skip


def samples_of(run: Trained, reason: str) -> list[KeptSample]:
    samples = predictions_file.read_samples(run.run_dir / predictions_file.SAMPLES)
    return [sample for sample in samples if sample.reason == reason]


def test_the_reddest_cell_is_where_the_class_loses_most(run: Trained, arrays: Path) -> None:
    predictor = assay.load(run.run_dir)
    inputs = np.load(arrays)["inputs"]
    shown = samples_of(run, "occlusion")
    assert [one.key for one in shown] == [one.key for one in samples_of(run, "worst")[:8]]
    for sample in shown:
        image = inputs[int(sample.key)]
        mean = image.mean((1, 2), keepdims=True)
        grid = np.empty((8, 8))
        whole = predictor(image)
        for row in range(8):
            for column in range(8):
                changed = image.copy()
                top, left = row * CELL - CELL // 2, column * CELL - CELL // 2
                changed[:, max(0, top) : top + 2 * CELL, max(0, left) : left + 2 * CELL] = mean
                grid[row, column] = whole.probability - predictor(changed).probabilities[whole.index]
        assert sample.picture is not None
        both = np.asarray(Image.open(io.BytesIO(sample.picture)).convert("RGB")).astype(int)
        half = (both.shape[1] - 4) // 2
        reddened = both[:, -half:] - both[:, :half]
        cell = half // 8
        of_cells = reddened[cell // 2 :: cell, cell // 2 :: cell, 0]
        assert of_cells.shape == (8, 8)
        assert np.corrcoef(of_cells.ravel(), grid.ravel())[0, 1] > 0.9


def test_the_most_frequent_confusion_is_beside_right_ones_of_both_classes(run: Trained) -> None:
    predictions = predictions_file.read(run.run_dir / predictions_file.FILE)
    assert predictions.targets is not None
    true, guess = predictions.targets, predictions.outputs.argmax(1)
    counts = np.zeros((3, 3), int)
    np.add.at(counts, (true, guess), 1)
    places = [predictions.keys.index(one.key) for one in samples_of(run, "confused")]
    pairs = [(int(true[place]), int(guess[place])) for place in places]
    first, second = pairs[0]
    assert first != second
    assert counts[first, second] == (counts - np.diag(counts.diagonal())).max() > 0
    for pair in ((first, second), (first, first), (second, second)):
        assert pairs.count(pair) == min(4, counts[pair])
    assert len(pairs) <= 12
