from __future__ import annotations

import numpy as np
import pytest

from assay.figure.figure import Figure, Line, Points


@pytest.mark.parametrize("name", ["Confusion matrix", "../x", ""])
def test_a_name_that_no_file_should_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="letters"):
        Figure(name, "", ())


def test_what_may_be_left_out() -> None:
    assert not Points("a", np.arange(3), [1, 2, 3]).texts
    assert Line("a", [], []).low is None
