"""Weights that a library publishes, from a server on this machine."""

from __future__ import annotations

import hashlib
import io
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
import torch

from assay.model.pretrained_weights import Published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
    with pytest.raises(ValueError, match="are not what was published: invalid hash value"):
        Published(server[0], "net.pth", "00000000").fetch()
    assert not list(cache.iterdir())
    (cache / "net.pth").write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"net\.pth is damaged or something else.*remove it"):
        Published(server[0], "net.pth", server[1]).fetch()


def test_without_network_it_says_which_file_to_put_where(cache: Path) -> None:
    with pytest.raises(ValueError, match="cannot be downloaded") as error:
        Published("http://127.0.0.1:1/net.pth", "net.pth", "00", 3.0).fetch()
    assert f"put the file at {cache / 'net.pth'}" in str(error.value)
    assert not list(cache.iterdir())
