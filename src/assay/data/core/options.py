"""The numbers that samples can be split, thinned out and batched by; torch-free, as the check asks too."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import msgspec

from assay.errors import ConfigError
from assay.targets.annotation import check_value

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNT = Annotated[int, msgspec.Meta(ge=1)]
_SHARE = Annotated[float, msgspec.Meta(ge=0, lt=1)]
_COLUMN = Annotated[str, msgspec.Meta(min_length=1)]
_COLUMNS = ("split.group", "split.time", "split.column")
_KINDS: dict[str, Any] = {
    "batch_size": _COUNT | Literal["auto"],
    "eval_batch_size": _COUNT,
    "global_batch_size": _COUNT,
    "num_workers": Annotated[int, msgspec.Meta(ge=0, le=1024)],
    "prefetch_factor": Annotated[int, msgspec.Meta(ge=1, le=1024)],
    "split.val": _SHARE,
    "split.test": _SHARE,
    **dict.fromkeys(_COLUMNS, _COLUMN),
    "split.dedup": bool,
    "split.folds": Annotated[int, msgspec.Meta(ge=2)],
    "split.fold": Annotated[int, msgspec.Meta(ge=0)],
    "thin_classes": Annotated[float, msgspec.Meta(gt=0, le=1)],
}
_LONGEST_FOLDER = 75
"""Bytes; a Unix socket's path has 107, of which `multiprocessing` adds 32, `/pymp-…/listener-…`."""
NAMES = tuple(_KINDS)


def check_limits(values: Mapping[str, Any]) -> None:
    """Refuse numbers with which no data can be split, thinned out or batched."""
    for name, kind in _KINDS.items():
        if (value := values.get(name)) is not None:
            check_value("fold" if name == "split.fold" else f"data.{name}", value, kind)
    if values.get("num_workers"):
        _check_temporary_folder()
    columns = [f"data.{name}" for name in _COLUMNS if values.get(name) is not None]
    if len(columns) > 1:
        several = "samples can be divided by only one of group, time and column"
        _refuse(", ".join(columns), several, f"{columns[1]}=null, or {columns[0]}=null")
    folds = values.get("split.folds")
    val = values.get("split.val") or 0
    test = values.get("split.test") or 0
    tested = f"data.split.test={test}"
    smaller = "data.split.val=0.1 data.split.test=0.1"
    if folds:
        test = 1 / folds
        tested = f"one of {folds} folds"
        smaller = "data.split.val=0.1"
    _check_folds(folds, values.get("split.fold"))
    if folds and columns and columns != ["data.split.group"]:
        hint = f"{columns[0]}=null, or data.split.folds=null fold=null"
        _refuse(columns[0], "folds cannot be divided by this", hint)
    if val + test >= 1:
        _refuse("data.split.val", f"{val} and {tested} leave nothing to train on", smaller)


def _check_temporary_folder() -> None:
    """Workers hand samples over by sockets there; with too long a path they deadlock."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        _refuse(
            "data.num_workers",
            f"workers need a TMPDIR of at most {_LONGEST_FOLDER} characters for sockets; it is {folder}",
            "TMPDIR=/tmp assay train …, or data.num_workers=0",
        )


def _check_folds(folds: int | None, fold: int | None) -> None:
    sweep = f"assay train -m 'fold=range({folds or 5})' data.split.folds={folds or 5}"
    if folds is None:
        if fold is not None:
            message = f"got fold {fold} without the number of folds"
            _refuse("fold", message, f"data.split.folds=5; {sweep}")
    elif fold is None:
        _refuse(
            "fold", f"none of the {folds} folds is chosen", f"{sweep}; fold=0 for one of them"
        )
    elif fold >= folds:
        _refuse("fold", f"expected 0 to {folds - 1}, got {fold}", f"fold=0, or all: {sweep}")


def _refuse(key: str, message: str, hint: str) -> NoReturn:
    raise ConfigError(message, key=key, hint=hint)
