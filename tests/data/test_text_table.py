from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from assay.data.text_table import TextTable
from assay.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame(
    {"words": [f"word{row} and more" for row in range(12)], "kind": ["a", "b"] * 6, "who": list("uvwx") * 3}
)


def source(folder: Path, frame: pd.DataFrame, **options: Any) -> TextTable:
    frame.to_csv(path := folder / "texts.csv", index=False)
    return TextTable(str(path), "words", "kind", **options)


def test_rows_without_a_text_are_refused_or_left_out_and_counted(tmp_path: Path) -> None:
    frame = FRAME.copy()
    frame.loc[[3, 7], "words"] = [None, "  "]
    with pytest.raises(
        DataError, match=r"2 rows of 12 of the whole data without text in 'words', first row 3"
    ):
        source(tmp_path, frame).read()
    dropping = source(tmp_path, frame, missing="drop")
    dropping.split_columns = {"group": "who"}
    whole = dropping.read()["all"]
    kept = [row for row in range(12) if row not in (3, 7)]
    assert whole.names == [str(row) for row in kept]
    assert whole.raw["words"].tolist() == FRAME["words"].iloc[kept].tolist()
    assert whole.targets.tolist() == [row % 2 for row in kept]
    assert whole.split_values["who"].tolist() == FRAME["who"].iloc[kept].tolist()
    assert any("missing=drop: 2 rows of 12 without a text" in note for note in dropping.notes)


def test_the_hint_about_a_missing_label_can_be_typed(tmp_path: Path) -> None:
    frame = FRAME.assign(kind=FRAME["kind"].where(FRAME.index > 0))
    with pytest.raises(DataError, match="no finite value in row 0") as told:
        source(tmp_path, frame).read()
    assert "data.source.missing=drop" in (told.value.hint or "")
    assert len(source(tmp_path, frame, missing="drop").read()["all"]) == 11


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_a_column_of_nothing_or_of_one_text_teaches_nothing(tmp_path: Path, missing: str) -> None:
    with pytest.raises(DataError, match="without text"):
        source(tmp_path, FRAME.assign(words=" "), missing=missing).read()
    with pytest.raises(DataError, match="all 12 texts are equal"):
        source(tmp_path, FRAME.assign(words="same"), missing=missing).read()
    with pytest.raises(DataError, match="holds numbers, not texts"):
        source(tmp_path, FRAME.assign(words=range(12)), missing=missing).read()
