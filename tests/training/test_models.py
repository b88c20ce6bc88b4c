"""Every model trains for real on images of 8×8 pixels; the big ones for two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.compose.listing import list_options

if TYPE_CHECKING:
    from tests.conftest import Train

# lr, batches of 64, and the share of the first loss that the last must stay below
LEARNS = {
    "linear": (0.02, 19, 0.6),
    "mlp": (0.003, 19, 0.6),
    "table_mlp": (0.003, 19, 0.7),
    "lenet": (0.01, 19, 0.8),
    "small_cnn": (0.005, 12, 0.8),
    "resnet18": (0.001, 6, 0.8),
    "vit": (0.001, 12, 0.95),
}
BY_NAME = ("timm", "torchvision")
"""Trained in test_fine_tuning.py."""
STEPS = ("resnet34", "resnet50", "convnext_tiny")


def test_every_option_is_trained() -> None:
    of_texts = {
        "bag_of_embeddings",
        "gpt",
        "hf_text",
        "text_transformer",
    }  # test_texts.py, tests/task, tests/model
    of_masks = {"deeplab", "deeplab_mobilenet", "fcn", "unet"}  # tests/model
    without_targets = {"autoencoder", "conv_autoencoder", "simclr"}  # test_from_inputs.py
    every = {option.name for option in list_options("model")}
    assert every - of_texts - of_masks - without_targets == {*LEARNS, *STEPS, *BY_NAME}


@pytest.mark.always("linear", "small_cnn", "vit")
@pytest.mark.parametrize("model", LEARNS)
def test_loss_falls(train: Train, model: str) -> None:
    lr, batches, share = LEARNS[model]
    run = train(
        *("data=digits", f"model={model}", "scheduler=none", f"optimizer.lr={lr}"),
        *(
            f"trainer.limit_train_batches={batches}",
            "trainer.limit_test_batches=1",
            "data.eval_batch_size=64",
        ),
        "trainer.limit_val_batches=1",
        keep_passes=True,
    )
    assert run.moved()
    assert run.watch.falls(share), run.watch.losses
    first = run.watch.passes[0]
    assert tuple(first.inputs.shape) == (32, 1, 8, 8)
    assert tuple(first.output.shape) == (32, 10)
    # The model trains in training mode and is judged in eval mode.
    assert [one.training for one in run.watch.passes] == [True] * batches + [False] * 2
    every = list(run.module.parameters())
    assert run.record["model"] == {
        "parameters": sum(p.numel() for p in every),
        "trainable_parameters": sum(p.numel() for p in every),
    }
