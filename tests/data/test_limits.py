"""Ranges of the arguments of `data`."""

from __future__ import annotations

import re
import socket
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from assay.data.limits import NAMES, check_limits
from assay.errors import ConfigError

FINE = {"batch_size": 64, "eval_batch_size": 512, "num_workers": 2, "split.val": 0.1, "split.test": 0.2}


@pytest.mark.parametrize(
    "values",
    [
        {},
        FINE,
        {"batch_size": "auto"},
        {"batch_size": 1, "num_workers": 0, "thin_classes": 1},
        {"split.val": 0, "split.test": 0},
        {"split.folds": 2, "split.fold": 1, "split.group": "a", "split.val": 0.4, "split.test": 0.9},
    ],
)
def test_what_is_taken(values: dict[str, Any]) -> None:
    check_limits(dict.fromkeys(NAMES) | values)
    check_limits(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected int >= 1, got 0"),
        ({"eval_batch_size": True}, "eval_batch_size: expected int, got true"),
        ({"num_workers": 2000}, "num_workers: expected int <= 1024, got 2000"),
        ({"prefetch_factor": 1.5}, "prefetch_factor: expected int, got 1.5"),
        *(({"split.val": share}, "split.val: expected float") for share in (1.0, -0.1, True, "x")),
        *(({"split.folds": n, "split.fold": 0}, "split.folds: expected int") for n in (1, True, 2.5)),
        ({"split.fold": 0}, "fold: got fold 0, but not how many folds there are"),
        ({"split.folds": 5}, "fold: none of the 5 folds is chosen"),
        *(({"split.folds": 5, "split.fold": n}, "fold: ") for n in (5, -1, 0.5)),
        ({"split.folds": 2, "split.fold": 0, "split.val": 0.5}, "split.val: 0.5 and one of 2 folds leave"),
        ({"split.group": "a", "split.time": "b"}, "group, data.split.time: samples can be divided by"),
        *(
            ({key: "a", "split.folds": 5, "split.fold": 0}, f"{key}: folds cannot")
            for key in ("split.time", "split.column")
        ),
        ({"split.val": 0.5, "split.test": 0.5}, "split.val: 0.5 and data.split.test=0.5 leave nothing"),
        *(({"thin_classes": ratio}, "thin_classes: expected float") for ratio in (0.0, 1.5, "x")),
    ],
    ids=str,
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_limits(dict.fromkeys(NAMES) | values)


@pytest.mark.parametrize("length", [75, 76])
def test_a_folder_for_temporary_files_leaves_room_for_the_sockets_of_workers(
    monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / ("x" * (length - len(short) - 1))
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        with socket.socket(socket.AF_UNIX) as listener:
            path = tempfile.mktemp(prefix="listener-", dir=tempfile.mkdtemp(prefix="pymp-"))  # noqa: S306 - as multiprocessing does
            with nullcontext() if length == 75 else pytest.raises(OSError, match="path too long"):
                listener.bind(path)
        with nullcontext() if length == 75 else pytest.raises(ConfigError, match=r"data\.num_workers: .*75"):
            check_limits({"num_workers": 1})
        check_limits({"num_workers": 0})
