from __future__ import annotations

from assay.report.survey import bar, histogram


def test_a_bin_that_is_not_empty_is_seen() -> None:
    assert histogram([0, 1, 500, 1000]) == "·▁▄█"
    assert histogram([]) == ""
    assert histogram([0, 0]) == "··"


def test_bars_are_as_long_as_their_share() -> None:
    assert [bar(share, 4) for share in (0, 0.001, 0.5, 0.75, 1)] == ["", "▏", "██", "███", "████"]
