"""Images that the rows of a table name: each with the pixels and the target of its own row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from tests.command import typed

from assay.data.image.image_table import ImageTable
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.data.core.data_module import DataModule

NUM_ROWS = 48
FORMS = {
    "as they lie": lambda name: f"{name}.png",
    "without a suffix": lambda name: name,
    "in capital letters": lambda name: name,
    "as Windows writes them": lambda name: f"{name}.png".replace("/", "\\"),
    "absolute": lambda name: str(Path("photos", f"{name}.png").resolve()),
}


def write_pictures(folder: Path) -> pd.DataFrame:
    """Pictures whose brightness is the row's number, and a table of them in another order."""
    photos = folder / "photos"
    (photos / "a b").mkdir(parents=True)
    numbers = np.random.default_rng(0).permutation(NUM_ROWS)
    names = [f"a b/{number:04d}" if number % 2 else f"{number:04d}" for number in numbers]
    for name, number in zip(names, numbers, strict=True):
        Image.new("RGB", (8, 6), (int(number),) * 3).save(photos / f"{name}.png")
    frame = pd.DataFrame({"file": names, "bright": numbers * 2.5, "half": np.where(numbers % 3, "x", "y")})
    frame["tags"] = np.where(numbers % 2, "odd", "even") + np.where(numbers % 3, "", ";third")
    frame["patient"] = numbers // 4
    frame.to_csv(folder / "labels.csv", index=False)
    return frame


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    return write_pictures(tmp_path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures, their table, and a run on them."""
    folder = tmp_path_factory.mktemp("my data")
    write_pictures(folder)
    typed(
        *("train", "data=image_table", "data.source.path=labels.csv", "data.source.image=file"),
        *("data.source.root=photos", "data.source.target=half", "data.source.positive=x", "device=cpu"),
        *("model=linear", "augment=none", "trainer.max_epochs=2", "baseline=none", "callbacks=[checkpoint]"),
        "hydra.run.dir=run",
        folder=folder,
    )
    return folder


def read(path: str = "labels.csv", target: Any = "bright", **options: Any) -> tuple[ImageTable, Any]:
    source = ImageTable(path, "file", target, **{"root": "photos", **options})
    return source, source.read()["all"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("in_memory", [True, False])
def test_each_image_has_the_target_of_its_row(form: str, in_memory: bool, table: pd.DataFrame) -> None:
    table["file"] = table.file.map(FORMS[form])
    if form == "in capital letters":
        for path in list(Path("photos").rglob("*.png")):
            path.rename(path.with_suffix(".PNG"))
    table.to_csv("labels.csv", index=False)
    source, samples = read(in_memory=in_memory)
    assert source.task == "regression"
    if in_memory:
        seen = samples.inputs[:, 0, 0, 0].tolist()
    else:
        seen = [int(samples.inputs[index][0][0, 0, 0]) for index in range(len(samples))]
        streamed = torch.stack([samples.inputs[index][1] for index in range(len(samples))])
        assert streamed.equal(samples.targets)
    np.testing.assert_array_equal(samples.targets[:, 0], np.array(seen) * 2.5)
    np.testing.assert_array_equal(samples.targets[:, 0], table.bright)
    assert list(samples.names) == table.file.tolist()


@pytest.mark.parametrize(
    ("target", "task", "names"),
    [
        ("half", "binary", ("x", "y")),
        (["half", "bright"], "multitask", ("half=x", "half=y", "bright")),
        ("tags", "multilabel", ("even", "odd", "third")),
    ],
)
def test_targets_are_those_of_a_table(
    target: Any, task: str, names: tuple[str, ...], table: pd.DataFrame
) -> None:
    options = {"label_separator": ";"} if task == "multilabel" else {}
    source, samples = read(target=target, **options)
    assert (source.task, source.class_names) == (task, names)
    if task == "multilabel":
        np.testing.assert_array_equal(samples.targets, table.tags.str.get_dummies(";"))
    elif task == "binary":
        np.testing.assert_array_equal(samples.targets, table.half == "y")


def test_rows_and_files_that_are_missing_are_left_out_and_named(table: pd.DataFrame) -> None:
    whole = table.copy()
    table.loc[3, "file"] = None
    table.loc[5, "half"] = None
    table.loc[7, "file"] = "nowhere.jpg"
    Path("photos", f"{table.file[9]}.png").write_bytes(b"no image")
    table.to_csv("labels.csv", index=False)
    source, samples = read(target="half", on_bad="auto", in_memory=True)
    kept = whole.drop([3, 5, 7, 9])
    np.testing.assert_array_equal(samples.inputs[:, 0, 0, 0], kept.bright / 2.5)
    np.testing.assert_array_equal(samples.targets, kept.half == "y")
    said = " ".join(source.notes)
    assert "1 row of 48 without a target is left out" in said
    assert "1 row of 47 with no image left out" in said
    assert "nowhere.jpg (no such file)" in said
    assert table.file[9] in said
    with pytest.raises(DataError, match="2 of 46 images cannot be used"):
        read(target="half", on_bad="error")


def test_each_row_counts_that_names_a_missing_or_broken_file(table: pd.DataFrame) -> None:
    table.loc[:19, "file"] = "nowhere.jpg"
    table.loc[20:24, "file"] = table.file[25]
    Path("photos", f"{table.file[25]}.png").write_bytes(b"no image")
    table.to_csv("labels.csv", index=False)
    said = f"nowhere.jpg \\(no such file\\), {table.file[25]} \\(it is not an image\\)"
    with pytest.raises(DataError, match=f"26 of 48 images cannot be used: {said}"):
        read(on_bad="auto")
    source, samples = read(on_bad="skip", in_memory=True)
    assert "26 of 48 images" in " ".join(source.notes)
    np.testing.assert_array_equal(samples.targets[:, 0], table.bright[26:])


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_numbers_name_images(table: pd.DataFrame, suffix: str, gap: bool) -> None:
    for path in list(Path("photos").rglob("*.png")):
        path.rename(f"photos/{int(path.stem)}.png")
    table["file"] = table.file.str[-4:].astype(int)
    if gap:
        table["file"] = table.file.astype(float)
        table.loc[3, "file"] = None
    file = f"numbers.{suffix}"
    getattr(table, {"csv": "to_csv", "parquet": "to_parquet", "xlsx": "to_excel"}[suffix])(file, index=False)
    source, samples = read(file, in_memory=True)
    there = table.dropna()
    np.testing.assert_array_equal(samples.inputs[:, 0, 0, 0], there.bright / 2.5)
    np.testing.assert_array_equal(samples.targets[:, 0], there.bright)
    assert ("1 row of 48 with no image left out" in " ".join(source.notes)) == gap


@pytest.mark.parametrize("split", [{}, {"group": "patient"}])
def test_another_table_may_lack_the_column_of_groups(
    table: pd.DataFrame, data_module: Callable[..., DataModule], split: dict[str, str]
) -> None:
    table.iloc[::4].drop(columns="patient").to_csv("test.csv", index=False)
    table["patient"] = [f"patient {number}" for number in table["patient"]]
    table.to_csv("labels.csv", index=False)
    source = ImageTable("labels.csv", "file", "half", root="photos", test_path="test.csv")
    data = data_module(source, split={"val": 0.25, "test": 0.25, **split})
    data.setup()
    held_out, trained = (table["patient"].iloc[data.splits.rows[subset]] for subset in ("val", "train"))
    assert set(held_out).isdisjoint(trained) == bool(split)
    assert data.spec.num_test == NUM_ROWS // 4


def test_groups_of_a_column_stay_together(table: pd.DataFrame) -> None:
    check = ("check", "data=image_table", "data.source.path=labels.csv", "data.source.image=file", "--json")
    more = ("data.source.root=photos", "data.source.target=half")
    document = json.loads(typed(*check, *more, 'data.split.group="([0-9]+)[0-9]$"').output)
    assert document["spec"]["task"] == "binary"
    source = ImageTable("labels.csv", "file", "half", root="photos")
    source.split_columns = {"data.split.group": "patient"}
    samples = source.read()["all"]
    np.testing.assert_array_equal(samples.split_values["patient"], table.patient)


# how a command ends where the config is wrong, and where the data is not what it says
MISTAKES: dict[tuple[str, ...], tuple[int, str]] = {
    ("data.source.root=.",): (1, "data.source.root=FOLDER, which the names are relative to"),
    ("data.source.image=fil",): (1, "did you mean 'file'?"),
    ("data.source.image=half",): (2, "expected a column other than the target"),
    ("data.source.image=bright",): (1, "none of the images that column 'bright' names lies there"),
    ("data.split.group=patien",): (1, "did you mean 'patient'?"),
    ("data.source.image=???",): (2, "columns: file, bright, half, tags, patient"),
    ("data.source.target=null",): (2, "data.source.target: expected str | Sequence[str], got null"),
}


@pytest.mark.parametrize("words", MISTAKES)
def test_mistakes_say_what_to_type(words: tuple[str, ...]) -> None:
    code, message = MISTAKES[words]
    said = typed(
        *("check", "data=image_table", "data.source.path=labels.csv", "data.source.image=file"),
        *("data.source.target=half", "data.source.root=photos", *words),
        code=code,
    ).output
    assert message in " ".join(said.split())


def test_a_table_or_a_flat_folder_says_which_source_reads_it(table: pd.DataFrame) -> None:
    table["file"] += ".png"
    table.to_csv("labels.csv", index=False)
    said = typed("check", "data=table", "data.source.path=labels.csv", "data.source.target=half").output
    assert "data=image_table data.source.image=file" in " ".join(said.split())
    said = typed("check", "data=image_folder", "data.source.root=photos/a b", code=1).output
    assert "data=image_table" in said


def test_a_run_learns_and_scores_another_table(
    table: pd.DataFrame, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    test = pd.read_parquet("run/predictions.parquet")
    np.testing.assert_array_equal(test.target, test.key.map(table.set_index("file").half) == "x")
    # of one class alone, which keeps its place beside the other
    new = table[table.half == "y"]
    new.assign(file=new.file.where(new.file != new.file.iloc[2], "nowhere")).to_csv("bad.csv", index=False)
    notes = json.loads(typed("eval", "run", "data.source.path=bad.csv", "--json").output)["notes"]
    assert any(f"1 of {len(new)} images cannot be used: nowhere" in note for note in notes)
    for path in Path("photos").rglob("*.png"):
        large = Path("large", path.relative_to("photos"))
        large.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).resize((16, 12)).save(large)
    again = ("eval", "run", "data.source.path=bad.csv", "data.source.root=large")
    assert "data.source.image_size=[6,8] scales images" in " ".join(typed(*again, code=1).output.split())
    typed(*again, "data.source.image_size=[6,8]")
    new.to_csv("new.csv", index=False)
    typed("predict", "run", "photos", "--out", "out.csv")
    predicted = pd.read_csv("out.csv").prediction.eq("x")
    document = json.loads(typed("eval", "run", "data.source.path=new.csv", "--json").output)
    assert document["num_samples"] == (table.half == "y").sum()
    of_new = table.set_index("file").half.eq("y")
    names = pd.read_csv("out.csv").input.str.removeprefix("photos/").str.removesuffix(".png")
    right = ~predicted[names.map(of_new)]
    assert document["metrics"]["all/accuracy"] == pytest.approx(right.mean())


def test_predicts_the_pictures_that_another_table_names(
    table: pd.DataFrame, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trained)
    typed("predict", "run", "photos", "--out", "all.csv")
    of_file = pd.read_csv("all.csv").set_index("input")["probability x"]
    # in the folder of the table, which is another one, or else in that of the training data
    new = tmp_path / "new"
    new.mkdir()
    Image.open("photos/0000.png").save(new / "fresh.png")
    table.file.head(3).to_frame().assign(other=1).to_csv(new / "list.csv", index=False)
    with (new / "list.csv").open("a") as file:
        file.write("fresh,2\nnowhere.png,3\n,4\n")
    typed("predict", "run", str(new / "list.csv"), "--out", "out.csv")
    out = pd.read_csv("out.csv")
    assert list(out.row) == [0, 1, 2, 3, 4, 5]
    expected = [*(of_file[f"photos/{name}.png"] for name in table.file.head(3)), of_file["photos/0000.png"]]
    np.testing.assert_allclose(out["probability x"].head(4), expected, rtol=1e-5)
    assert out.error.isna().tolist() == [True] * 4 + [False] * 2
    assert out.error[5] == "the row names no picture"
    assert out.input[5] == str(new / "list.csv")
    assert "nowhere.png" in out.input[4]
    pd.DataFrame({"name": ["fresh"]}).to_csv(new / "other.csv", index=False)
    assert "no column 'file'" in typed("predict", "run", str(new / "other.csv"), code=1).output
