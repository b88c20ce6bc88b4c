"""The numbers that samples can be split, thinned out and batched by; torch-free, as the check asks too."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

import msgspec

from assay.errors import ConfigError
from assay.targets.annotation import check_value

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNT = Annotated[int, msgspec.Meta(ge=1)]
_SHARE = Annotated[float, msgspec.Meta(ge=0, lt=1)]
_COLUMN = Annotated[str, msgspec.Meta(min_length=1)]
_COLUMNS: Final = ("split.group", "split.time", "split.column")
_KINDS: Final[dict[str, Any]] = {
    "batch_size": _COUNT | Literal["auto"],
    "eval_batch_size": _COUNT,
    "num_workers": Annotated[int, msgspec.Meta(ge=0, le=1024)],
    "prefetch_factor": Annotated[int, msgspec.Meta(ge=1, le=1024)],
    "split.val": _SHARE,
    "split.test": _SHARE,
    **dict.fromkeys(_COLUMNS, _COLUMN),
    "split.folds": Annotated[int, msgspec.Meta(ge=2)],
    "split.fold": Annotated[int, msgspec.Meta(ge=0)],
    "thin_classes": Annotated[float, msgspec.Meta(gt=0, le=1)],
}
_LONGEST_FOLDER: Final = 75
"""Bytes; a Unix socket's path has 107, of which `multiprocessing` adds 32, `/pymp-…/listener-…`."""
NAMES: Final = tuple(_KINDS)


def check_limits(values: Mapping[str, Any]) -> None:
    """Refuse numbers that no data can be split, thinned out or batched by."""
    for name, kind in _KINDS.items():
        if (value := values.get(name)) is not None:
            check_value("fold" if name == "split.fold" else f"data.{name}", value, kind)
    if values.get("num_workers"):
        _check_temporary_folder()
    given = [f"data.{name}" for name in _COLUMNS if values.get(name) is not None]
    if len(given) > 1:
        several = "samples are divided by one of group, time and column, not by several"
        _refuse(", ".join(given), several, f"{given[1]}=null, or {given[0]}=null")
    folds, val = values.get("split.folds"), values.get("split.val") or 0
    test = 1 / folds if folds else values.get("split.test") or 0
    _check_folds(folds, values.get("split.fold"))
    if folds and given and given != ["data.split.group"]:
        hint = f"{given[0]}=null, or data.split.folds=null fold=null"
        _refuse(given[0], "folds cannot be divided by this", hint)
    if val + test >= 1:
        tested = f"one of {folds} folds" if folds else f"data.split.test={test}"
        _refuse("data.split.val", f"{val} and {tested} leave nothing to train on", "data.split.val=0.1")


def _check_temporary_folder() -> None:
    """Workers hand samples over by sockets there; with too long a path they wait for each other for ever."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        _refuse(
            "data.num_workers",
            f"workers need a TMPDIR of at most {_LONGEST_FOLDER} characters for sockets; it is {folder}",
            "TMPDIR=/tmp assay train …, or data.num_workers=0",
        )


def _check_folds(folds: int | None, fold: int | None) -> None:
    every = f"assay train -m 'fold=range({folds or 5})' data.split.folds={folds or 5}"
    if folds is None and fold is not None:
        _refuse("fold", f"{fold} was given, but not how many folds there are", f"data.split.folds=5; {every}")
    if folds is not None and fold is None:
        _refuse("fold", f"there are {folds} folds, and none is chosen", f"{every}; fold=0 for one of them")
    if folds is not None and fold is not None and fold >= folds:
        _refuse("fold", f"{fold} was given; expected 0 to {folds - 1}", f"fold=0, or all: {every}")


def _refuse(key: str, message: str, hint: str) -> NoReturn:
    raise ConfigError(message, key=key, hint=hint)
