"""The GAN of `examples/digit_gan`: its measure can fail, and two networks stepped by hand go on exactly."""

from __future__ import annotations

import importlib
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.mixture import GaussianMixture  # type: ignore[import-untyped]  # it ships no types
from tests.command import typed
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, outcome
from torchmetrics.image.fid import FrechetInceptionDistance

from assay.run.resume import resume

if TYPE_CHECKING:
    from tests.conftest import Train
    from tests.interrupting import Hook

PROJECT = Path(__file__).parents[2] / "examples" / "digit_gan"
# Saved after the step is what an exact resume needs; Lightning warns that it is not before it.
pytestmark = pytest.mark.filterwarnings("ignore:Using ModelCheckpoint with manual optimization")
SHORT = (
    *("experiment=digit_gan", "callbacks=[checkpoint,last_checkpoint,ema]", "trainer.max_epochs=3"),
    *("trainer.check_val_every_n_epoch=1", "trainer.limit_train_batches=6"),
    *("callbacks.last_checkpoint.every_n_train_steps=1", "callbacks.ema.warmup_fraction=0.1"),
)


@pytest.fixture(autouse=True)
def own_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))


@pytest.fixture
def gan() -> Any:
    return importlib.import_module("digit_gan")


def measured(gan: Any, generated: Any) -> tuple[float, float]:
    """Fréchet distance to the test digits, and the rarest digit's share."""
    distance, rarest = FrechetInceptionDistance(gan.Features()), gan.RarestDigit()
    for pixels, real in ((gan.digits()["test"][:, :-1], True), (generated, False)):
        pictures = torch.from_numpy(np.clip(pixels, -1, 1)).float().view(-1, 1, 8, 8)
        distance.update(pictures, real=real)
    rarest.update(pictures)
    return float(distance.compute()), float(rarest.compute())


def test_the_measure_knows_noise_and_a_single_digit_from_digits(gan: Any) -> None:
    parts, draw = {name: rows[:, :-1] for name, rows in gan.digits().items()}, np.random.default_rng(0)
    assert gan.judge().score(parts["test"], gan.digits()["test"][:, -1].astype(int)) > 0.95
    distance, rarest = measured(gan, parts["val"])
    assert distance < 3
    assert rarest > 0.05
    assert measured(gan, draw.uniform(-1, 1, (300, 64)))[0] > 100
    distance, rarest = measured(gan, np.repeat(parts["train"][:1], 300, 0))
    assert distance > 100
    assert rarest == 0
    assert measured(gan, GaussianMixture(1, random_state=0).fit(parts["train"]).sample(300)[0])[0] > 5


@pytest.mark.always("batch-4")
@pytest.mark.parametrize(
    ("hook", "count"), [("batch", 4), ("validation", 2), pytest.param("epoch", 1, marks=pytest.mark.long)]
)
def test_it_goes_on_exactly(train: Train, hook: Hook, count: int, whole: dict[str, str]) -> None:
    run_dir = train(*SHORT, callbacks=[Interrupt(hook, count)], config_dir=PROJECT / "conf").run_dir
    with chdir(run_dir.parent), unchanged_process():
        assert resume(run_dir, trusted_packages=["digit_gan"]).status == "finished"
    states = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)["optimizer_states"]
    assert [len(one["state"]) for one in states] == [10, 6], "of the generator and of the critic"
    assert outcome(run_dir) == whole


_once: dict[str, Path] = {}


@pytest.fixture
def short(train: Train) -> Path:
    """Trained once for all tests of this file."""
    if "run" not in _once:
        _once["run"] = train(*SHORT, config_dir=PROJECT / "conf").run_dir
    return _once["run"]


@pytest.fixture
def whole(short: Path) -> dict[str, str]:
    return outcome(short)


def test_it_draws_pictures_and_is_exported(short: Path, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).standard_normal((5, 32, 1, 1)).astype(np.float32)
    np.save(tmp_path / "noise.npy", noise)
    typed("predict", short, tmp_path / "noise.npy", "--out", tmp_path / "drawn.csv", folder=PROJECT)
    files = sorted((tmp_path / "drawn_pictures").iterdir())
    assert len(files) == 5
    assert len({path.read_bytes() for path in files}) == 5
    with Image.open(files[0]) as picture:
        assert (picture.format, picture.size) == ("PNG", (128, 128))
    told = typed("export", short, "--out", tmp_path, folder=PROJECT)
    assert "300 test samples, largest difference" in told.output
    import onnxruntime  # type: ignore[import-untyped]  # it ships no types

    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (drawn,) = session.run(None, {"inputs": noise})
    assert drawn.shape == (5, 1, 8, 8)


@pytest.mark.parametrize("word", ["trainer.accumulate_grad_batches=2", "trainer.gradient_clip_val=1.0"])
def test_what_is_left_to_a_module_that_steps_by_hand_is_refused(word: str) -> None:
    done = typed("check", "experiment=digit_gan", word, code=2, folder=PROJECT)
    assert done.output.startswith(f"error: {word.partition('=')[0]}: ")
    assert "steps its optimizers by hand" in " ".join(done.output.split())
