"""What is counted is what pandas and numpy count, and what will hurt is said."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.command import documented, typed

from assay.data.core.data_module import DataModule
from assay.data.core.samples import Samples
from assay.data.table.table import Table
from assay.terminal import Console
from assay_report.data_page import (
    ColumnSurvey,
    SubsetSurvey,
    Survey,
    Values,
    print_survey,
    raw_tables,
    survey_data,
)
from assay_report.page import Picture, Pictures, make_thumbnail, sample_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping


RNG = np.random.default_rng(0)


def surveyed(source: Any, **split: Any) -> tuple[Survey, DataModule]:
    datamodule = DataModule(
        source,
        batch_size=16,
        eval_batch_size=16,
        split={"val": 0.1, "test": 0.2, "seed": 0, **split},
        transform={"train": [], "eval": [], "normalize": "data"},
    )
    datamodule.setup()
    return survey_data(datamodule, "some", raw_tables(datamodule)), datamodule


class Given:
    """Splits as they are given."""

    task, class_names = "multiclass", ("a", "b")

    def __init__(self, parts: Mapping[str, Samples]) -> None:
        self._parts = parts

    def read(self) -> Mapping[str, Samples]:
        return self._parts


def test_copies_are_counted_within_parts_and_between_them() -> None:
    inputs = torch.arange(40.0).reshape(20, 2)
    train = Samples(inputs[[*range(12), 0, 0, 1]], torch.tensor([0, 1] * 6 + [1, 0, 1]))
    test = Samples(inputs[[12, 13, 3, 3]], torch.tensor([0, 1, 0, 1]))
    found, _ = surveyed(Given({"train": train, "val": test, "test": test}))
    assert [(one.num_equal, one.in_training) for one in found.subsets] == [(3, None), (1, 2), (1, 2)]
    [copies, more, conflicting] = found.warnings
    assert "2 of 4 in val" in copies
    assert more == "3 of 15 training samples are copies of others"
    assert conflicting == "3 training samples have equal inputs and different classes"


def test_what_will_hurt_is_said() -> None:
    inputs = torch.rand(500, 3)
    inputs[:, 1] = 2
    targets = torch.tensor([0] * 496 + [1] * 4)
    found, _ = surveyed(Given({"all": Samples(inputs, targets, columns=("x", "same", "y"))}))
    assert "fewer than 5 training samples: b" in found.warnings
    assert any(one.startswith("the largest class has ") for one in found.warnings)
    assert "a single value in all training rows: same" in found.warnings


def test_a_table_as_it_stands_in_its_file(tmp_path: Path) -> None:
    count = 120
    table = pd.DataFrame(
        {
            "size": RNG.normal(5, 2, count).round(3),
            "city": RNG.choice(["Ulm", "Bonn"], count, p=[0.7, 0.3]),
            "day": pd.date_range("2024-02-01", periods=count, freq="D").strftime("%d.%m.%Y"),
        }
    )
    table["price"] = table["size"] * 3 + RNG.normal(0, 1, count)
    table.loc[table.index % 3 > 0, "size"] = None
    table.to_csv(tmp_path / "rows.csv", index=False)
    found, datamodule = surveyed(Table(str(tmp_path / "rows.csv"), "price"))
    train = table.iloc[datamodule.subset("train").rows.numpy()]
    size, city, day = found.columns
    assert (size.num_missing, city.num_missing) == (train["size"].isna().sum(), 0)
    assert dict(city.frequent) == train["city"].value_counts().to_dict()
    days = pd.to_datetime(train["day"], format="%d.%m.%Y")
    assert tuple(day.span) == (f"{days.min():%Y-%m-%d}", f"{days.max():%Y-%m-%d}")
    assert [one.kind for one in found.columns] == ["number", "category", "date"]
    prices = found.subsets[0].targets[0]
    assert (prices.low, prices.high) == pytest.approx((train["price"].min(), train["price"].max()))
    assert list(found.target_names) == ["price"]
    assert "more than half of the training rows have no value: size" in found.warnings


def test_many_classes_and_columns_are_readable_at_60_columns() -> None:
    counts = list(range(1, 31))
    subsets = [
        SubsetSurvey(name, 465, counts, num_equal=None, in_training=None) for name in ("train", "val", "test")
    ]
    columns = [
        ColumnSurvey(
            f"a column with quite a long name {at}", "number", at, 9, Values(-1e6, 0.5, 1e6, (1, 0, 8))
        )
        for at in range(25)
    ]
    names = [f"class \x1b[31m{at}" for at in range(30)]
    survey = Survey(
        "many", "multiclass", "30 classes", (25,), names, (), subsets, columns, (), ("one [sentence",)
    )
    file = io.StringIO()
    print_survey(Console(file=file, width=60), survey)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 60
    assert "\x1b" not in file.getvalue()
    assert sum("more" in line for line in lines) == 2
    unread = [line.split()[:5] for line in lines if line.split()[:2] in (["train", "465"], ["val", "465"])]
    assert unread == [["train", "465", "?"], ["val", "465", "?", "?"]], "training is not compared with itself"
    assert lines[-1] == "warning: one [sentence"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")


def test_pictures_before_and_after_augmentation() -> None:
    told = typed("data", "data=digits", "augment=flip_crop", "--out", "page.html").output
    lines = told.splitlines()
    assert lines[0] == "digits  multiclass, 10 classes, inputs 1×8×8"
    assert max(map(len, lines[:-2])) <= 60
    page = Path("page.html").read_text()
    assert len(page) < 1_500_000
    assert "http-equiv" in page
    assert not re.search(r'(src|href)="http', page)
    titles = re.findall(r"(?:train|val|test), (?:as they are|after data\.transform\.train and augment)", page)
    assert len(set(titles)) == 4
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", page)
    assert len(pictures) == 4 * 24
    assert pictures[:24] != pictures[24:48]
    assert [path.name for path in Path().iterdir()] == ["page.html"]


def test_photos_are_shown_as_thumbnails() -> None:
    draw = np.random.default_rng(0)
    for index in range(60):
        photo = Image.fromarray(load_sample_images().images[index % 2])
        left, top = int(draw.integers(0, 640 - 320)), int(draw.integers(0, 427 - 240))
        path = Path("photos") / ("china", "flower")[index % 2] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        photo.crop((left, top, left + 320, top + 240)).save(path)
    typed("data", "data=image_folder", "data.source.root=photos", "--out", "page.html")
    page = Path("page.html").read_text()
    assert len(page) < 3_000_000
    assert "too large" not in page
    pictures = re.findall(r"data:image/jpeg;base64,([^\"]+)", page)
    assert len(pictures) >= 24
    for picture in pictures:
        with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
            assert max(image.size) == 128


@pytest.mark.parametrize("in_memory", ["true", "false"])
def test_pictures_stand_beside_their_masks(tmp_path: Path, in_memory: str) -> None:
    masks = RNG.choice(np.array([0, 2, 255], np.uint8), (12, 20, 30))
    for number, mask in enumerate(masks):
        for kind, values in (("images", RNG.integers(0, 256, (20, 30, 3), np.uint8)), ("masks", mask)):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.fromarray(values).save(tmp_path / kind / f"{number}.png")
    words = ("data=segmentation_folder", f"data.source.root={tmp_path}", f"data.source.in_memory={in_memory}")
    names = "data.source.class_names=[sky,ship,sea]"
    typed("data", *words, names, f"--out={tmp_path}/data.html")
    page = (tmp_path / "data.html").read_text()
    pictures = re.findall(r"data:image/png;base64,([^\"]+)", page)
    assert len(pictures) == 12
    assert page.count("sky, sea") == 12
    with Image.open(io.BytesIO(base64.b64decode(pictures[0]))) as image:
        whole = np.asarray(image.convert("RGB")).astype(int)
    height, width = whole.shape[0], (whole.shape[1] - 1) // 2
    assert 2.9 < width / height * 2 < 3.2
    assert (whole[:, :width] != whole[:, -width:]).any()


def test_a_picture_of_masks_is_a_strip_and_a_small_picture_remains_as_it_is() -> None:
    def png(width: int, height: int) -> bytes:
        file = io.BytesIO()
        Image.effect_noise((width, height), 50).save(file, "PNG")
        return file.getvalue()

    strip = png(3 * 256, 200)
    with Image.open(io.BytesIO(make_thumbnail(strip, is_wide=True))) as image:
        assert (image.format, image.size) == ("JPEG", (400, 104))
    small = png(40, 40)
    assert make_thumbnail(small) == small
    [block] = sample_blocks("worst", "", [Picture(strip, "cat", "a"), Picture(small, "dog", "b")])
    assert isinstance(block, Pictures)
    assert [picture.source[:15] for picture in block.pictures] == ["data:image/jpeg", "data:image/png;"]
    assert sample_blocks("worst", "", []) == []


def test_rows_of_a_table_and_the_same_as_a_document() -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"größe": draw.normal(size=80), "<b>": draw.choice(["x", "&y"], 80)})
    frame["kind"] = np.where(frame["größe"] > 0, "a", "b")
    frame.to_csv("rows.csv", sep=";", decimal=",", index=False)
    words = ["data=table", "data.source.path=rows.csv", "data.source.target=kind"]
    _, document = documented("data", *words, "--out", "page.html")
    assert (document["kind"], document["page"]) == ("data", "page.html")
    train = document["subsets"][0]
    assert sum(train["class_counts"]) == train["num_samples"]
    assert [one["name"] for one in document["columns"]] == ["größe", "<b>"]
    page = Path("page.html").read_text()
    assert "<b>" not in page.partition("<body")[2]
    assert "&lt;b&gt;" in page
    assert any("separator ';' and decimal ','" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["data=table"], 2, "data.source.path=…"),
        (["data=iris", "--out", "mine.csv"], 2, "expected a name that ends in .html"),
        (["data=iris", "--out", "mine.html"], 2, "refusing to overwrite"),
        (["data=iris", "--out", "no/such/page.html"], 0, "page"),
    ],
)
def test_what_is_refused(words: list[str], code: int, says: str) -> None:
    Path("mine.html").write_text("x,y\n1,2\n")
    assert says in typed("data", *words, code=code).output
    assert Path("mine.html").read_text() == "x,y\n1,2\n"
