"""What `auto` comes to, for data that calls for one thing or another, and that what is typed wins."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from omegaconf import OmegaConf
from PIL import Image
from tests.conftest import unchanged_process

import assay
from assay.build.recipe import notes_on_pictures
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.config.yaml_file import load_mapping
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from assay.check.report import Report

SYNTHETIC = ("data=synthetic", "data.source.input_shape=[20]", "device=cpu")


def proved(*overrides: str) -> Report:
    return Prover().prove(job_config(compose(list(overrides))), list(overrides)).report


def told(*overrides: str) -> str:
    return "\n".join(proved(*overrides).notes)


@pytest.mark.always("100-16-200", "20000-64-30")
@pytest.mark.parametrize(
    ("samples", "batch", "epochs"), [(100, 16, 200), (2000, 32, 70), (20_000, 64, 30), (100_000, 128, 30)]
)
def test_small_sets_see_enough_steps_and_large_ones_are_not_trained_for_ever(
    samples: int, batch: int, epochs: int
) -> None:
    report = proved(*SYNTHETIC, f"data.source.num_samples={samples}", "model=mlp")
    assert report.batch_size == batch
    assert report.spec["max_epochs"] == epochs
    assert report.spec["total_steps"] == epochs * report.spec["steps_per_epoch"]
    assert f"{report.spec['total_steps']:,} steps: {epochs} epochs of" in "\n".join(report.notes)


def test_what_is_typed_wins_and_is_not_told() -> None:
    typed = ("trainer.max_epochs=12", "data.batch_size=50", "optimizer.lr=0.5", "optimizer.weight_decay=0")
    report = proved(*SYNTHETIC, "model=mlp", *typed)
    assert (report.batch_size, report.spec["total_steps"]) == (50, 12 * 140)
    assert "training samples" not in "\n".join(report.notes)


@pytest.mark.always("overrides3-0.002", "overrides4-0.03")
@pytest.mark.parametrize(
    ("overrides", "lr"),
    [
        (("model=mlp",), 0.001),
        (("model=linear",), 0.01),
        (("model=mlp", "data.batch_size=256"), 0.002),
        (("model=mlp", "trainer.accumulate_grad_batches=4"), 0.002),
        (("model=mlp", "optimizer=sgd", "optimizer.lr=auto"), 0.03),
        (("model=mlp", "optimizer=sgd"), 0.1),
        (("model=mlp", "model.recipe.lr=0.007"), 0.007),
    ],
)
def test_the_learning_rate_goes_by_model_optimizer_and_batch(overrides: tuple[str, ...], lr: float) -> None:
    report = proved(*SYNTHETIC, "data.source.num_samples=10000", *overrides)
    assert report.spec["lr"] == lr or "optimizer=sgd" in overrides
    job = job_config(compose([*SYNTHETIC, *overrides]))
    OmegaConf.set_struct(job, False)
    job.spec = report.spec
    assert job.optimizer.lr == pytest.approx(lr)


def test_steps_that_are_typed_end_the_run() -> None:
    few = (*SYNTHETIC, "data.source.num_samples=1000", "model=mlp")
    assert proved(*few, "trainer.max_steps=77").spec["total_steps"] == 77
    assert proved(*SYNTHETIC, "model=mlp", "trainer.min_epochs=90").spec["max_epochs"] == 90


@pytest.mark.always("overrides1-False", "overrides2-True")
@pytest.mark.parametrize(
    ("overrides", "short"),
    [
        (("trainer.max_epochs=1",), True),
        (("trainer.max_epochs=1", "data.source.num_samples=50000"), False),
        (("trainer.max_steps=299",), True),
        (("debug=small",), False),
    ],
)
def test_a_run_of_few_steps_is_told(overrides: tuple[str, ...], short: bool) -> None:
    given = overrides if any("num_samples" in one for one in overrides) else (*overrides, "seed=0")
    assert ("too few for most models" in told(*SYNTHETIC, "model=mlp", *given)) is short


def test_early_stopping_waits_for_a_quarter_of_the_epochs() -> None:
    typed = (*SYNTHETIC, "model=mlp", "callbacks=[default,early_stopping]")
    assert proved(*typed, "data.source.num_samples=100").spec["patience"] == 50
    assert proved(*typed, "trainer.max_epochs=8").spec["patience"] == 10
    assert "at most" in told(*typed)
    assert "at most" not in told(*SYNTHETIC, "model=mlp")


def test_a_run_keeps_the_numbers_and_goes_on_with_them(tmp_path: Path) -> None:
    typed = [*SYNTHETIC, "data.source.num_samples=200", "model=mlp", "hydra.run.dir=run", "baseline=none"]
    with chdir(tmp_path), unchanged_process():
        result: Any = assay.train([*typed, "model.recipe.steps=20", "model.recipe.epochs=2"])
        config = load_mapping(tmp_path / "run" / "config.yaml")
        assert (config.trainer.max_epochs, config.data.batch_size, config.optimizer.lr) == (3, 16, 0.001)
        assert config.recipe.steps == 20
        assert "recipe" not in config.model
        assert result.trainer.current_epoch == 3
        assert (
            RunRecord.load(tmp_path / "run").interpolations["optimizer.lr"].startswith("${oc.select:spec.lr")
        )
        again = assay.train([*typed, "model.recipe.steps=20", "model.recipe.epochs=2", "hydra.run.dir=again"])
    assert again.metrics == result.metrics


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw = np.random.default_rng(0)
    for number in range(40):
        for size in (16, 64):
            target = folder / f"{size}" / f"kind {number % 3}"
            target.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 255, (size, size, 3), np.uint8)).save(target / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    ("overrides", "augmented", "pretrained"),
    [
        (("size=64",), True, True),
        (("size=16",), True, False),
        (("size=64", "augment.flip=0"), False, True),
        (("size=64", "model=resnet18", "model.weights=weights.pth"), True, False),
    ],
)
def test_pictures_are_augmented_and_pretrained_networks_named(
    photos: Path, overrides: tuple[str, ...], augmented: bool, pretrained: bool
) -> None:
    size, *typed = overrides
    folder = photos / size.partition("=")[2]
    job = job_config(compose(["data=image_folder", f"data.source.root={folder}", *typed]))
    OmegaConf.set_struct(job, False)
    side = int(folder.name)
    job.spec = {"task": "multiclass", "num_train": 28, "input_shape": [3, side, side], "num_outputs": 3}
    notes = "\n".join(notes_on_pictures(job))
    assert ("half of them are mirrored" in notes) is augmented
    assert ("model=torchvision model.name=resnet18 model.weights=DEFAULT" in notes) is pretrained


@pytest.mark.always("overrides0-True", "overrides1-False")
@pytest.mark.parametrize(
    ("overrides", "last"),
    [
        (("model=small_cnn", "data.source.input_shape=[3,32,32]"), True),
        (("model=small_cnn", "data.source.input_shape=[3,8,8]"), False),
        (("model=mlp", "data.source.input_shape=[3,32,32]"), False),
        (("model=small_cnn", "data.source.input_shape=[3,32,32]", "trainer.channels_last=false"), False),
    ],
)
def test_channels_lie_last_where_that_is_faster(overrides: tuple[str, ...], last: bool) -> None:
    job = job_config(compose([*SYNTHETIC, *overrides]))
    OmegaConf.set_struct(job, False)
    job.spec = proved(*SYNTHETIC, *overrides).spec
    assert job.trainer.channels_last is last
