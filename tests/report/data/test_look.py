"""`assay data`: a summary, a document and a page that needs no network; nothing else is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from assay.cli.app import app


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")


def said(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["data", *words])
    assert result.exit_code == code, result.output
    return result.output


def test_pictures_before_and_after_augmentation() -> None:
    told = said("data=digits", "augment=flip_crop", "--out", "page.html")
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


def test_rows_of_a_table_and_the_same_as_a_document() -> None:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"größe": draw.normal(size=80), "<b>": draw.choice(["x", "&y"], 80)})
    frame["kind"] = np.where(frame["größe"] > 0, "a", "b")
    frame.to_csv("rows.csv", sep=";", decimal=",", index=False)
    words = ["data=table", "data.source.path=rows.csv", "data.source.target=kind"]
    document = json.loads(CliRunner().invoke(app, ["data", *words, "--out", "page.html", "--json"]).stdout)
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
        (["data=irs"], 2, "did you mean"),
        (["data=iris", "data.split.val=2"], 2, "data.split.val"),
        (["data=table", "data.source.path=t.csv", "data.source.target=y"], 2, "no such file"),
        (["data=iris", "--out", "mine.csv"], 2, "refusing to replace it"),
        (["data=iris", "--out", "no/such/page.html"], 0, "page"),
    ],
)
def test_what_is_refused(words: list[str], code: int, says: str) -> None:
    Path("mine.csv").write_text("x,y\n1,2\n")
    assert says in said(*words, code=code)
    assert Path("mine.csv").read_text() == "x,y\n1,2\n"
