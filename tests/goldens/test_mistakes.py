"""Each mistake is refused in the words of before; see update.py and changes.md."""

from __future__ import annotations

import pytest
from tests.goldens import golden
from tests.goldens.observe import MISTAKES, observe_mistakes, read_mistakes

TYPED = read_mistakes()


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What comes of each mistake; all are typed."""
    folder = tmp_path_factory.mktemp("golden") / "folder"
    folder.mkdir()
    return observe_mistakes(folder, TYPED)


@pytest.mark.parametrize("typed", TYPED)
def test_it_is_refused_in_the_same_words(typed: str, observed: dict[str, str]) -> None:
    expected = golden.read_family(MISTAKES).get(typed, "")
    assert "Traceback" not in observed[typed]
    assert "\nexit code 0\n" not in observed[typed]
    golden.check(expected, observed[typed], typed, exact=True)


def test_each_mistake_is_typed_once() -> None:
    assert len(set(TYPED)) == len(TYPED) >= 120


def test_a_change_is_seen_and_another_machine_is_not() -> None:
    golden.check("loss 0.500, 1,000 rows", "loss 0.501, 1,001 rows", "page", exact=False)
    for found, exact in (
        ("loss 0.501, 1,000 rows", True),
        ("loss 0.6, 1,000 rows", False),
        ("lost 0.500", False),
    ):
        with pytest.raises(pytest.fail.Exception, match="golden page"):
            golden.check("loss 0.500, 1,000 rows", found, "page", exact=exact)
