"""Each mistake is refused in the words of before; see update.py."""

from __future__ import annotations

import pytest
from tests.goldens import golden
from tests.goldens.masks import mask_numbers
from tests.goldens.observe import MISTAKES, observe_mistakes, read_mistakes

TYPED = read_mistakes()


@pytest.fixture(scope="module")
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What comes of each mistake that a test is to look at."""
    folder = tmp_path_factory.mktemp("golden") / "folder"
    folder.mkdir()
    cases = (one.callspec.params for one in request.session.items if hasattr(one, "callspec"))
    return observe_mistakes(folder, [case["mistake"] for case in cases if "mistake" in case])


@pytest.mark.parametrize("mistake", TYPED)
def test_it_is_refused_in_the_same_words(mistake: str, observed: dict[str, str]) -> None:
    expected = golden.read_family(MISTAKES).get(mistake, "")
    assert "Traceback" not in observed[mistake]
    assert observed[mistake].startswith("exit code ")
    golden.check(expected, observed[mistake], mistake)


def test_a_change_is_seen_and_another_number_is_not() -> None:
    page = mask_numbers("val/f1  0.500   1,000 rows of 1e-08")
    golden.check(page, mask_numbers("val/f1  -0.5012  17 rows of 0.5"), "page")
    for found in ("val/f2  0.500  1,000 rows of 1", "val/f1  nan  1,000 rows of 1"):
        with pytest.raises(pytest.fail.Exception, match="golden page"):
            golden.check(page, mask_numbers(found), "page")
