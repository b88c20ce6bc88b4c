"""A DataModule over any samples, with small defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from assay.data.core.data_module import DataModule
from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.data.image import decode as decoding
from assay.data.image import image_cache
from assay.data.image.image_cache import read_bytes

if TYPE_CHECKING:
    from pathlib import Path

Given = Mapping[str, Samples]


class GivenSource(Source):
    """A source of samples made by the test."""

    def __init__(self, subsets: Given, task: str, class_names: tuple[str, ...]) -> None:
        self.subsets, self.task, self.class_names = subsets, task, class_names
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1

    def read(self) -> Given:
        return self.subsets


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The image files that were read."""
    paths: list[str] = []

    def note(path: str) -> bytes:
        paths.append(path)
        return read_bytes(path)

    for module in (image_cache, decoding):
        monkeypatch.setattr(module, "read_bytes", note)
    return paths


@pytest.fixture
def given_source() -> type[GivenSource]:
    return GivenSource


@pytest.fixture
def data_module() -> Callable[..., DataModule]:
    def build(source: Any, **options: Any) -> DataModule:
        transform = {"train": [], "eval": [], "normalize": None, **options.pop("transform", {})}
        split = {"val": 0.1, "test": 0.2, **options.pop("split", {})}
        settings = {"batch_size": 4, "eval_batch_size": 8, **options}
        return DataModule(source, split=split, transform=transform, **settings)

    return build


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache that keeps the few small files of these tests."""
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(image_cache, "_FEW", 0)
    monkeypatch.setattr(image_cache, "_SETTLED", -1e6)
    return tmp_path / "cache" / "images"
