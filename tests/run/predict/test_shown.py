"""What of predictions is shown on a terminal."""

from __future__ import annotations

import io

from assay.run.predict.output_file import as_table
from assay.terminal import Console


def shown(rows: list[dict[str, object]]) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(as_table(list(rows[0]), rows))
    return out.getvalue()


def test_what_is_shown() -> None:
    rows: list[dict[str, object]] = [
        {
            "input": "[bold]a\x1b[31m_png",
            "row": None,
            "prediction": "<b>cat",
            "probability": 0.123456,
            "probability <b>cat": 0.123456,
            "error": None,
        },
        {
            **dict.fromkeys(("row", "prediction", "probability", "probability <b>cat")),
            "input": "b",
            "error": "it is empty",
        },
    ]
    lines = shown(rows).splitlines()
    assert lines[0].split() == ["input", "prediction", "probability", "error"]
    assert lines[1].split() == ["[bold]a\\x1b[31m_png", "<b>cat", "0.1235"]
    assert lines[2].split() == ["b", "it", "is", "empty"]


def test_the_probabilities_of_labels_are_shown() -> None:
    row: dict[str, object] = {"input": "a", "prediction": "odd;large", "probability odd": 0.75, "error": None}
    assert shown([row]).split() == ["input", "prediction", "probability", "odd", "a", "odd;large", "0.75"]


def test_many_columns_are_not_all_shown() -> None:
    row: dict[str, object] = {"input": "a", **{f"embedding_{at}": float(at) for at in range(500)}}
    assert len(shown([row]).splitlines()[0].split()) == 12
