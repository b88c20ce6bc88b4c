from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
import timm
import torch

from assay.model.timm import Timm

if TYPE_CHECKING:
    from pathlib import Path

VIT: dict[str, Any] = {"patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}


@pytest.mark.parametrize(
    "name",
    ["resnet10t", "test_efficientnet", "test_vit", "convnext_atto", "mobilenetv4_conv_small", "test_resnet"],
)
def test_a_head_of_another_size_is_new_and_the_rest_as_published(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    stock = timm.create_model(name)
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    side = 160
    model = Timm(name, [3, side, side], 5, weights=str(tmp_path / "weights.pth"))
    assert model.new_layers == model.head_names
    head = model.head_names[0].removeprefix("network.")
    for key, value in stock.state_dict().items():
        if not key.startswith(f"{head}."):
            assert torch.equal(model.network.state_dict()[key], value), key
    assert model(torch.randn(2, 3, side, side)).shape == (2, 5)


def test_a_vision_transformer_of_another_size_is_fitted_as_timm_does_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    stock = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=5, **VIT)
    path = tmp_path / "weights.safetensors"
    from safetensors.torch import save_file

    save_file(stock.state_dict(), path)
    model = Timm("vit_tiny_patch16_224", [1, 32, 32], 5, weights=str(path), options=VIT).eval()
    theirs = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, num_classes=5, in_chans=1, **VIT,
        pretrained=True, pretrained_cfg_overlay={"file": str(path), "num_classes": 5},
    ).eval()  # fmt: skip
    assert model.new_layers == ()
    images = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(model(images), theirs(images), rtol=1e-4, atol=1e-5)


def test_what_the_weights_were_trained_on() -> None:
    known = Timm.trained_on("vit_tiny_patch16_224", "DEFAULT")
    assert known["mean"] == (0.5, 0.5, 0.5)
    assert known["size"] == (224, 224)
    assert known["source"] == "timm's vit_tiny_patch16_224.augreg_in21k_ft_in1k"
    assert Timm.trained_on("resnet50.a1_in1k", "DEFAULT")["mean"] == (0.485, 0.456, 0.406)
    assert Timm.to_download("resnet50", "file.pth") is None


@pytest.mark.parametrize(
    "name",
    [
        "hf-hub:timm/resnet18",
        "hf_hub:timm/resnet18",
        "local-dir:/home/x",
        "/home/x",
        "timm/resnet18",
        "resnet500",
    ],
)
def test_names_that_are_not_timms_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is not a network of timm"):
        Timm(name, [3, 32, 32], 2)


def test_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"resnet18 has no weights with this tag; it has .*a1_in1k"):
        Timm("resnet18.of_mine", [3, 32, 32], 2)
    for key in ("pretrained", "pretrained_cfg", "checkpoint_path", "num_classes"):
        with pytest.raises(ValueError, match=rf"model\.options\.{key} is set by assay"):
            Timm("resnet10t", [3, 32, 32], 2, options={key: "x"})
    with pytest.raises(ValueError, match=r"takes images \[C,H,W\], the data has \[13\]"):
        Timm("resnet10t", [13], 2)
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"do not fit ResNet: missing: .*unexpected: a"):
        Timm("resnet10t", [3, 32, 32], 2, weights=str(tmp_path / "a.pth"))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModuleNotFoundError):
        Timm("resnet10t", [3, 32, 32], 2)
