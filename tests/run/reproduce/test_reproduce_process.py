from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from assay.errors import AssayError
from assay.run.reproduce_process import _check_origin

if TYPE_CHECKING:
    from pathlib import Path


def test_what_was_trained_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("lab")
    monkeypatch.setitem(sys.modules, "lab", package)
    code = tmp_path / "code"
    package.__file__ = str(code / "src" / "lab" / "__init__.py")
    _check_origin(code, ["lab", "never_imported"])
    package.__file__ = str(tmp_path / "site-packages" / "lab" / "__init__.py")
    with pytest.raises(AssayError, match=r"lab was imported from .*site-packages"):
        _check_origin(code, ["lab"])
