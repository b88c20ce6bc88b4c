from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torchvision.models import resnet18  # type: ignore[import-untyped]  # torchvision ships no types

from assay.model.pretrained_weights import load_pretrained_weights
from assay.model.torchvision import Torchvision


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


def test_leaves_out_a_head_of_another_shape_and_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, target = network(num_classes=7), network(num_classes=5)
    head = tensor(target, "3.weight").clone()
    with caplog.at_level(logging.INFO, "assay"):
        load_pretrained_weights(target, save(tmp_path / "weights.pt", source.state_dict()))
    assert torch.equal(tensor(target, "3.weight"), head)
    assert torch.equal(tensor(target, "0.weight"), tensor(source, "0.weight"))
    assert caplog.messages[-1].endswith("left out: 3.bias, 3.weight")


def test_loads_a_head_of_the_same_shape(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, target = network(), network()
    with caplog.at_level(logging.INFO, "assay"):
        load_pretrained_weights(target, save(tmp_path / "weights.pt", source.state_dict()))
    assert torch.equal(tensor(target, "3.weight"), tensor(source, "3.weight"))
    assert caplog.messages[-1].endswith("9 tensors loaded, left out: nothing")


def test_leaves_out_an_adapted_stem_but_no_other(tmp_path: Path) -> None:
    source = resnet18(num_classes=10)
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
    with pytest.raises(ValueError, match=r"do not fit Sequential: missing: 1\.running_mean;"):
        load_pretrained_weights(network(), save(path, without))
    without = {key: value for key, value in state.items() if not key.startswith("3.")}
    with pytest.raises(ValueError, match=r"missing: 3\.weight, 3\.bias;"):
        load_pretrained_weights(network(), save(path, without))
    with pytest.raises(ValueError, match=r"unexpected: 9\.weight;"):
        load_pretrained_weights(network(), save(path, {**state, "9.weight": torch.ones(1)}))
    with pytest.raises(
        ValueError, match=r"of another shape: 0\.weight \[4, 3, 3, 3\] for \[8, 3, 3, 3\], 0\.bias"
    ):
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
    with pytest.raises(ValueError, match="no weights that can be read safely"):
        load_pretrained_weights(network(), path)
    assert not (tmp_path / "hit").exists()


class Gigabytes:
    """Made by a number in the file: 1 kB on disk."""

    def __reduce__(self) -> tuple[Any, ...]:
        return bytearray, (10**10,)


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_either_format_are_taken(tmp_path: Path, zipped: bool) -> None:
    torch.manual_seed(0)
    source, network = resnet18(), resnet18()
    source.half()
    content = {"state_dict": source.state_dict(keep_vars=True), "epoch": 3, "lr": 0.1, "names": ["a", None]}
    torch.save(content, tmp_path / "net.pth", _use_new_zipfile_serialization=zipped)
    load_pretrained_weights(network, str(tmp_path / "net.pth"))
    for own, given in zip(network.parameters(), source.parameters(), strict=True):
        assert torch.equal(own.half(), given)


def test_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is neither a file nor a run"):
        load_pretrained_weights(network(), str(tmp_path / "none.pt"))
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(ValueError, match="no weights that can be read safely"):
        load_pretrained_weights(network(), str(tmp_path / "text.pt"))
    (tmp_path / "empty.pt").touch()
    with pytest.raises(ValueError, match="no weights that can be read safely"):
        load_pretrained_weights(network(), str(tmp_path / "empty.pt"))
    contents: tuple[Any, ...] = (torch.ones(3), {}, [1])
    for content in contents:
        with pytest.raises(ValueError, match="holds no state dict"):
            load_pretrained_weights(network(), save(tmp_path / "weights.pt", content))
    with pytest.raises(ValueError, match="entries that are no tensors: epoch;"):
        load_pretrained_weights(network(), save(tmp_path / "weights.pt", {"epoch": 3}))


def test_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.safetensors"
    path.touch()
    monkeypatch.setitem(__import__("sys").modules, "safetensors.torch", None)
    with pytest.raises(ValueError, match="pip install safetensors"):
        load_pretrained_weights(network(), str(path))


def test_safetensors_that_is_installed(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    source, target = network(), network()
    safetensors.save_file(source.state_dict(), tmp_path / "weights.safetensors")
    load_pretrained_weights(target, str(tmp_path / "weights.safetensors"))
    assert torch.equal(tensor(target, "3.weight"), tensor(source, "3.weight"))


def test_fake_tensors_load_too(tmp_path: Path) -> None:
    path = save(tmp_path / "weights.pt", network().state_dict())
    with FakeTensorMode():
        target = network()
        load_pretrained_weights(target, path)
        assert target(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


def test_on_the_meta_device_the_names_are_judged_all_the_same(tmp_path: Path) -> None:
    path = save(tmp_path / "weights.pt", network().state_dict())
    with torch.device("meta"):
        load_pretrained_weights(network(), path)
        with pytest.raises(ValueError, match="of another shape"):
            load_pretrained_weights(network(width=8), path)
