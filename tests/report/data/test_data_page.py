from __future__ import annotations

from assay.data.shown_samples import Shown
from assay.report.data_page import data_page
from assay.report.page import Note, Picture, Pictures, Table, render
from assay.report.survey import SubsetSurvey, Survey


def test_pictures_that_are_too_large_are_said_and_the_page_stays_small() -> None:
    subset = SubsetSurvey("train", 4, (2, 2))
    survey = Survey(
        "photos", "multiclass", "2 classes", (3, 9, 9), ("a", "b"), (), [subset], [], (), ("bad",)
    )
    small, large = Shown(b"x" * 100, None), Shown(b"x" * 900_000, None)
    samples = {"some": [("1", "a", small), ("2", "b", large)], "large": [("3", "a", large)]}
    samples |= {"rows": [("4", "a", Shown(None, {"x": 0.1234567, "text": "y" * 500}))]}
    page = data_page(survey, samples, ["data=photos"])
    pictures, too_large, rows = page.sections[-1].blocks
    assert isinstance(pictures, Pictures)
    assert isinstance(rows, Table)
    assert list(pictures.pictures) == [Picture(b"x" * 100, "a", "1")]
    assert pictures.caption == "1 pictures are too large for a page."
    assert isinstance(too_large, Note)
    assert rows.rows[0][2] == "0.123457"
    assert len(str(rows.rows[0][3])) == 201
    assert page.sections[0].blocks == [Note("bad", "warn")]
    assert len(render(page)) < 100_000
