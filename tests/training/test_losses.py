"""Every loss with every kind of data: trained for real where it suits, refused by name where it does not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tests.suited_losses import SUITED_LOSSES

import assay
from assay.compose.listing import list_options
from assay.errors import ConfigError

if TYPE_CHECKING:
    from tests.conftest import Train, Trained

LOSSES = (*("cross_entropy", "focal", "ldam", "kl_div", "bce_with_logits", "triplet", "mse", "l1", "huber"),)
HINTS = {
    "multiclass": "loss=cross_entropy metrics=multiclass",
    "binary": "loss=bce_with_logits metrics=binary",
    "multilabel": "loss=bce_with_logits metrics=multilabel",
    "regression": "loss=mse metrics=regression",
}
PROJECT = Path(__file__).parent / "project"


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Multilabel arrays whose labels are signs of linear functions of the inputs."""
    path = tmp_path_factory.mktemp("labels") / "labels.npz"
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((240, 12)).astype(np.float32)
    targets = (inputs @ draw.standard_normal((12, 4)) > 0.5).astype(np.int64)
    np.savez(path, inputs=inputs, targets=targets)
    return path


@pytest.fixture(scope="module")
def data(labels: Path) -> dict[str, list[str]]:
    return {
        "multiclass": ["data=iris"],
        "binary": ["data=breast_cancer"],
        "multilabel": ["data=arrays", f"data.source.root={labels}", "data.batch_size=32"],
        "regression": ["data=diabetes"],
    }


def test_every_option_is_trained() -> None:
    elsewhere = {"dice", "dice_cross_entropy", "multitask", "nt_xent"}  # tests/loss, tests/task
    assert {option.name for option in list_options("loss")} - elsewhere == set(LOSSES)
    assert {option.name for option in list_options("metrics")} == {
        *(m for suits in SUITED_LOSSES.values() for m in suits.values()),
        *("language_modelling", "multitask", "segmentation"),
        # Of tasks without targets: test_from_inputs.py
        *("reconstruction", "image_reconstruction", "none"),
    }


@pytest.mark.always(
    "focal-multiclass",
    "bce_with_logits-multilabel",
    "huber-regression",
    "ldam-regression",
    "mse-multilabel",
    "triplet-multiclass",
)
@pytest.mark.parametrize("task", SUITED_LOSSES)
@pytest.mark.parametrize("loss", LOSSES)
def test_task_and_loss(train: Train, data: dict[str, list[str]], task: str, loss: str) -> None:
    model = {"triplet": "mlp"}.get(loss, "mlp" if task == "regression" else "linear")
    lr = 0.003 if loss == "ldam" else 0.03  # ldam scales the logits by 30
    overrides = [*data[task], f"loss={loss}", f"model={model}", "scheduler=none", f"optimizer.lr={lr}"]
    if loss not in SUITED_LOSSES[task]:
        with pytest.raises(ConfigError) as caught:
            train(*overrides, config_dir=PROJECT / "conf")
        assert caught.value.key == "loss"
        assert HINTS[task] in caught.value.hint
        assert "\n" not in caught.value.message
        return
    metrics = SUITED_LOSSES[task][loss]
    epochs, keeps = "trainer.max_epochs=3", "callbacks=[last_checkpoint]"
    run = train(*overrides, f"metrics={metrics}", epochs, keeps, config_dir=PROJECT / "conf")
    assert run.moved()
    check_loaded(run)
    losses = run.column("train/loss")
    assert losses[-1] < 0.97 * losses[0], losses
    named = set(run.config.metrics.eval.metrics) - {"confusion_matrix"}
    assert {name for name in run.result.metrics if name.startswith("test/")} == {
        f"test/{n}" for n in {"loss", *named}
    }
    assert all(math.isfinite(value) for value in run.result.metrics.values())
    if "confusion_matrix" in run.config.metrics.eval.metrics:
        matrix = np.array(run.record["matrices"]["test/confusion_matrix"])
        labels = run.config.spec.num_classes if task == "multilabel" else 1
        assert matrix.sum() == run.config.spec.num_test * labels


def check_loaded(run: Trained) -> None:
    """A predictor has the run's loss, whatever that has learnt, and makes of outputs what the run made."""
    with torch.no_grad():
        for value in run.module.loss.state_dict().values():
            value.add_(0.25)
    kept = torch.load(path := run.run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    kept["state_dict"] = run.module.state_dict()
    torch.save(kept, path)
    path.with_name("last.ckpt.sha256").unlink()
    predictor = assay.load(run.run_dir, checkpoint="last", map_location="cpu")
    [(inputs, targets), *_] = run.datamodule.test_dataloader()
    module = run.module.eval()
    with torch.no_grad():
        expected = module.test_step((inputs, targets), 0)["predictions"]
        found = predictor.postprocess(predictor.model(inputs))
    found = found[:, 1] if expected.ndim < found.ndim else found
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_balanced_weights_of_the_data_reach_the_loss(train: Train) -> None:
    run = train("data=breast_cancer", "loss.pos_weight=balanced", "trainer.limit_train_batches=1")
    negatives, positives = run.config.spec.class_counts
    weight = run.module.loss.pos_weight
    assert float(weight) == pytest.approx(negatives / positives)
