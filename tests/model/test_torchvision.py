from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torchvision.models as zoo  # type: ignore[import-untyped]  # torchvision ships no types
from torch import nn

from assay.layer_depth import head_names
from assay.model.torchvision import Torchvision

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ["resnet18", "squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v3_small", "mnasnet0_5"]


@pytest.mark.always
@pytest.mark.parametrize("name", zoo.list_models(module=zoo))
def test_every_classification_network_is_built_and_its_head_known(name: str) -> None:
    if name.startswith("regnet"):
        pytest.skip("computes with values while it is made, which the meta device has none of")
    with torch.device("meta"):
        model = Torchvision(name, [3, 224, 224], 7)
    head = model.get_submodule(head_names(model)[0])
    assert isinstance(head, nn.Linear | nn.Conv2d)
    assert 7 in (getattr(head, "out_features", 0), getattr(head, "out_channels", 0))


@pytest.mark.parametrize("name", SMALL)
def test_a_head_of_another_size_is_new_and_the_rest_as_published(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    stock = zoo.get_model(name)
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    model = Torchvision(name, [3, 96, 96], 5, weights=str(tmp_path / "weights.pth"))
    assert model.new_layers == model.head_names
    for key, value in model.network.state_dict().items():
        if not f"network.{key}".startswith(f"{model.head_names[0]}."):
            assert torch.equal(value, stock.state_dict()[key]), key
    assert model(torch.randn(2, 3, 96, 96)).shape == (2, 5)
    # With as many outputs the head is that of the file.
    same = Torchvision(name, [3, 96, 96], 1000, weights=str(tmp_path / "weights.pth"))
    assert same.new_layers == ()
    images = torch.randn(2, 3, 96, 96)
    assert torch.equal(same.eval()(images), stock.eval()(images))


def test_grey_images_get_what_equal_channels_would(tmp_path: Path) -> None:
    torch.manual_seed(0)
    stock = zoo.resnet18()
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    model = Torchvision("resnet18", [1, 96, 96], 1000, weights=str(tmp_path / "weights.pth")).eval()
    grey = torch.randn(2, 1, 96, 96)
    torch.testing.assert_close(model(grey), stock.eval()(grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)
    assert model.new_layers == ()


def test_auxiliary_heads_of_a_file_are_left_out(tmp_path: Path) -> None:
    stock = zoo.googlenet(init_weights=False)
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    model = Torchvision("googlenet", [3, 64, 64], 3, weights=str(tmp_path / "weights.pth"))
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 3)
    assert torch.equal(model.network.conv1.conv.weight, stock.conv1.conv.weight)  # type: ignore[union-attr, arg-type]  # they are there


def test_inceptions_inputs_are_those_after_torchvisions_own_transform() -> None:
    imagenet = zoo.GoogLeNet_Weights.DEFAULT.transforms()
    pixel = torch.tensor([0.1, 0.6, 0.9]).view(1, 3, 1, 1)
    as_published = (pixel - torch.tensor(imagenet.mean).view(3, 1, 1)) / torch.tensor(imagenet.std).view(
        3, 1, 1
    )
    seen = zoo.googlenet(init_weights=False, transform_input=True)._transform_input(as_published)
    ours = Torchvision.trained_on("googlenet", "DEFAULT")
    mean, std = torch.tensor(ours["mean"]).view(3, 1, 1), torch.tensor(ours["std"]).view(3, 1, 1)
    torch.testing.assert_close((pixel - mean) / std, seen)


def test_what_published_weights_were_trained_on() -> None:
    known = Torchvision.trained_on("efficientnet_v2_l", "DEFAULT")
    assert known["mean"] == (0.5, 0.5, 0.5)
    assert known["size"] == (480, 480)
    assert known["source"] == "torchvision's EfficientNet_V2_L_Weights.IMAGENET1K_V1"
    download = Torchvision.to_download("resnet50", "IMAGENET1K_V1")
    assert download is not None
    assert download.name == "resnet50-0676ba61.pth"
    assert download.digest == "0676ba61"
    assert download.megabytes == pytest.approx(97.8, abs=0.1)
    assert Torchvision.to_download("resnet50", "my_file.pth") is None


@pytest.mark.parametrize(
    "name", ["resnet500", "fcn_resnet50", "fasterrcnn_resnet50_fpn", "../resnet18", "r3d_18"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a classification network of torchvision"):
        Torchvision(name, [3, 32, 32], 2)
    with pytest.raises(ValueError, match=r"close to it: resnet50"):
        Torchvision("resnet500", [3, 32, 32], 2)


def test_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match=r"resnet18 has no such weights; it has IMAGENET1K_V1, and DEFAULT"):
        Torchvision("resnet18", [3, 32, 32], 2, weights="IMAGENET1K_V2")
    with pytest.raises(ValueError, match=r"takes images \[C,H,W\], the data has \[13\]; use model=mlp"):
        Torchvision("resnet18", [13], 2)
    with torch.device("meta"):  # nothing is downloaded to be checked
        Torchvision("resnet18", [3, 32, 32], 2, weights="DEFAULT")
