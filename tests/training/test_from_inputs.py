"""Whole runs that learn from the inputs alone: autoencoders and SimCLR, over data with labels and without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_iris  # type: ignore[import-untyped]  # it has no stubs

import assay
from assay.errors import ConfigError, DataError
from assay_analysis import predictions_file
from assay_serve.evaluate import evaluate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

SMALL = ("data=digits", "data.batch_size=256", "scheduler=none", "optimizer.lr=0.003")

KEPT = ("callbacks=[checkpoint]",)


@pytest.fixture(scope="module")
def autoencoder(train: Train) -> Trained:
    return train("task=reconstruction", *SMALL, "trainer.max_epochs=4", "model.hidden=[64]", *KEPT)


def test_an_autoencoder_learns_and_says_its_scores_in_the_inputs_own_unit(autoencoder: Trained) -> None:
    assert autoencoder.watch.falls(0.9)
    data, module = autoencoder.datamodule, autoencoder.module
    inputs = data.subset("test").data.inputs[data.subset("test").rows]
    mean, std = data.spec.mean[0], data.spec.std[0]
    with torch.no_grad():
        outputs = module.model.eval()((inputs - mean) / std) * std + mean
    found = autoencoder.result.metrics
    assert found["test/mse"] == pytest.approx(((outputs - inputs) ** 2).mean().item(), rel=1e-4)
    assert found["test/loss"] == pytest.approx(found["test/mse"] / std**2, rel=1e-4)
    kept = predictions_file.read(autoencoder.run_dir / "predictions.parquet")
    error = ((outputs - inputs) ** 2).flatten(1).mean(1) / std**2
    np.testing.assert_allclose(kept.outputs[:, 0], error.numpy(), rtol=1e-3)
    assert kept.outputs.shape == (360, 9)
    assert kept.targets is not None
    assert set(kept.targets) == set(range(10))


def test_a_table_without_a_target(train: Train, tmp_path: Path) -> None:
    iris = load_iris(as_frame=True).data
    iris.to_csv(tmp_path / "iris.csv", index=False)
    run = train(
        *("task=reconstruction", "data=table", f"data.source.path={tmp_path / 'iris.csv'}"),
        *("data.source.target=null", "model.latent_size=2", "scheduler=none", "optimizer.lr=0.01"),
        *("trainer.max_epochs=15", *KEPT),
    )
    assert type(run.module.model).__name__ == "Autoencoder"
    assert run.watch.falls(0.7)
    kept = predictions_file.read(run.run_dir / "predictions.parquet")
    assert kept.targets is None
    (one, *_) = predictions_file.read_samples(run.run_dir / "samples.parquet")
    assert one.row is not None
    assert "sepal width (cm), reconstructed" in one.row
    odd = iris.iloc[:2].copy()
    odd.iloc[1] = [20.0, 0.1, 0.1, 9.0]
    with pytest.warns(UserWarning, match="far outside the training range"):
        errors = assay.load(run.run_dir, map_location="cpu")(odd).errors
    assert errors[1] > 20 * errors[0]


def test_pictures_in_no_folders(train: Train, tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 255, (24, 8, 8, 3), dtype=np.uint8)
    for at, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{at}.png")
    run = train(
        *("task=reconstruction", "data=image_folder", f"data.source.root={folder}"),
        *("data.source.classes=false", "data.num_workers=0", "model=conv_autoencoder", "model.widths=[4]"),
        *("data.batch_size=8", "model.latent_size=4", "predictions.max_megabytes=1"),
    )
    assert run.result.status == "finished"


def test_views_of_pictures_without_labels(train: Train, tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", np.random.default_rng(0).integers(0, 255, (24, 1, 8, 8), dtype=np.uint8))
    run = ("task=self_supervised", "data=arrays", f"data.source.root={tmp_path}", "data.source.targets=null")
    narrow = ("model.encoder.widths=[4]", "data.batch_size=8")
    with pytest.raises(ConfigError, match="metrics=none") as caught:
        train(*run, *narrow)
    assert str(caught.value.key).startswith("metrics.eval.metrics.")
    assert train(*run, *narrow, "metrics=none").result.status == "finished"


def test_noise_on_the_inputs_leaves_what_is_to_be_reconstructed_clean(train: Train) -> None:
    """Noise of a hundred deviations would be a squared error of ten thousand."""
    small = ("model.hidden=[16]", "trainer.max_epochs=2")
    run = train("task=reconstruction", *SMALL, *small, "augment=noise", "augment.sigma=100", "callbacks=[]")
    assert 0.1 < run.result.metrics["train/loss"] < 100


def test_views_are_judged_on_pictures_of_some_of_the_classes(train: Train, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for folder, names in (("all", "abc"), ("some", "cb")):
        for name in names:
            (tmp_path / folder / name).mkdir(parents=True)
            for number in range(12):
                pixels = draw.integers(0, 60, (8, 8, 3), np.uint8) + 60 * np.uint8(ord(name) - ord("a"))
                Image.fromarray(pixels).save(tmp_path / folder / name / f"{number}.png")
    run = train(
        *("task=self_supervised", "data=image_folder", f"data.source.root={tmp_path}/all", *KEPT),
        *("data.num_workers=0", "model.encoder.widths=[4]", "data.batch_size=8", "trainer.max_epochs=1"),
    )
    found = evaluate(run.run_dir, [f"data.source.root={tmp_path}/some"])
    paths = sorted((tmp_path / "some").rglob("*.png"))
    vectors = assay.load(run.run_dir, map_location="cpu")(paths).vectors
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    similar = unit @ unit.T - 9 * np.eye(len(unit))
    labels = np.array([path.parent.name for path in paths])
    flat = [f"data.source.root={tmp_path}/some/c"]
    with pytest.raises(DataError, match=r"no folder of images\n  → .*; data\.source\.classes=false takes"):
        evaluate(run.run_dir, flat)
    unlabelled = evaluate(run.run_dir, [*flat, "data.source.classes=false"])
    assert (unlabelled.num_samples, set(unlabelled.metrics)) == (12, {"all/loss"})
    assert unlabelled.notes[0] == "without classes there is no score but the loss"
    assert found.metrics["all/one_nn"] == pytest.approx((labels[similar.argmax(1)] == labels).mean())
