"""Decoded pictures that jobs share: the same numbers as without, whatever happens to the files."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.command import documented, typed
from tests.mounting import room_for
from torchvision.datasets import ImageFolder as Reference  # type: ignore[import-untyped]  # torchvision ships no types
from torchvision.transforms.functional import pil_to_tensor  # type: ignore[import-untyped]  # torchvision ships no types

from assay.data.core.samples import Samples
from assay.data.image import image_cache
from assay.data.image.image_cache import list_cached
from assay.data.image.image_folder import ImageFolder
from assay.errors import ConfigError

if TYPE_CHECKING:
    from assay.data.core.samples import Samples

COUNT = 60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    draws = np.random.default_rng(0)
    for number in range(COUNT):
        path = tmp_path / "photos" / "abc"[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (9, 7, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def read(root: Path, **options: Any) -> Samples:
    return ImageFolder(str(root), **options).read()["all"]


def expected(root: Path) -> torch.Tensor:
    return torch.stack([pil_to_tensor(image) for image, _ in Reference(str(root))])


def test_the_second_job_reads_no_picture(root: Path, cache: Path, reads: list[str]) -> None:
    first = read(root)
    assert len(reads) == COUNT
    again = read(root)
    assert len(reads) == COUNT
    for samples in (first, again):
        assert torch.equal(samples.inputs, expected(root))
    assert first.digest() == again.digest()
    assert (first.names, first.hashes) == (again.names, again.hashes)
    for samples in (first, again):
        samples.inputs.zero_()  # a job's own pages
    assert torch.equal(read(root).inputs, expected(root))
    assert torch.equal(read(root).inputs, expected(root))
    assert first.digest() == read(root, in_memory=False).digest()


def test_a_worker_that_is_not_forked_gets_them(root: Path, cache: Path) -> None:
    for samples in (read(root), read(root)):
        handed_on = pickle.loads(bytes(ForkingPickler.dumps(samples.inputs)))  # noqa: S301 - written here
        assert torch.equal(handed_on, expected(root))


def test_however_a_folder_is_named_it_is_decoded_once(
    root: Path, cache: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (root.parent / "link").symlink_to(root)
    monkeypatch.chdir(root)
    for name in (root, Path("../photos"), Path("../link"), root.parent / "link", Path()):
        assert torch.equal(read(name).inputs, expected(root))
    assert len(reads) == COUNT


def test_names_that_are_no_text(tmp_path: Path, root: Path, cache: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.copytree(root, odd)
    (odd / "a" / "0.png").rename(Path(os.fsdecode(os.fsencode(odd / "a") + b"/\xff.png")))
    for _ in range(2):
        assert sorted(map(int, read(odd).inputs.sum((1, 2, 3)))) == sorted(
            map(int, expected(root).sum((1, 2, 3)))
        )
    assert len(list_cached()) == 1
    assert read(odd, in_memory=False).digest() == read(odd).digest()
    typed("cache")


def test_sets_of_several_sizes_and_missing_files(root: Path, cache: Path, reads: list[str]) -> None:
    (root / "a" / "gone.png").symlink_to(root / "nowhere.png")
    for _ in range(2):
        assert torch.equal(read(root, on_bad="skip").inputs, expected_without(root, "gone.png"))
    assert len(reads) == 1 + COUNT, "all are tried once"
    (root / "a" / "gone.png").unlink()
    Image.fromarray(np.zeros((5, 5, 3), np.uint8)).save(root / "c" / "9999.png")
    reads.clear()
    for _ in range(2):
        samples = read(root)
        assert not samples.in_memory
        for row, (path, target) in enumerate(Reference(str(root)).samples):
            image, label = samples[row]
            assert torch.equal(image, pil_to_tensor(Image.open(path)))
            assert label == target
    assert len(reads) == COUNT + 1, "these are kept too"
    assert "61 of several sizes (RGB)" in typed("cache").stdout


def expected_without(root: Path, name: str) -> torch.Tensor:
    images = (pil_to_tensor(Image.open(path)) for path, _ in Reference(str(root)).samples if name not in path)
    return torch.stack(list(images))


def test_a_lock_that_is_a_link_is_not_followed(root: Path, cache: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    cache.mkdir(parents=True)
    (cache / f".{os.getuid()}.lock").symlink_to(victim)
    assert torch.equal(read(root).inputs, expected(root))
    assert victim.read_text() == "precious"


def test_other_pictures_or_another_size_are_decoded_anew(root: Path, cache: Path, reads: list[str]) -> None:
    path, extra = root / "a" / "0.png", root / "b" / "new.png"
    state = path.stat()

    def change() -> None:
        content = bytearray(path.read_bytes())
        Image.fromarray(np.full((9, 7, 3), 5, np.uint8)).save(path, compress_level=0)
        path.write_bytes(path.read_bytes().ljust(len(content), b"\0"))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))

    read(root)
    for step in (change, lambda: shutil.copy(path, extra)):
        reads.clear()
        step()
        assert torch.equal(read(root).inputs, expected(root))
        assert len(reads) >= COUNT
    extra.unlink()
    assert torch.equal(read(root).inputs, expected(root))
    assert read(root, image_size=[4, 4]).inputs.shape[2:] == (4, 4)
    assert read(root, mode="GRAY").inputs.shape[1] == 1
    assert torch.equal(read(root).inputs, expected(root))


def test_a_picture_that_was_mended_is_used(root: Path, cache: Path, reads: list[str]) -> None:
    path, whole = root / "a" / "0.png", (root / "a" / "0.png").read_bytes()
    path.write_bytes(b"hello")
    assert len(read(root, on_bad="auto")) == COUNT - 1
    reads.clear()
    assert len(read(root, on_bad="auto")) == COUNT - 1
    assert not reads, "it is tried again once it has changed"
    path.write_bytes(whole)
    assert torch.equal(read(root, on_bad="auto").inputs, expected(root))


def test_a_damaged_file_is_made_anew(root: Path, cache: Path, reads: list[str]) -> None:
    read(root)
    [file] = cache.glob("*.pixels")
    whole, draws = file.read_bytes(), random.Random(0)
    flipped = []
    end = whole.index(b'"looks"')
    places = [0, len(whole) - 1, *(draws.randrange(len(whole)) for _ in range(15))]
    places += [draws.randrange(end, len(whole)) for _ in range(25)]
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << draws.randrange(8)
        flipped.append(bytes(changed))
    cut = [whole[: draws.randrange(len(whole))] for _ in range(10)]
    for content in (*flipped, *cut, b"", whole + b"\0", whole[8:16] + whole[:8] + whole[16:], whole * 2):
        file.write_bytes(content)
        assert torch.equal(read(root).inputs, expected(root))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_another_users_file_is_not_used(root: Path, cache: Path, reads: list[str]) -> None:
    read(root)
    [file] = cache.glob("*.pixels")
    os.chown(file, 12345, 12345)
    reads.clear()
    read(root)
    assert len(reads) == COUNT


def test_files_that_may_still_change_are_not_kept(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_cache, "_SETTLED", 3600.0)
    assert torch.equal(read(root).inputs, expected(root))
    assert not list_cached()
    assert not list(cache.glob("*.pixels*"))


def test_a_cache_that_cannot_be_written_costs_a_line(root: Path, cache: Path, tmp_path: Path) -> None:
    def check(note: str) -> None:
        source = ImageFolder(str(root))
        samples: Any = source.read()["all"]
        assert torch.equal(samples.inputs, expected(root))
        [said] = source.notes
        assert "decoded images are not kept for the next job: " in said
        assert note in said

    with room_for(1000):
        check("File too large")
    assert not [file for file in cache.iterdir() if file.suffix != ".lock"]
    shutil.rmtree(tmp_path / "cache")
    (tmp_path / "cache").touch()
    check("cache")


def test_jobs_that_start_together_decode_once(root: Path, cache: Path, reads: list[str]) -> None:
    with ThreadPoolExecutor(4) as jobs:
        results = list(jobs.map(lambda _: read(root), range(4)))
    assert len(reads) == COUNT
    for samples in results:
        assert torch.equal(samples.inputs, expected(root))


def test_what_was_used_last_stays(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    for side in (16, 17, 18):
        read(root, image_size=[side, side])
        [newest, *_] = list_cached()
        os.utime(newest.file, (side, side))
    first, second, third = (cached.num_bytes for cached in reversed(list_cached()))
    monkeypatch.setenv("ASSAY_CACHE_GB", str((second + third + 100_000) / 1e9))
    read(root, image_size=[18, 18])
    os.utime(list_cached()[0].file, (19, 19))
    monkeypatch.setenv("ASSAY_CACHE_GB", str((first + third + 100_000) / 1e9))
    read(root, image_size=[15, 15])
    assert [cached.size for cached in list_cached()] == [(15, 15), (18, 18), (17, 17)][: len(list_cached())]
    assert (18, 18) in [cached.size for cached in list_cached()]
    monkeypatch.setenv("ASSAY_CACHE_GB", "1e-6")
    reads.clear()
    read(root)
    assert len(reads) == COUNT, "larger than the cache may be: not kept"
    for wrong in ("much", "nan", "-1"):
        monkeypatch.setenv("ASSAY_CACHE_GB", wrong)
        with pytest.raises(ConfigError, match=f"expected a number of gigabytes, got '{wrong}'"):
            read(root)


def test_it_is_listed_and_cleared_while_a_job_reads(root: Path, cache: Path) -> None:
    read(root)
    mapped = read(root)
    assert f"{root}: 60 of 9×7 (RGB)" in typed("cache").stdout
    (cache / f".{'0' * 32}.pixels.0123456789ab.tmp").touch()
    _, document = documented("cache", "clear")
    assert [file["num_images"] for file in document["files"]] == [COUNT]
    assert [path.suffix for path in cache.iterdir()] == [".lock"]
    assert torch.equal(mapped.inputs, expected(root))
    assert typed("cache", "ls").stdout.count("\n") == 1


@pytest.mark.long
def test_whenever_it_is_killed_nothing_wrong_is_kept(root: Path, cache: Path) -> None:
    right, draws, kept = expected(root), random.Random(0), 0
    begin = time.monotonic()
    read(root)
    seconds = time.monotonic() - begin
    for _ in range(50):
        shutil.rmtree(cache)
        process = os.fork()
        if process == 0:
            torch.set_num_threads(1)
            read(root)
            os._exit(0)
        time.sleep(draws.uniform(0.0, 1.5 * seconds))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        kept += len(list_cached())
        assert torch.equal(read(root).inputs, right)
        assert not list(cache.glob(".*.tmp")), "what was left goes"
    assert 0 < kept < 50, "some were killed before the end and some after it"
