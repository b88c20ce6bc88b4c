"""What typed values stand for, against Hydra's own grammar."""

from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from assay.analysis.run import plain_value, shown


@pytest.mark.parametrize(
    "text", ["1", "-3", "1e-3", "0.5", "true", "False", "null", "adam", "inf", "a_b", "nan", "a b"]
)
def test_plain_values_are_what_hydra_reads(text: str) -> None:
    expected = OverridesParser.create().parse_override(f"x={text}").value()
    assert repr(plain_value(text)) == repr(expected)


def test_what_is_shown_reads_back_as_hydra_reads_it() -> None:
    parser = OverridesParser.create()
    for value in ([1, "a", True], {"p": 0.5}, None, 1e-05, [[1], [2]]):
        assert parser.parse_override(f"x={shown(value)}").value() == value
