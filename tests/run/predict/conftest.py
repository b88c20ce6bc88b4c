"""A trained run of each task and each form of input, and what its own test saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # ships no types

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from tests.conftest import Train, Trained

SHORT = ("callbacks=[checkpoint]", "trainer.limit_train_batches=4", "model=linear", "data.batch_size=16")


def two_columns(said: NDArray[np.float32]) -> NDArray[np.float32]:
    """Both classes, `[N, 2]`, of the chance of the second one."""
    return np.stack([1 - said, said], 1)


def said_in_test(run: Trained) -> NDArray[np.float32]:
    """What the metrics of the run's own test saw, sample by sample in its order."""
    module, data = run.module.eval(), run.datamodule
    with torch.no_grad():
        found = [
            module.test_step(data.on_after_batch_transfer(batch, 0), 0)["predictions"]
            for batch in data.test_dataloader()
        ]
    outputs: NDArray[np.float32] = torch.cat(found).float().numpy()
    return outputs


def rows_of_test(run: Trained) -> NDArray[np.int64]:
    """Rows of the source that make up the test subset."""
    rows: NDArray[np.int64] = run.datamodule.splits.rows["test"]
    return rows


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of pictures of many modes, formats, sizes and orientations."""
    root = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for label, name in enumerate(("<b>cat", "dög")):
        (root / name).mkdir()
        for index in range(24):
            height, width = int(draw.integers(9, 30)), int(draw.integers(9, 30))
            colours = draw.integers(100 * label, 100 * label + 156, (height, width, 3), dtype=np.uint8)
            picture = Image.fromarray(colours)
            form = index % 6
            if form == 1:
                picture = picture.convert("L")
            elif form == 2:
                picture.putalpha(Image.fromarray(colours[..., 0]))
            elif form == 3:
                picture = picture.quantize(16)
            elif form == 4:
                picture = Image.fromarray(colours[..., 0].astype(np.uint16) * 257)
            exif = Image.Exif()
            exif[0x0112] = 1 + index % 8
            suffix = "jpg" if form in (0, 1, 5) else "png"
            picture.save(root / name / f"{index:02}.{suffix}", exif=exif)
    return root


@pytest.fixture(scope="session")
def photo_run(train: Train, photos: Path) -> Trained:
    return train(
        *("data=image_folder", f"data.source.root={photos}", "data.source.image_size=[12,10]", *SHORT),
        "data.num_workers=0",
    )


@pytest.fixture(scope="session")
def cropped_run(train: Train, photos: Path) -> Trained:
    """Streamed, and brought to one size by the transforms; grey."""
    return train(
        *("data=image_folder", f"data.source.root={photos}", "data.source.in_memory=false", *SHORT),
        *(
            "data.source.mode=GRAY",
            "data/transform=resize",
            "data.transform.size=[8,8]",
            "data.num_workers=0",
        ),
    )


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one table in two formats: numbers with gaps, categories, yes or no, a date, an id."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "customer_id": range(7000, 7300),
            "size": draw.gamma(9, 13, 300).round(1),
            "rooms": draw.integers(1, 9, 300),
            "code": draw.choice(["01", "02", "1", "x"], 300),
            "district": draw.choice(["Nord", "Süd", "=cmd"], 300),
            "garden": draw.random(300) > 0.5,
            "since": [f"20{year:02}-0{month}-17" for year, month in draw.integers(1, 10, (300, 2))],
        }
    )
    frame["size"] = frame["size"].mask(draw.random(300) < 0.1)
    frame["district"] = frame["district"].mask(draw.random(300) < 0.1)
    size = frame["size"].fillna(100)
    frame["price"] = (90_000 + 2_100 * size + 9_000 * frame["rooms"] + draw.normal(0, 9_000, 300)).round(2)
    frame["kind"] = np.where(size > 130, "villa", np.where(frame["garden"], "house", "flat"))
    folder = tmp_path_factory.mktemp("table")
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    return folder


@pytest.fixture(scope="session")
def kind_run(train: Train, table: Path) -> Trained:
    return train(
        *("data=table", f"data.source.path={table / 'rows.csv'}", "data.source.target=kind", *SHORT),
        *("data.source.missing=impute", "data.source.keep=[since]", "data.source.exclude=[price]"),
    )


@pytest.fixture(scope="session")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of bytes, channels last, with three labels each."""
    folder = tmp_path_factory.mktemp("arrays")
    images, digits = load_digits(return_X_y=True)
    pixels = (images[:200].reshape(-1, 8, 8, 1) * 15).astype(np.uint8).repeat(3, axis=3)
    np.save(folder / "inputs.npy", pixels)
    digits = digits[:200]
    np.save(folder / "targets.npy", np.stack([digits % 2, digits > 4, digits % 3 == 0], 1).astype(np.int64))
    return folder


@pytest.fixture(scope="session")
def label_run(train: Train, arrays: Path) -> Trained:
    return train(
        *("data=arrays", f"data.source.root={arrays}", "data.source.layout=NHWC", *SHORT),
        *("data.source.class_names=[odd,large,threes]", "loss=bce_with_logits", "metrics=multilabel"),
    )


@pytest.fixture(scope="session")
def yes_no_run(train: Train) -> Trained:
    """One logit."""
    return train("data=breast_cancer", *SHORT)
