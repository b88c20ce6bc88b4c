"""Money, percent and times of day, columns that decide the target, and numbers that 32 bits would lose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.data.tables import encoder_of, named_inputs, write_table

from assay.compose.compose import compose, job_config
from assay.data.core.data_module import DataModule
from assay.data.table.column import judge_rows
from assay.data.table.date import is_time, parse_times
from assay.data.table.features import ColumnOptions, choose_features
from assay.data.table.leak import find_hints, find_leak
from assay.data.table.number import find_amount, format_amount, parse_amounts
from assay.data.table.table import Table
from assay.data.table.table_encoder import TableEncoder
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READINGS: list[tuple[list[str], str, list[float]]] = [
    (["$29.93", "USD 49.70", "$1,200.00"], ".USD", [29.93, 49.7, 1200]),
    (["€35,625", "€999"], ".EUR", [35625, 999]),
    (["€ 35.625", "€ 1.200"], ",EUR", [35625, 1200]),
    (["6.165,00", "16.999,50"], ",", [6165, 16999.5]),
    (["$ 6,165.00", "$ 16,999.00"], ".USD", [6165, 16999]),
    (["12 %", "3.5%", "0"], ".%", [12, 3.5, 0]),
    (["12,345 %", "1,200 %"], ",%", [12.345, 1.2]),
    (["(12.50)", "7", "-3", "−4"], ".", [-12.5, 7, -3, -4]),
    (["($12.50)", "-$3", "$-4", "$7"], ".USD", [-12.5, -3, -4, 7]),
    (["1 234,50 €", "99 €"], ",EUR", [1234.5, 99]),
    (["CHF 1'234.50", "CHF 9"], ".CHF", [1234.5, 9]),
    (["₹1,23,456.70", "Rs. 12"], ".INR", [123456.7, 12]),
    (["1.234.567", "1.000"], ",", [1234567, 1000]),
    (["0,123", "5,000"], ",", [0.123, 5]),
    (["1e3", "2.5E-1"], ".", [1000, 0.25]),
    (["5 kg", "1,200 kg"], ".kg", [5, 1200]),
    (["1 year", "2.5 years", "3 Years"], ".year", [1, 2.5, 3]),
    (["18.6 km/h", "20 km/h"], ".km/h", [18.6, 20]),
]


@pytest.mark.parametrize(("texts", "form", "values"), READINGS, ids=lambda one: str(one)[:20])
def test_how_amounts_are_read(texts: list[str], form: str, values: list[float]) -> None:
    column = pd.Series([*texts, None], name="price")
    assert find_amount(column) == form
    assert parse_amounts(column, form).tolist()[:-1] == values
    assert np.isnan(parse_amounts(column, form).iloc[-1])


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["$5", "€7"], "mixes units: '$5' and '€7'"),
        (["5 %", "0.3"], "mixes units: '5 %' and '0.3'"),
        (["5 kg", "3000 g"], "mixes units: '5 kg' and '3000 g'"),
        (["$5", "free"], "looks like numbers, such as '$5', but holds 'free'"),
        (["1.5", "2,5", "3.5"], "but holds '2,5'"),
    ],
)
def test_amounts_that_are_not_written_in_one_way(texts: list[str], says: str) -> None:
    with pytest.raises(DataError) as refused:
        find_amount(pd.Series(texts, name="price"))
    assert says in refused.value.message


@given(
    numbers=st.lists(st.decimals(-(10**7), 10**7, places=2), min_size=2, max_size=30),
    unit=st.sampled_from(["{} €", "${}", "{}", "EUR {}", "{}%", "{} kr"]),
    style=st.sampled_from([",.", ".,", " ,", "'."]),
)
def test_numbers_are_read_as_they_were_written(numbers: list[Any], unit: str, style: str) -> None:
    """The reference writes with Python's own format."""
    texts = [unit.format(f"{one:,.2f}".translate(str.maketrans(",.", style))) for one in numbers]
    column = pd.Series(texts, name="price")
    read = parse_amounts(column, find_amount(column))
    assert read.tolist() == [float(one) for one in numbers]


@settings(max_examples=30)
@given(st.times())
def test_times_of_day_are_read_as_python_writes_them(time: Any) -> None:
    passed = time.hour * 3600 + time.minute * 60
    for text, seconds in {
        time.strftime("%H:%M"): passed,
        time.strftime("%I:%M %p"): passed,
        time.strftime("%I:%M:%S%p").lower(): passed + time.second,
        time.isoformat("seconds"): passed + time.second,
    }.items():
        assert is_time(text)
        read = parse_times(pd.Series([text, None]))
        assert (read[0] - pd.Timestamp(0)).total_seconds() == seconds
        assert pd.isna(read[1])


DRAW = np.random.default_rng(0)
ROWS = 300
SECONDS = DRAW.integers(0, 86_400, ROWS)
MONEY = DRAW.normal(500, 900, ROWS).round(2)
ORDERS = pd.DataFrame(
    {
        "x": DRAW.normal(size=ROWS),
        "price": [f"${one:,.2f}" if one >= 0 else f"(${-one:,.2f})" for one in MONEY],
        "share": [f"{one} %" for one in DRAW.integers(0, 100, ROWS)],
        "time": [f"{one // 3600:02}:{one % 3600 // 60:02}" for one in SECONDS],
        "zip": DRAW.choice(["01234", "00501", "90210", "60601"], ROWS),
        "ticks": 1.7e9 + DRAW.uniform(0, 500, ROWS),
        "y": DRAW.normal(size=ROWS),
    }
)


def read(path: Path, table: pd.DataFrame, **options: Any) -> tuple[Table, Any]:
    source = Table(write_table(table, path), options.pop("target", "y"), **options)
    return source, encoder_of(source)


def test_amounts_and_times_become_numbers(tmp_path: Path) -> None:
    """From each format of a file: `test_table_formats`."""
    table = ORDERS.copy()
    table.loc[:19, ["price", "time"]] = None
    source, encoder = read(tmp_path / "rows.csv", table)
    kinds = {column.name: (column.kind, getattr(column, "form", "")) for column in encoder.columns}
    assert kinds["price"] == ("number", ".USD")
    assert kinds["share"] == ("number", ".%")
    assert kinds["time"] == ("date", "time")
    assert kinds["zip"][0] == "category"
    assert "zip=01234" in encoder.feature_names
    inputs = named_inputs(encoder, source.read()["all"].raw).astype(float)
    np.testing.assert_allclose(inputs["price"][20:], MONEY[20:], rtol=1e-6)
    np.testing.assert_allclose(inputs["price"][:20], np.median(MONEY[20:]), rtol=1e-6)
    day = 2 * np.pi * (SECONDS // 60 * 60)[20:] / 86_400
    np.testing.assert_allclose(inputs["time, sine"][20:], np.sin(day), atol=1e-6)
    np.testing.assert_allclose(inputs["time, hours"][20:], day * 12 / np.pi, rtol=1e-6)
    assert inputs["price is missing"].tolist() == [1] * 20 + [0] * (ROWS - 20)
    again = TableEncoder.from_plain(json.loads(json.dumps(encoder.as_plain())))
    assert again.columns == encoder.columns
    assert any("'$" in note or "'($" in note for note in source.notes if "read as numbers" in note)


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("price", "€5", "'price' is '€5', not a number such as 12.5 USD"),
        ("price", "5,5", "'price' is '5,5', not a number"),
        ("share", 0.3, "'share' is '0.3', not a number such as 12.5 %"),
        ("time", "25:00", "'time' is '25:00', not a time of day such as 13:08"),
        ("price", "USD 7.5", ""),
        ("price", 7.5, ""),
        ("time", "1:08 PM", ""),
        ("zip", "99999", ""),
    ],
)
def test_new_rows_are_read_as_those_of_training(tmp_path: Path, column: str, value: Any, error: str) -> None:
    _, encoder = read(tmp_path / "rows.csv", ORDERS)
    row = ORDERS.iloc[:1].astype(object)
    row[column] = value
    judged = judge_rows(row, encoder.columns)
    assert judged.errors.get(0, "").startswith(error)
    assert bool(judged.errors) == bool(error)


@pytest.mark.parametrize(("prices", "value"), [(MONEY, "$1,234.50"), (np.abs(MONEY), "1.234,50 €")])
def test_a_target_of_money_is_a_number(tmp_path: Path, prices: Any, value: str) -> None:
    texts = [value] + [
        f"${one:,.2f}" if "$" in value else f"{one:,.2f} €".translate(str.maketrans(",.", ".,"))
        for one in prices[1:]
    ]
    source, encoder = read(tmp_path / "rows.csv", ORDERS.assign(y=texts))
    targets = source.read()["all"].targets
    assert source.task == "regression"
    np.testing.assert_allclose(
        targets[:, 0] if targets.ndim > 1 else targets, [1234.5, *prices[1:]], rtol=1e-6
    )
    assert any(f"the target y ({value!r} is 1234.5)" in note for note in source.notes)
    other = Table(str(tmp_path / "other.csv"), "y")
    ORDERS.assign(y=texts[0]).iloc[:3].to_csv(tmp_path / "other.csv", index=False)
    other.fitted = TableEncoder.from_plain(encoder.as_plain())
    assert other.read()["all"].targets.flatten().tolist() == [1234.5] * 3


def test_a_job_with_a_target_of_money_is_a_regression(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    ORDERS.assign(y=[f"${price:,.2f}" for price in MONEY]).to_csv(path, index=False)
    config = job_config(compose(["data=table", f"data.source.path={path}", "data.source.target=y"]))
    assert config.loss._target_ == "torch.nn.MSELoss"
    assert "r2" in config.metrics.eval.metrics


def test_problems_of_target_and_features_are_told_together(tmp_path: Path) -> None:
    table = ORDERS.assign(y=[*ORDERS["price"][1:], "€1"], share=[*ORDERS["share"][1:], "a lot"])
    with pytest.raises(DataError, match=r"'y' mixes units(.|\n)*'share' looks like numbers"):
        read(tmp_path / "rows.csv", table)


@pytest.mark.parametrize("offset", [0.0, 0.3, 1.7e9, -4e12])
@pytest.mark.parametrize("deviation", [1e-3, 150.0])
def test_large_numbers_keep_their_digits(tmp_path: Path, offset: float, deviation: float) -> None:
    values = offset + deviation * DRAW.normal(size=ROWS)
    path = tmp_path / "rows.csv"
    pd.DataFrame({"x": ORDERS["x"], "ticks": values, "y": ORDERS["y"]}).to_csv(path, index=False)
    transform: Any = {"train": [], "eval": [], "normalize": "data"}
    source = Table(str(path), "y")
    data = DataModule(
        source, batch_size=10, eval_batch_size=10, split={"val": 0.2, "test": 0.2}, transform=transform
    )
    data.setup()
    rows = data.splits.rows["train"]
    samples: Any = data.splits.data["train"]
    inputs, _ = data.prepare_batch(samples.inputs[rows], samples.targets[rows], torch.float32)
    exact = values[rows]
    expected = (exact - exact.mean()) / exact.std()
    tolerance = max(2e-4, 4 * np.spacing(abs(offset)) / deviation)
    np.testing.assert_allclose(inputs[:, 1].double(), expected, atol=tolerance)


LABEL = pd.Series(DRAW.choice(["no", "yes"], ROWS))
NUMBER = pd.Series(DRAW.normal(size=ROWS))
HINTS: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "finer": (lambda: LABEL + DRAW.choice(list("abc"), ROWS), lambda: LABEL, "each of its 6 values"),
    "finer numbers": (
        lambda: (LABEL == "yes") * 5 + DRAW.integers(0, 4, ROWS),
        lambda: LABEL,
        "each of its 8 values|passes 4",
    ),
    "threshold": (lambda: NUMBER, lambda: NUMBER > 0.4, "the target changes where it passes 0.4"),
    "a rare threshold": (lambda: NUMBER, lambda: NUMBER > 1.5, "the target changes where it passes 1."),
    "bands": (
        lambda: NUMBER,
        lambda: pd.cut(NUMBER, [-9, -1, 0.2, 1, 9], labels=list("abcd")).astype(str),
        "passes",
    ),
    "whole numbers": (lambda: SECONDS // 1000, lambda: SECONDS // 1000 >= 18, "passes 17.5"),
    "missing": (
        lambda: NUMBER.mask(LABEL == "yes"),
        lambda: LABEL,
        "missing exactly where the target is 'yes'",
    ),
    "present": (
        lambda: LABEL.mask(NUMBER > 0),
        lambda: (NUMBER > 0) * 1.0,
        "present exactly|missing exactly",
    ),
    "missing at 0": (
        lambda: NUMBER.mask(LABEL == "yes"),
        lambda: NUMBER.abs().mask(LABEL == "yes", 0),
        "missing exactly where the target is '0.0'",
    ),
}


@pytest.mark.parametrize("case", HINTS)
def test_columns_that_decide_the_target_are_named(case: str) -> None:
    feature, target, how = HINTS[case]
    frame = pd.DataFrame({"noise": DRAW.normal(size=ROWS), "x": feature(), "y": target()})
    hints = find_hints(frame, ["noise", "x"], "y")
    assert [*hints] == ["x"]
    assert any(one in hints["x"] for one in how.split("|"))
    (note,) = [
        one for one in choose_features(frame, ColumnOptions(["y"]), "rows.csv").notes if "read off" in one
    ]
    assert "'x'" in note
    assert "data.source.exclude=[x]" in note
    kept = choose_features(frame, ColumnOptions(["y"], keep=["x"]), "rows.csv")
    assert not any("read off" in note for note in kept.notes)


@pytest.mark.parametrize(
    "make", [np.exp, np.round, lambda target: -(target**3), lambda target: 1 / (target + 20)]
)
def test_a_number_in_whose_order_the_target_lies_is_named(make: Callable[[Any], Any]) -> None:
    target = pd.Series(DRAW.normal(size=ROWS) * 10 if make is np.round else DRAW.normal(size=ROWS))
    frame = pd.DataFrame({"noise": target + DRAW.normal(size=ROWS) / 10, "x": make(target), "y": target})
    hints = find_hints(frame, ["noise", "x"], "y")
    assert [*hints] == ["x"]
    assert hints["x"] == "the target only rises, or only falls, with it"
    mixed = frame.assign(x=[*frame["x"][:-1], frame["x"].median()])
    assert find_hints(mixed, ["noise", "x"], "y") == {}


SETS = [datasets.load_iris, datasets.load_wine, datasets.load_breast_cancer, datasets.load_diabetes]


@pytest.mark.parametrize("load", SETS, ids=lambda load: load.__name__)
def test_strong_features_of_known_sets_are_no_leaks(load: Callable[..., Any]) -> None:
    frame = load(as_frame=True).frame
    names = [str(name) for name in frame if name != "target"]
    assert find_hints(frame, names, "target") == {}
    assert find_leak(frame, names, "target") == ("", "")
    for left_out in frame["target"].unique() if frame["target"].nunique() < 4 else ():  # two of the classes
        assert find_hints(frame[frame["target"] != left_out], names, "target") == {}


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(5, 400), st.sampled_from([0.05, 0.3, 0.5]))
def test_ordinary_columns_are_no_leaks(seed: int, rows: int, share: float) -> None:
    draw = np.random.default_rng(seed)
    target = pd.Series(draw.random(rows) < share)
    frame = pd.DataFrame(
        {
            "id": [f"K{one}" for one in draw.permutation(rows)],
            "number": draw.permutation(rows),
            "noise": draw.normal(size=rows),
            "kind": draw.choice(list("abcdef"), rows),
            "gaps": pd.Series(draw.normal(size=rows)).mask(draw.random(rows) < 0.2),
            "likely": np.where(draw.random(rows) < 0.9, target, ~target),
            "y": target,
        }
    )
    assert find_hints(frame, [str(name) for name in frame if name != "y"], "y") == {}


def test_a_threshold_is_told_from_classes_that_lie_apart() -> None:
    draw = np.random.default_rng(0)
    found, alarms = 0, 0
    for _ in range(200):
        rows, share = int(draw.integers(300, 2000)), draw.choice([0.1, 0.3, 0.5])
        number = draw.choice([draw.normal(size=rows), draw.uniform(size=rows), draw.lognormal(size=rows)])
        cut = pd.DataFrame({"x": number, "y": number > np.quantile(number, 1 - share)})
        found += len(find_hints(cut, ["x"], "y"))
        target = draw.random(rows) < share
        apart = pd.DataFrame({"x": draw.normal(size=rows) + draw.uniform(3, 9) * target, "y": target})
        alarms += len(find_hints(apart, ["x"], "y"))
    assert found >= 190
    assert alarms <= 3


def test_what_is_made_up_for_an_export_is_read_again() -> None:
    assert format_amount(12.5, "") == 12.5
    for form in (".USD", ",EUR", ".%", ",", "."):
        text = format_amount(1234.5, form)
        assert parse_amounts(pd.Series([text]), form).tolist() == [1234.5]
