from __future__ import annotations

import io

from assay.report.data_page import print_survey
from assay.report.survey import ColumnSurvey, SubsetSurvey, Survey, Values
from assay.terminal import Console


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
    assert lines[-1] == "warning: one [sentence"
