"""`importances.json` of a run: how much its score falls when a column of the test is shuffled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from assay.errors import AssayError
from assay.figure import Bars, Figure
from assay.files.atomic import write_text
from assay.files.checksum import is_json_intact, seal_json
from assay.files.symlinks import IMPORTANCES, check_inside, read_whole
from assay_analysis.statistics import mean_of

if TYPE_CHECKING:
    from pathlib import Path

_MOST_SHOWN = 20


class Importances(msgspec.Struct, frozen=True):
    """What shuffling does to a score.

    Attributes:
        score: Its name; more is better.
        value: On the same rows before.
        num_rows: Of the test, that were shuffled.
        num_test: Rows of the test.
        columns: By the name of the column, how much the score fell in each repeat.
    """

    score: str
    value: float
    num_rows: int
    num_test: int
    columns: dict[str, list[float]]


def write_importances(run_dir: Path, importances: Importances) -> None:
    """Write them, whole or not at all."""
    text = json.dumps(msgspec.to_builtins(importances), indent=2)
    write_text(run_dir / IMPORTANCES, seal_json(text))


def read_importances(run_dir: Path) -> Importances | None:
    """Read them back; None where the run has none.

    Raises:
        AssayError: The file is damaged, or leads out of the run directory.
    """
    path = run_dir / IMPORTANCES
    if not path.is_file():
        return None
    check_inside(path, run_dir)
    content = read_whole(path)
    if not is_json_intact(content):
        raise AssayError(f"{path} has changed since the run wrote it")
    try:
        return msgspec.json.decode(content, type=Importances)
    except msgspec.DecodeError as error:
        raise AssayError(f"{path} cannot be read: {error}") from error


def draw_importances(importances: Importances) -> Figure | None:
    """A bar for each column, the most important first; None where there are no columns."""
    means = {name: mean_of(values) for name, values in importances.columns.items()}
    known = [(name, mean) for name, mean in means.items() if mean is not None]
    known.sort(key=lambda pair: -pair[1].mean)
    if not known:
        return None
    shown = known[:_MOST_SHOWN]
    repeats = shown[0][1].n
    caption = (
        f"How much the score falls from {importances.value:.3g} when the column is shuffled among "
        f"{importances.num_rows:,} of {importances.num_test:,} test rows: the mean of {repeats} shuffles and "
        "its 95 % interval (Student's t). Of columns that tell the same, each seems unimportant."
    )
    if len(known) > len(shown):
        caption += f" The {len(shown)} most important of {len(known):,} columns."
    bars = Bars(
        "",
        [name for name, _ in shown],
        [mean.mean for _, mean in shown],
        [mean.mean - (mean.half_width or 0.0) for _, mean in shown],
        [mean.mean + (mean.half_width or 0.0) for _, mean in shown],
    )
    return Figure(
        "importances",
        "Importance of columns",
        (bars,),
        "",
        f"fall of {importances.score}",
        is_wide=True,
        caption=caption,
    )
