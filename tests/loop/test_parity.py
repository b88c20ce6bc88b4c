"""A run with this project's loops is the one that Lightning's make, from wherever it is looked at."""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path

import lightning.pytorch.callbacks as lightning_callbacks
import pytest
from tests.loop.covering import Row, cover
from tests.loop.parity import ALLOWED, Outcome, differences, install_stock, run
from tests.loop.parity_axes import AXES, CALLBACKS, SHORT, make_case
from tests.loop.parity_refusals import possible, refused_rows

from assay.loop.fit_loop import install as install_ours

VALUES = {axis: list(values) for axis, values in AXES.items()}
CHUNKS = 24
STOPPED = {"SystemExit: 1", "SIGTERMException: "}
NOT_RUN = {
    "BaseFinetuning": "a base class; BackboneFinetuning is one",
    "BasePredictionWriter": "a base class",
    "Callback": "a base class; the recorder is one",
    "Checkpoint": "a base class",
    "ProgressBar": "a base class",
    "SpikeDetection": "a base class, whose check is left to those who derive from it",
}


def told_apart(row: Row, folder: Path) -> tuple[list[str], Outcome]:
    """In what the two runs of this case differ, and Lightning's."""
    stock = run(make_case(row), install_stock, folder / "run")
    return differences(stock, run(make_case(row), install_ours, folder / "run"), ALLOWED), stock


@functools.cache
def pairs() -> list[Row]:
    """Each pair in a run that is not cut short, then each pair with what cuts it short."""
    long = {
        axis: [one for one in values if one not in SHORT.get(axis, ())] for axis, values in VALUES.items()
    }
    uncut = cover({**long, "deed": ["none"]}, 2, possible)
    return uncut + cover({**long, "deed": long["deed"][1:]}, 2, possible, among="deed")


@pytest.mark.always(
    "assay non finite",
    "none",
    "early stopping in validation",
    "checkpoint, two",
    "swa",
    "accumulation scheduler",
    "rich bar",
    "lr monitor",
    "batch size finder",
    "assay ema",
)
@pytest.mark.parametrize("row", cover(VALUES, 1, possible), ids=lambda row: row["callbacks"])
def test_each_setting_somewhere(row: Row, tmp_path: Path) -> None:
    found, _ = told_apart(row, tmp_path)
    assert not found, f"{row}\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("axis", "value"), [(axis, value) for axis, values in VALUES.items() for value in values]
)
@pytest.mark.long
def test_each_setting_alone(axis: str, value: str, tmp_path: Path) -> None:
    found, stock = told_apart({axis: value}, tmp_path)
    assert not found, "\n".join(found)
    ends = {"failure": "ValueError: on purpose", "failure in validation": "OSError: on purpose"}
    ends |= {
        "interrupt": "SystemExit: 1",
        "sigterm": "SIGTERMException: ",
        "sigterm at the end": "SIGTERMException: ",
    }
    assert stock.end["error"] == ends.get(value)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_each_pair_of_settings_somewhere(chunk: int, tmp_path: Path) -> None:
    failed, ends = [], Counter[str]()
    for row in pairs()[chunk::CHUNKS]:
        found, stock = told_apart(row, tmp_path)
        ends[str(stock.end["error"])] += 1
        if found:
            failed.append(f"{row}\n" + "\n".join(found))
    assert not failed, "\n\n".join(failed)
    # What is refused shows nothing; what ends by what was done to it does.
    assert ends.keys() <= {"None", "ValueError: on purpose", "OSError: on purpose", *STOPPED}, ends


@pytest.mark.parametrize(
    ("row", "error"), [pytest.param(*one, id=", ".join(one[0].values())) for one in refused_rows()]
)
@pytest.mark.long
def test_what_is_refused_is_refused_alike(row: Row, error: str, tmp_path: Path) -> None:
    found, stock = told_apart(row, tmp_path)
    assert re.match(error, str(stock.end["error"]))
    assert not found, "\n".join(found)


def test_each_callback_of_lightning_is_run() -> None:
    cases = [make_case({"callbacks": name}) for name in CALLBACKS]
    made = {type(made(Path())).__name__ for case in cases for made in case.callbacks}
    assert not set(lightning_callbacks.__all__) - made - set(NOT_RUN)


def test_a_tuner_leaves_the_rows_of_a_validation(tmp_path: Path) -> None:
    row = {"callbacks": "batch size finder", "calls": "validate, fit", "observer": "none"}
    found, stock = told_apart(row, tmp_path)
    assert stock.end["metrics.csv"][1].startswith(",0,")
    assert not found, "\n".join(found)
