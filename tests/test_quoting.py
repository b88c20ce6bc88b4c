"""Whatever text is typed as `format_override` writes it arrives as that text."""

import io
import shlex

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.quoting import format_number, format_override
from assay_analysis.comparison import spreadsheet_cell, spreadsheet_frame
from assay_prove.show import format_bytes, format_flops

TEXTS = st.text(alphabet="ab1 ,;:[](){}$\\'\"=~!*?|&<>`#%é\n", max_size=8)


def arrived(word: str) -> object:
    (typed,) = shlex.split(word)
    key, _, _ = typed.partition("=")
    value = OverridesParser.create().parse_override(typed).value()
    return OmegaConf.to_container(OmegaConf.create({key: value}), resolve=True)[key]  # type: ignore[index, call-overload]  # a mapping with text as keys


@given(TEXTS)
def test_any_text_arrives(text: str) -> None:
    assert arrived(format_override("key", text)) == text


@given(st.lists(TEXTS, max_size=3))
def test_any_list_of_texts_arrives(texts: list[str]) -> None:
    assert arrived(format_override("key", texts)) == texts


def test_what_is_plain_is_not_quoted() -> None:
    assert format_override("data.source.exclude", ["secret"]) == "'data.source.exclude=[secret]'"
    assert format_override("optimizer.lr", "x") == "optimizer.lr=x"


@given(st.floats(1e-4, 1e14) | st.floats(-1e14, -1e-4), st.integers(1, 7))
def test_a_number_is_written_as_people_write_it(value: float, digits: int) -> None:
    text = format_number(value, digits)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001 * 10**-digits)
    assert text.rpartition(".")[0] or f"{float(text.replace(',', '')):,.0f}" == text


@given(st.text(alphabet="=+-@\t\r\n'a1.e ,", max_size=6))
def test_no_spreadsheet_runs_a_text(text: str) -> None:
    cell = spreadsheet_cell(text)
    try:
        float(text)
    except ValueError:
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
        assert cell in (text, f"'{text}")
    else:
        assert cell == text, "a number"


def test_only_texts_of_a_table_change() -> None:
    frame = pd.DataFrame(
        {"=name": ["=1+1", None], "x": np.array([-0.1, 0.1], np.float32), "n": [-1, 2], "t": ["-2", "-a"]}
    )
    assert spreadsheet_frame(frame).to_csv(index=False) == "'=name,x,n,t\n'=1+1,-0.1,-1,-2\n,0.1,2,'-a\n"
    kind = frame.astype({"=name": "category", "n": "Int64"})
    assert spreadsheet_frame(kind).to_csv(index=False) == spreadsheet_frame(frame).to_csv(index=False)
    empty = spreadsheet_frame(frame[:0]).to_csv(index=False)
    assert pd.read_csv(io.StringIO(empty)).columns.tolist() == ["'=name", "x", "n", "t"]


@given(st.integers(0, 1 << 60))
def test_a_size_has_three_digits_and_is_the_number(count: int) -> None:
    for text, base in ((format_bytes(count), 1024), (format_flops(count), 1000)):
        number, unit = text.split(" ")
        power = ("", "k", "M", "G", "T", "P").index(
            unit.removesuffix("FLOP").removesuffix("B")[:1].replace("K", "k")
        )
        assert float(number.replace(",", "")) * base**power == pytest.approx(count, rel=0.006, abs=0.5)
        assert len(number.replace(".", "").lstrip("0").replace(",", "")) <= 3 or unit in ("TiB", "PFLOP")
        assert "e" not in number


def test_the_next_unit_begins_where_three_digits_end() -> None:
    assert [format_bytes(count) for count in (999, 1023 << 20, 1 << 30)] == ["999 B", "0.999 GiB", "1 GiB"]
    assert [format_flops(count) for count in (0, 999_400, 999_600)] == ["0 FLOP", "999 kFLOP", "1 MFLOP"]
    assert [format_flops(10**20), format_bytes(3 << 39)] == ["100,000 PFLOP", "1.5 TiB"]
