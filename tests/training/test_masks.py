"""A run on pictures with masks: resized inside, used on pictures of any size, on several processes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.command import typed

import assay
from assay.data.image.digits_segmentation import DigitsSegmentation
from assay.errors import DataError
from assay.run.saved_config import read_config
from assay_serve.evaluate import evaluate
from assay_serve.predict import predict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

SIZES = {"train": 24, "val": 8, "test": 8}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scenes")
    for part, samples in DigitsSegmentation([*SIZES.values()], size=40).read().items():
        for kind, arrays in (("images", samples.inputs.permute(0, 2, 3, 1)), ("masks", samples.targets)):
            (folder / part / kind).mkdir(parents=True)
            for number, array in enumerate(arrays.numpy()):
                Image.fromarray(array).save(folder / part / kind / f"{number:02}.png")
    return folder


@pytest.fixture(scope="module")
def run(train: Train, root: Path) -> Trained:
    return train(
        *("data=segmentation_folder", f"data.source.root={root}", "data.source.image_size=[24,32]"),
        *("data.num_workers=0", "data.batch_size=8", "model.widths=[4,8]", "callbacks=[checkpoint]"),
        *("trainer.max_epochs=3", "optimizer.lr=0.01"),
    )


def test_pictures_of_any_size_get_masks_of_their_size(run: Trained, root: Path, tmp_path: Path) -> None:
    predictor = assay.load(run.run_dir, map_location="cpu")
    (tmp_path / "new").mkdir()
    sizes = {"a": (40, 40), "b": (61, 83), "c": (17, 200)}
    for name, (height, width) in sizes.items():
        Image.open(root / "test/images/00.png").resize((width, height)).save(tmp_path / "new" / f"{name}.png")
    found = predict(predictor, run.run_dir, [tmp_path / "new"], out=tmp_path / "out.csv")
    assert (found.num_samples, found.num_failed) == (3, 0)
    table = pd.read_csv(tmp_path / "out.csv")
    for path, mask in zip(table["input"], table["mask"], strict=True):
        drawn = np.asarray(Image.open(tmp_path / mask))
        assert drawn.shape == sizes[path.rpartition("/")[2].partition(".")[0]]
        np.testing.assert_array_equal(drawn, predictor(path).mask)


def test_crops_are_trained_on_and_whole_pictures_are_scored(root: Path, tmp_path: Path) -> None:
    typed(
        *("train", "data=segmentation_folder", f"data.source.root={root}", "data.source.image_size=null"),
        *("data/transform=random_crop", "data.transform.crop_size=[16,24]", "data.eval_batch_size=1"),
        *("data.num_workers=0", "model.widths=[4,8]", "trainer.max_epochs=1", "device=cpu", "baseline=none"),
        *("callbacks=[checkpoint]", f"hydra.run.dir={tmp_path}/run"),
    )
    spec = read_config(tmp_path / "run").spec
    assert (list(spec.train_shape), list(spec.input_shape)) == ([3, 16, 24], [3, 40, 40])
    stored = pd.read_parquet(tmp_path / "run/predictions.parquet")
    assert len(stored) == SIZES["test"]
    predictor = assay.load(tmp_path / "run", map_location="cpu")
    assert predictor(root / "test/images/00.png").mask.shape == (40, 40)


@pytest.mark.long
@pytest.mark.parametrize("loss", ["cross_entropy", "focal", "dice", "dice_cross_entropy"])
def test_pieces_of_a_batch_add_up_to_it_however_many_pixels_are_left_out(
    train: Train, root: Path, tmp_path: Path, loss: str
) -> None:
    shutil.copytree(root, void := tmp_path / "void")
    for number, path in enumerate(sorted((void / "train" / "masks").iterdir())):
        mask = np.array(Image.open(path))
        mask[: 5 * (number % 9)] = 255  # from no row to all of them
        Image.fromarray(mask).save(path)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf/model/one_layer.yaml").write_text(
        "{_target_: torch.nn.Conv2d, in_channels: 3, out_channels: '${spec.num_outputs}', kernel_size: 1}\n"
    )
    job = (
        *("data=segmentation_folder", f"data.source.root={void}", "data.num_workers=0", "data.batch_size=8"),
        *("model=one_layer", f"loss={loss}", "optimizer=sgd", "optimizer.lr=0.5", "precision=fp64"),
        "trainer.max_epochs=2",
    )
    whole, pieces = (
        train(*job, *more, config_dir=tmp_path / "conf", keep_weights=True)
        for more in ((), ("trainer.micro_batch=3",))
    )
    assert not all(torch.equal(pieces.weights[name], weight) for name, weight in whole.weights.items())
    for name, weight in whole.weights.items():
        torch.testing.assert_close(pieces.weights[name], weight, rtol=1e-12, atol=1e-12)
    for name in ("train/loss", "val/loss", "test/mean_iou"):
        assert pieces.column(name) == pytest.approx(whole.column(name), rel=1e-6), name


def test_masks_that_lack_a_class_are_evaluated_by_the_values_of_the_run(
    run: Trained, root: Path, tmp_path: Path
) -> None:
    shutil.copytree(root / "test", tmp_path / "other")
    for path in (tmp_path / "other/masks").iterdir():
        values = np.asarray(Image.open(path))
        Image.fromarray(np.where(values == 1, np.uint8(255), values)).save(path)
    other = [f"data.source.root={tmp_path}/other", "data.num_workers=0"]
    found = evaluate(run.run_dir, other)
    assert evaluate(run.run_dir, [*other, "data.source.values=[0,1,2,3]"]).metrics == found.metrics
    assert any("no class of pixels 1:" in note for note in found.notes)
    with pytest.raises(DataError, match="expected 4 values"):
        evaluate(run.run_dir, [*other, "data.source.values=[0,2,3]"])
