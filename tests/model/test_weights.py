"""Weights from files, folders and servers."""

from __future__ import annotations

import hashlib
import io
import logging
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torchvision.models import resnet18  # type: ignore[import-untyped]  # torchvision ships no types

from assay.errors import ConfigError
from assay.model.hf_folder import find_weights_file, find_weights_folder, read_network_settings
from assay.model.pretrained_weights import Published, load_pretrained_weights
from assay.model.torchvision import Torchvision

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    with pytest.raises(ValueError, match=r"do not fit: .*Missing key.*\"1\.running_mean\".*;"):
        load_pretrained_weights(network(), save(path, without))
    without = {key: value for key, value in state.items() if not key.startswith("3.")}
    with pytest.raises(ValueError, match=r"Missing key.*\"3\.weight\", \"3\.bias\""):
        load_pretrained_weights(network(), save(path, without))
    with pytest.raises(ValueError, match=r"Unexpected key.*\"9\.weight\""):
        load_pretrained_weights(network(), save(path, {**state, "9.weight": torch.ones(1)}))
    with pytest.raises(ValueError, match=r"size mismatch for 0\.weight.*0\.bias"):
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
    with pytest.raises(ValueError, match="entries that are not tensors: epoch"):
        load_pretrained_weights(network(), save(tmp_path / "weights.pt", {"epoch": 3}))


def test_on_the_meta_device_the_names_are_judged_all_the_same(tmp_path: Path) -> None:
    path = save(tmp_path / "weights.pt", network().state_dict())
    with torch.device("meta"):
        load_pretrained_weights(network(), path)
        with pytest.raises(ValueError, match="size mismatch"):
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


def test_without_network_it_says_which_file_to_put_where(cache: Path) -> None:
    with pytest.raises(ValueError, match="cannot be downloaded") as error:
        Published("http://127.0.0.1:1/net.pth", "net.pth", "00", 3.0).fetch()
    assert f"put the file at {cache / 'net.pth'}" in str(error.value)
    assert not list(cache.iterdir())


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
