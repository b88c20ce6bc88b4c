from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from tests.figure.examples import EXAMPLES, HOSTILE

from assay.errors import AssayError
from assay.figure.to_matplotlib import to_matplotlib

if TYPE_CHECKING:
    from pathlib import Path

    from assay.figure.figure import Figure


@pytest.mark.parametrize("figure", EXAMPLES, ids=lambda figure: figure.name)
def test_each_mark_is_drawn_whatever_it_is_called(figure: Figure, tmp_path: Path) -> None:
    to_matplotlib(figure).savefig(tmp_path / "figure.png", dpi=60)  # mathtext would raise on "$x^{$"
    with Image.open(tmp_path / "figure.png") as picture:
        assert len(np.unique(np.asarray(picture.convert("L")))) > 10


def test_names_are_written_as_they_are() -> None:
    axes = to_matplotlib(EXAMPLES[0]).axes[0]
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["chance", HOSTILE[:23] + "…", "_steps"]
    assert axes.get_title(loc="left") == HOSTILE


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(AssayError, match="need matplotlib") as error:
        to_matplotlib(EXAMPLES[0])
    assert "assay[plot]" in (error.value.hint or "")
