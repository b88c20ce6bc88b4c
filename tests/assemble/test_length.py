"""How long a run is and where it validates, as Lightning has it; and the recipe that follows the data."""

from __future__ import annotations

import functools
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import OmegaConf
from PIL import Image
from tests.callbacks.quiet_trainer import quiet_trainer
from tests.check.jobs import PROVER
from tests.conftest import unchanged_process
from torch import nn
from typing_extensions import override

import assay
from assay.assemble.assembly import add_spec
from assay.assemble.recipe import choose_widths, notes_on_pictures, run_length, tells_sides
from assay.check.checker import check_job
from assay.compose.compose import compose, job_config
from assay.config.yaml_file import load_mapping
from assay.data.core.spec import Spec
from assay.errors import ConfigError
from assay.model.small_cnn import SmallCNN
from assay.record.run_record import RunRecord
from assay_prove.fit import check_length, check_plateau, why_no_validation
from assay_prove.prove import Prover

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tests.conftest import Train

    from assay.check.report import Report


SAMPLES = {"num_train": 105, "num_val": 15, "num_test": 30}
IRIS = (
    *("data=iris", "model=linear", "data.batch_size=12", "data.drop_last=true", "device=cpu"),
    "trainer.max_epochs=3",
)
"""Eight batches an epoch."""


class Validations(Callback):
    """After how many batches there was one."""

    def __init__(self) -> None:
        self.after: list[int] = []

    @override
    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.after.append(trainer.fit_loop.total_batch_idx + 1)


def job(*typed: str) -> DictConfig:
    config = job_config(compose([*IRIS, *typed]))
    spec = Spec(task="multiclass", input_shape=(4,), num_classes=3, class_counts=(35, 35, 35), **SAMPLES)  # type: ignore[arg-type]  # three numbers by their names
    add_spec(config, spec)
    return config


@pytest.mark.always(
    "trainer.check_val_every_n_epoch=2 trainer.val_check_interval=5",
    "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=6",
    "trainer.limit_train_batches=3 trainer.max_epochs=-1 trainer.max_steps=8",
)
@pytest.mark.parametrize(
    "typed",
    [
        "",
        "trainer.val_check_interval=0.5",
        "trainer.check_val_every_n_epoch=2",
        "trainer.check_val_every_n_epoch=2 trainer.val_check_interval=5",
        "trainer.check_val_every_n_epoch=null trainer.val_check_interval=25",
        "trainer.max_steps=7",
        "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=6",
        "trainer.max_steps=2 trainer.accumulate_grad_batches=3 trainer.val_check_interval=7",
        "trainer.limit_train_batches=0.3",
        "trainer.limit_train_batches=1000 data.drop_last=false",
        "trainer.limit_train_batches=3 trainer.max_epochs=-1 trainer.max_steps=8",
    ],
)
def test_lightning_validates_where_it_is_expected(train: Train, typed: str) -> None:
    words = typed.split()
    config = job(*words)
    seen = Validations()
    run = train(*IRIS, *words, callbacks=[seen])
    why, instead = why_no_validation(config)
    assert bool(seen.after) is not bool(why), why
    if why:
        assert instead
        key, value = instead.split("=")
        assert not why_no_validation(job(*(w for w in words if not w.startswith(key)), f"{key}={value}"))[0]
    length = run_length(config)
    assert run.trainer.global_step == length.total_steps == run.config.spec.total_steps
    assert len(run.watch.losses) == length.total_batches


@pytest.mark.parametrize(
    "typed", ["trainer.max_steps=2", "trainer.max_steps=1 trainer.accumulate_grad_batches=1000"]
)
def test_the_monitor_chooses_a_checkpoint_of_a_run_no_longer_than_an_epoch(train: Train, typed: str) -> None:
    monitor = ("callbacks=[checkpoint,early_stopping]", "callbacks.checkpoint.monitor=val/accuracy")
    run = train(*IRIS, *typed.split(), *monitor)
    assert run.config.callbacks.early_stopping.monitor == "val/accuracy"
    best = run.checkpoint("best")
    assert best["global_step"] == run.config.trainer.max_steps
    (saver,) = (state for key, state in best["callbacks"].items() if key.startswith("ModelCheckpoint"))
    assert saver["monitor"] == "val/accuracy"
    scores = best["loops"]["fit_loop"]["state_dict"]["scores"]
    assert float(saver["best_model_score"]) == scores["val/accuracy"]


@pytest.mark.parametrize("name", ["train", "val", "test"])
def test_less_than_a_batch(name: str) -> None:
    key = f"trainer.limit_{name}_batches"
    check_length(job(f"{key}=1"))
    with pytest.raises(ConfigError) as caught:
        check_length(job(f"{key}=0.1"))
    assert caught.value.key == key
    check_length(job(caught.value.hint.split()[0]))


@pytest.mark.always(
    "-True",
    "scheduler.interval=step scheduler.frequency=4-False",
    "trainer.check_val_every_n_epoch=2 scheduler.frequency=2-True",
)
@pytest.mark.parametrize(
    ("typed", "fine"),
    [
        ("", True),
        ("scheduler.interval=step", False),
        ("scheduler.interval=step scheduler.frequency=8", True),
        ("scheduler.interval=step scheduler.frequency=4", False),
        ("scheduler.interval=step scheduler.frequency=4 trainer.val_check_interval=4", True),
        ("trainer.check_val_every_n_epoch=2", False),
        ("trainer.check_val_every_n_epoch=2 scheduler.frequency=2", True),
        ("scheduler.monitor=train/loss", True),
        ("scheduler.monitor=train/loss scheduler.interval=step scheduler.frequency=8", False),
    ],
)
def test_a_plateau_that_asks_too_soon(train: Train, typed: str, fine: bool) -> None:
    words = ["scheduler=plateau", *typed.split()]
    config = job(*words)
    if fine:
        check_plateau(config)
        assert train(*IRIS, *words).result.status == "finished"
    else:
        with pytest.raises(ConfigError) as caught:
            check_plateau(config)
        assert caught.value.hint


def test_an_unknown_length() -> None:
    endless = ["trainer.max_epochs=-1", "trainer.max_time={minutes: 1}"]
    config = job(*endless, "scheduler=none")
    assert config.spec.total_steps is None
    assert check_length(config) == []
    with pytest.raises(ConfigError) as caught:
        check_length(job(*endless, "scheduler=cosine"))
    assert caught.value.key == "scheduler.T_max"


def test_checkpoints_that_the_run_is_too_short_for() -> None:
    def said(*typed: str) -> Any:
        return "; ".join(check_length(job(*typed)))

    assert not said()
    assert "the run has 24 steps" in said("callbacks.last_checkpoint.every_n_train_steps=25")
    assert "the run has 3 epochs" in said("callbacks.last_checkpoint.every_n_epochs=4")


# -- of a custom datamodule, whose loader is asked

OWN = (
    *("data._target_=check_data.Own", "trusted_packages=[check_data]", "model=linear", "device=cpu"),
    *("trainer.max_epochs=3", "callbacks.checkpoint=null"),
)


@pytest.fixture
def own_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "check" / "project"))


def check(kind: str, *typed: str, model: dict[str, Any] | None = None) -> Report:
    job = job_config(compose([*OWN, f"+data.kind={kind}", *typed]))
    if model is not None:
        job.model = model
    check_job(job)
    return Prover().prove(job).report


class Steps(L.LightningModule):
    """Stock Lightning: what it says of the steps to come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.steps = nn.Linear(4, 3), 0.0

    def on_fit_start(self) -> None:
        self.steps = self.trainer.estimated_stepping_batches

    def training_step(self, *_: Any) -> Any:
        return self.layer(torch.randn(2, 4)).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def by_lightning(kind: str) -> float:
    module = Steps()
    trainer = quiet_trainer(max_epochs=3, use_distributed_sampler=False)
    trainer.fit(module, datamodule=sys.modules["check_data"].Own(kind))
    return module.steps


KINDS = (
    *("plain", "drop_last", "weighted", "batch_sampler", "one_by_one", "counted", "two", "shortest"),
    "batches",
)


@pytest.mark.usefixtures("own_project")
@pytest.mark.always("batch_sampler")
@pytest.mark.filterwarnings("ignore")  # of Lightning's, on the trainer of the comparison
@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_are_those_that_lightning_counts(kind: str) -> None:
    assert check(kind).spec["total_steps"] == by_lightning(kind)


@pytest.mark.usefixtures("own_project")
@pytest.mark.parametrize("kind", ["stream", "needs_trainer"])
def test_an_unknown_number_of_batches_is_said_where_it_is_needed(kind: str) -> None:
    with pytest.raises(ConfigError, match="how many batches") as refused:
        check(kind)
    assert refused.value.key == "scheduler.lr_lambda.total_steps"
    assert "trainer.max_steps=" in refused.value.hint
    assert check(kind, "scheduler=none").spec["total_steps"] is None
    known = check(kind, "trainer.max_steps=40", "trainer.max_epochs=-1")
    assert known.spec["total_steps"] == 40


@pytest.mark.usefixtures("own_project")
def test_the_step_is_tried_with_a_batch_of_its_size() -> None:
    features = {"num_features": "${spec.num_features}", "num_outputs": "${spec.num_outputs}"}
    normed = {"_target_": "check_models.Normed", **features}
    report = check("plain", "trusted_packages=[check_data,check_models]", model=normed)
    assert report.step is not None
    assert report.batch_size == 16


SYNTHETIC = ("data=synthetic", "data.source.input_shape=[20]", "device=cpu")


@functools.cache
def proved(*overrides: str) -> Report:
    return PROVER.prove(job_config(compose(list(overrides))), list(overrides)).report


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


def test_a_run_of_few_steps_is_noted() -> None:
    typed = (*SYNTHETIC, "data.source.num_samples=100", "data.batch_size=10", "model=mlp")
    steps = proved(*typed, "trainer.max_epochs=2").spec["total_steps"]
    assert f"only {steps} optimizer steps in all, too few for most models; trainer.max_epochs=auto" in told(
        *typed, "trainer.max_epochs=2"
    )
    few = told(*SYNTHETIC, "data.source.num_samples=12", "model=mlp")
    assert "optimizer steps in all, too few for most models" in few
    assert "max_epochs=auto" not in few
    assert "in all, too few" not in told(*typed, "trainer.max_epochs=60")
    assert "in all, too few" not in told(*typed, "trainer.max_epochs=2", "trainer.limit_train_batches=3")


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
    assert ("model=pretrained finetune=head" in notes) is pretrained


@pytest.mark.parametrize(
    ("shape", "samples", "expected"),
    [
        ((3, 1, 1), 100, ((32,), 1)),
        ((3, 3, 500), 100, ((32, 64), 1)),
        ((1, 8, 8), 1000, ((32, 64, 128), 1)),
        ((3, 32, 32), 50_000, ((32, 64, 128), 1)),
        ((3, 64, 64), 300, ((32, 64, 128), 2)),
        ((3, 96, 200), 300, ((16, 32, 64, 128), 2)),
        ((3, 96, 96), 20_000, ((32, 64, 128, 128), 2)),
        ((3, 224, 224), 300, ((16, 32, 64, 128, 128), 2)),
        ((20,), 300, ((32, 64, 128), 1)),
    ],
)
def test_the_depth_of_a_network_follows_the_size_of_the_pictures(
    shape: tuple[int, ...], samples: int, expected: object
) -> None:
    widths, stride = choose_widths(shape, samples)
    assert (widths, stride) == expected
    if len(shape) == 3:
        model = SmallCNN(shape, 4, widths=widths, stride=stride).eval()
        last = model.blocks(torch.zeros(1, *shape))
        assert min(shape[1:]) < 64 or 5 <= min(last.shape[2:]) <= 11


def test_the_depth_is_typed_or_kept_in_the_run_and_said(tmp_path: Path) -> None:
    large = (
        *("data=synthetic", "data.source.input_shape=[3,64,72]", "data.source.num_samples=40", "device=cpu"),
        *("model=small_cnn", "trainer.max_epochs=1", "data.batch_size=8", "data.source.num_classes=3"),
        "baseline=none",
    )
    assert "model.widths [32,64,128] and model.stride 2" in told(*large)
    assert "model.widths" not in told(*large, "model.widths=[8,8]")
    assert "model.widths" not in told(*large, "data.source.input_shape=[3,32,32]")
    with chdir(tmp_path), unchanged_process():
        assay.train([*large, "hydra.run.dir=run"])
        assay.train([*large, "hydra.run.dir=typed", "model.widths=[4,8]"])
        assert [
            (list(one.model.widths), one.model.stride)
            for one in (load_mapping(tmp_path / name / "config.yaml") for name in ("run", "typed"))
        ] == [([32, 64, 128], 2), ([4, 8], 1)]
        network: Any = assay.load("run").model
        assert network.blocks[0][0].stride == (2, 2)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a", "b"), True),
        (("0", "1", "9"), True),
        (("0", "1"), False),
        (("0 - zero", "1 - one"), True),
        (("left hand", "fist"), True),
        (("cat", "dog"), False),
        (("a", "dog"), False),
        (("a",), False),
        ((), False),
    ],
)
def test_pictures_of_letters_digits_and_sides_are_not_mirrored(
    names: tuple[str, ...], expected: bool
) -> None:
    assert tells_sides(names) is expected


def test_a_folder_of_letters_is_not_mirrored_unless_typed(photos: Path, tmp_path: Path) -> None:
    letters = tmp_path / "letters"
    for number, letter in enumerate("bd"):
        shutil.copytree(photos / "16" / f"kind {number}", letters / letter)
    typed = ("data=image_folder", "data.num_workers=0", "device=cpu")
    flips = {}
    for folder in (letters, photos / "16"):
        report = proved(*typed, f"data.source.root={folder}")
        flips[folder] = report.spec["flip"], "not mirrored" in "\n".join(report.notes)
    assert flips == {letters: (0.0, True), photos / "16": (0.5, False)}
    assert "half of them are mirrored" in told(*typed, f"data.source.root={letters}", "augment.flip=0.5")
    assert "half of them are mirrored" in told(*typed, f"data.source.root={letters}", "augment=flip_crop")


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
