from __future__ import annotations

import json
import shutil
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import AssayError
from assay.run.reproduce_process import WEIGHTS, _check_origin, _compare_weights

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_the_distance_of_the_last_weights_is_noted(digits_run: Trained, tmp_path: Path) -> None:
    again = tmp_path / "again"
    last = again / "checkpoints" / "last.ckpt"
    last.parent.mkdir(parents=True)
    _compare_weights(digits_run.run_dir, again)
    assert not (tmp_path / WEIGHTS).exists(), "one of them was removed"
    shutil.copy(digits_run.run_dir / "checkpoints" / "last.ckpt", last)
    _compare_weights(digits_run.run_dir, again)
    assert json.loads((tmp_path / WEIGHTS).read_text(encoding="utf-8")) == 0
    checkpoint = CheckpointFile().load_checkpoint(last)
    for value in checkpoint["state_dict"].values():
        value.mul_(1.01)
    CheckpointFile().save_checkpoint(checkpoint, last)
    _compare_weights(digits_run.run_dir, again)
    assert json.loads((tmp_path / WEIGHTS).read_text(encoding="utf-8")) == pytest.approx(0.01, rel=0.05)


def test_what_was_trained_with_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("lab")
    monkeypatch.setitem(sys.modules, "lab", package)
    code = tmp_path / "code"
    package.__file__ = str(code / "src" / "lab" / "__init__.py")
    _check_origin(code, ["lab", "never_imported"])
    package.__file__ = str(tmp_path / "site-packages" / "lab" / "__init__.py")
    with pytest.raises(AssayError, match=r"lab was imported from .*site-packages"):
        _check_origin(code, ["lab"])
