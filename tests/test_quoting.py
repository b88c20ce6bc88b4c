"""Whatever text is typed as `override` writes it arrives as that text."""

import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from assay.quoting import number_text, override

TEXTS = st.text(alphabet="ab1 ,;:[](){}$\\'\"=~!*?|&<>`#%é\n", max_size=8)


def arrived(word: str) -> object:
    (typed,) = shlex.split(word)
    key, _, _ = typed.partition("=")
    value = OverridesParser.create().parse_override(typed).value()
    return OmegaConf.to_container(OmegaConf.create({key: value}), resolve=True)[key]  # type: ignore[index, call-overload]  # a mapping with text as keys


@given(TEXTS)
def test_any_text_arrives(text: str) -> None:
    assert arrived(override("key", text)) == text


@given(st.lists(TEXTS, max_size=3))
def test_any_list_of_texts_arrives(texts: list[str]) -> None:
    assert arrived(override("key", texts)) == texts


@pytest.mark.parametrize("text", ["true", "null", "1e5", "12", "NaN", "", " a", "age (years)", "income, CHF"])
def test_text_stays_text(text: str) -> None:
    assert arrived(override("key", text)) == text


def test_what_is_plain_is_not_quoted() -> None:
    assert override("data.source.exclude", ["secret"]) == "'data.source.exclude=[secret]'"
    assert override("optimizer.lr", "x") == "optimizer.lr=x"


@given(st.floats(1e-4, 1e14) | st.floats(-1e14, -1e-4), st.integers(1, 7))
def test_a_number_is_written_as_people_write_it(value: float, digits: int) -> None:
    text = number_text(value, digits)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001 * 10**-digits)
    assert text.rpartition(".")[0] or f"{float(text.replace(',', '')):,.0f}" == text
