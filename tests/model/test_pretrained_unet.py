"""A U-Net with an encoder of timm, against the libraries that it is made of."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
import timm
import torch

pytest.importorskip("segmentation_models_pytorch", reason="extra pretrained")

from assay.errors import ConfigError
from assay.layer_depth import head_names
from assay.model.pretrained_unet import PretrainedUNet

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train

SMALL = (32, 16, 8)
DIGITS = ("task=segmentation", "data=digits_segmentation")


@pytest.mark.parametrize(
    "name", ["test_efficientnet", "test_resnet", "convnext_atto", "mobilenetv3_small_050", "regnetx_002"]
)
def test_the_encoder_computes_what_the_classifier_of_the_weights_does(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    stock = timm.create_model(name)
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    model = PretrainedUNet(name, [3, 64, 64], 4, weights=str(tmp_path / "weights.pth")).eval()
    images = torch.randn(2, 3, 64, 64)
    theirs = timm.create_model(
        name, features_only=True, pretrained=True,
        pretrained_cfg_overlay={"file": str(tmp_path / "weights.pth")},
    ).eval()  # fmt: skip
    torch.testing.assert_close(model.network.encoder(images)[-1], theirs(images)[-1])
    assert model.new_layers == ()
    assert model(images).shape == (2, 4, 64, 64)


def test_weights_for_three_channels_are_fitted_to_one() -> None:
    model = PretrainedUNet("tf_efficientnet_lite0", [1, 64, 64], 2, weights="bundled").eval()
    colour = PretrainedUNet("tf_efficientnet_lite0", [3, 64, 64], 2, weights="bundled").eval()
    grey = torch.randn(1, 1, 64, 64)
    torch.testing.assert_close(
        model.network.encoder(grey)[-1], colour.network.encoder(grey.repeat(1, 3, 1, 1))[-1]
    )


@pytest.mark.parametrize("size", [(64, 64), (33, 70), (1, 50), (1, 1), (7, 350)])
def test_pictures_of_any_size(size: tuple[int, int]) -> None:
    model = PretrainedUNet("test_efficientnet", [3, *size], 3, decoder_channels=SMALL)
    assert model(torch.randn(2, 3, *size)).shape == (2, 3, *size)


def test_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: Train) -> None:
    for name in ("hf-hub:timm/resnet18", "/home/x", "resnet500"):
        with pytest.raises(ValueError, match="is not a network of timm"):
            PretrainedUNet(name, [3, 64, 64], 2)
    with pytest.raises(ValueError, match=r"vit_tiny_patch16_224 cannot be the encoder of a U-Net"):
        PretrainedUNet("vit_tiny_patch16_224", [3, 224, 224], 2)
    with pytest.raises(ValueError, match=r"decoder_channels=2: expected a number in \[3, 5\]"):
        PretrainedUNet("test_resnet", [3, 64, 64], 2, decoder_channels=[16, 8])
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "other.pth")
    with pytest.raises(ValueError, match="do not fit"):
        PretrainedUNet("test_efficientnet", [3, 64, 64], 2, weights=str(tmp_path / "other.pth"))
    monkeypatch.setitem(sys.modules, "segmentation_models_pytorch", None)
    with pytest.raises(ConfigError, match="segmentation") as error:
        train(*DIGITS, "model=pretrained_unet")
    assert error.value.hint == "pip install 'assay[pretrained]'"


def test_trains_the_decoder_alone(train: Train) -> None:
    run = train(
        *DIGITS, "model=pretrained_unet", "model.name=test_efficientnet",
        "model.weights=null", "model.decoder_channels=[32,16,8]", "finetune=head",
        "trainer.max_epochs=1", "trainer.limit_train_batches=4",
    )  # fmt: skip
    model = run.module.model
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    assert trained
    assert all(name.startswith(head_names(model)) for name in trained)
    assert run.result.metrics["test/mean_iou"] > 0
