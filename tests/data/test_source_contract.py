"""What every source promises: the built-in ones, those of the examples, and any class with `read`."""

from __future__ import annotations

import importlib
import pickle
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from assay.data.core.arrays import Arrays
from assay.data.core.custom import Custom
from assay.data.core.samples import Samples
from assay.data.core.source import Source, with_defaults
from assay.data.core.source_info import BUILT_IN
from assay.data.core.synthetic import Synthetic
from assay.data.image.digits import Digits
from assay.data.image.digits_segmentation import DigitsSegmentation
from assay.data.image.image_folder import ImageFolder
from assay.data.image.image_table import ImageTable
from assay.data.image.segmentation_folder import SegmentationFolder
from assay.data.shards.image_shards import ImageShards
from assay.data.shards.table_shards import TableShards
from assay.data.table.bundled import Bundled
from assay.data.table.table import Table
from assay.data.text.stdlib_docs import TOPICS, StdlibDocs
from assay.data.text.text_files import TextFiles
from assay.data.text.text_table import TextTable
from assay.testing import check_source

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES = Path(__file__).parents[2] / "examples"
DRAW = np.random.default_rng(0)


def pictures(root: Path, *folders: str) -> str:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        for number in range(12):
            pixels = DRAW.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / folder / f"{number}.png")
    return str(root)


def masks(root: Path) -> str:
    pictures(root, "images")
    (root / "masks").mkdir()
    for number in range(12):
        Image.fromarray(DRAW.integers(0, 3, (8, 8), dtype=np.uint8)).save(root / "masks" / f"{number}.png")
    return str(root)


def frame(count: int) -> pd.DataFrame:
    rows = pd.DataFrame(DRAW.normal(size=(count, 2)), columns=["a", "b"])
    rows["colour"] = DRAW.choice(["red", "green"], count)
    rows["text"] = [f"{colour} wine number {number}" for number, colour in enumerate(rows["colour"])]
    rows["label"] = np.where(rows["a"] > 0, "yes", "no")
    return rows


def table(root: Path) -> str:
    frame(60).to_csv(root / "t.csv", index=False)
    return str(root / "t.csv")


def shards(root: Path) -> str:
    (root / "shards").mkdir()
    for number in range(2):
        frame(200).to_parquet(root / "shards" / f"{number}.parquet", index=False)
    return str(root / "shards")


def image_shards(root: Path) -> str:
    folder = Path(pictures(root / "pictures", "cat", "dog"))
    (root / "shards").mkdir()
    for number in range(2):
        rows = [
            {"image": path.read_bytes(), "label": path.parent.name} for path in sorted(folder.rglob("*.png"))
        ]
        pd.DataFrame(rows).to_parquet(root / "shards" / f"{number}.parquet", index=False)
    return str(root / "shards")


def arrays(root: Path) -> str:
    np.savez(root / "data.npz", inputs=DRAW.normal(size=(40, 3)), targets=np.arange(40) % 3)
    return str(root / "data.npz")


def image_table(root: Path) -> str:
    names = [path.relative_to(root) for path in sorted(Path(pictures(root / "p", "cat", "dog")).rglob("*.*"))]
    rows = [f"{name},{name.parent.name}" for name in names]
    (root / "labels.csv").write_text("\n".join(["file,label", *rows]))
    return str(root / "labels.csv")


def texts(root: Path) -> str:
    for name in "abcdefghijkl":
        (root / f"{name}.txt").write_text(f"{name} is a letter; " * 40)
    return str(root)


def from_path(make: type, write: Callable[[Path], str], argument: str, **arguments: Any) -> Any:
    return lambda root: (make, {argument: write(root), **arguments})


SOURCES: dict[str, Callable[[Path], tuple[Any, dict[str, Any]]]] = {
    "arrays": from_path(Arrays, arrays, "root"),
    "image_folder": from_path(ImageFolder, lambda root: pictures(root / "p", "cat", "dog", "owl"), "root"),
    "image_folder, read one by one": from_path(
        ImageFolder, lambda root: pictures(root / "p", "cat", "dog"), "root", in_memory=False
    ),
    "image_table": from_path(ImageTable, image_table, "path", image="file", target="label"),
    "segmentation_folder": from_path(SegmentationFolder, masks, "root"),
    "image_shards": from_path(ImageShards, image_shards, "path"),
    "table_shards": from_path(TableShards, shards, "path", target="label"),
    "table": from_path(Table, table, "path", target="label", exclude=["text"]),
    "text_table": from_path(TextTable, table, "path", target="label", text="text"),
    "text_files": from_path(TextFiles, texts, "root", context_length=16),
    "stdlib_docs": lambda _: (StdlibDocs, {}),
    "bundled": lambda _: (Bundled, {"name": "wine"}),
    "digits": lambda _: (Digits, {}),
    "digits_segmentation": lambda _: (DigitsSegmentation, {"num_samples": (20, 8, 8)}),
    "synthetic": lambda _: (
        Synthetic,
        {"task": "multiclass", "num_samples": 40, "input_shape": [4], "num_classes": 3},
    ),
    "custom": lambda _: (Custom, {"dataset": TensorDataset(torch.randn(40, 3), torch.arange(40) % 2)}),
}


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One module of Python's library for each topic of `StdlibDocs`."""
    library = Path(sysconfig.get_paths()["stdlib"])
    (tmp_path / "library").mkdir()
    for names in TOPICS.values():
        module = next(name for name in names.split() if (library / f"{name}.py").is_file())
        (tmp_path / "library" / f"{module}.py").symlink_to(library / f"{module}.py")
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path / "library")})


@pytest.mark.usefixtures("small_library")
@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_what_it_declares(name: str, cache: Path, tmp_path: Path) -> None:
    make, arguments = SOURCES[name](tmp_path)
    check_source(make(**arguments), arguments)


def test_each_source_that_declares_something_is_here(tmp_path: Path) -> None:
    """Those that download are in `test_sources`."""
    made = []
    for name, write in SOURCES.items():
        (tmp_path / name).mkdir()
        make, _ = write(tmp_path / name)
        made.append(f"{make.__module__}.{make.__qualname__}")
    assert BUILT_IN.keys() - {*made} == {"assay.data.image.torchvision_images.TorchvisionImages"}


def test_the_sources_of_the_examples_are_what_they_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "my_project"))
    monkeypatch.syspath_prepend(str(EXAMPLES / "digit_gan"))
    grades: Any = importlib.import_module("my_project.diabetes_grades")
    check_source(grades.DiabetesGrades(4), {"num_grades": 4})
    gan: Any = importlib.import_module("digit_gan")
    check_source(gan.NoiseAndDigits(8))


class Plain:
    """A source that inherits from nothing and has what a source must have alone."""

    task = "multiclass"
    class_names = ("a", "b")

    def read(self) -> dict[str, Samples]:
        return {"all": Samples(torch.arange(60.0).reshape(20, 3), torch.arange(20) % 2)}


def test_a_source_need_not_inherit() -> None:
    check_source(Plain())
    declared = {name for name in vars(Source) if not name.startswith("_")}
    assert declared <= set(dir(with_defaults(Plain())))


class PlainSource:
    """At the top of a module, as a project's own source is."""

    def read(self) -> dict[str, Samples]:
        return {}


def test_a_plain_source_with_its_defaults_can_be_handed_to_a_worker() -> None:
    given = with_defaults(PlainSource())
    back = pickle.loads(pickle.dumps(given))  # noqa: S301 - as a worker gets it
    assert vars(back).keys() == vars(given).keys()
    given.split_columns = {**given.split_columns, "data.split.group": "patient"}
    assert not with_defaults(PlainSource()).split_columns
