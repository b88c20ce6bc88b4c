"""The numbers that samples can be split, thinned out and batched by; torch-free, as the check asks too."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, Final, NoReturn

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHOLE: Final = {
    "batch_size": (1, None),
    "eval_batch_size": (1, None),
    "num_workers": (0, 1024),
    "prefetch_factor": (1, 1024),
}
_SHARES: Final = ("split.val", "split.test")
_COLUMNS: Final = ("split.group", "split.time", "split.column")
_FOLDS: Final = ("split.folds", "split.fold")
_LONGEST_FOLDER: Final = 75
"""Bytes; a Unix socket's path has 107, of which `multiprocessing` adds 32, `/pymp-…/listener-…`."""
NAMES: Final = (*_WHOLE, *_SHARES, *_COLUMNS, *_FOLDS, "thin_classes")


def check_limits(values: Mapping[str, Any]) -> None:
    """Refuse numbers that no data can be split, thinned out or batched by."""
    for name, (least, most) in _WHOLE.items():
        value, bounds = values.get(name), f"from {least} to {most}" if most else f"of at least {least}"
        fits = isinstance(value, int) and least <= value <= (most or value)
        if name == "batch_size":
            fits, bounds = fits or value == "auto", f"{bounds}, or auto,"
        _check(f"data.{name}", value, fits, f"a whole number {bounds}", least)
    if values.get("num_workers"):
        _check_temporary_folder()
    val, test = shares = [values.get(name) for name in _SHARES]
    for name, share in zip(_SHARES, shares, strict=True):
        fits = isinstance(share, int | float) and 0 <= share < 1
        _check(f"data.{name}", share, fits, "a share from 0 to below 1", 0.1)
    _check_columns(values)
    _check_folds(*(values.get(name) for name in _FOLDS))
    folds = values.get("split.folds")
    if folds and (val or 0) >= 1 - 1 / folds:
        nothing = f"{val} was given; beside one of {folds} folds that leaves nothing to train on"
        _refuse("data.split.val", nothing, "data.split.val=0.1")
    if not folds and (val or 0) + (test or 0) >= 1:
        nothing = f"{val} and {test} leave nothing to train on"
        _refuse("data.split.val, data.split.test", nothing, "data.split.val=0.1 data.split.test=0.2")
    ratio = values.get("thin_classes")
    fits = isinstance(ratio, int | float) and 0 < ratio <= 1
    wanted = "a number above 0 and at most 1, smallest class over largest,"
    _check("data.thin_classes", ratio, fits, wanted, "0.01, or null")


def _check_temporary_folder() -> None:
    """Workers hand samples over by sockets there; with too long a path they wait for each other for ever."""
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) > _LONGEST_FOLDER:
        _refuse(
            "data.num_workers",
            f"workers need a TMPDIR of at most {_LONGEST_FOLDER} characters for sockets; it is {folder}",
            "TMPDIR=/tmp assay train …, or data.num_workers=0",
        )


def _check_columns(values: Mapping[str, Any]) -> None:
    given = {f"data.{name}": values[name] for name in _COLUMNS if values.get(name) is not None}
    for key, name in given.items():
        if not isinstance(name, str) or not name.strip():
            _refuse(key, f"{name!r} was given; the name of a column was expected", f"{key}=COLUMN")
    if len(given) > 1:
        one, other = list(given)[:2]
        several = "samples are divided by one of group, time and column, not by several"
        _refuse(f"{one}, {other}", several, f"{other}=null, or {one}=null")
    key = next((key for key in given if not key.endswith("group")), "")
    if key and values.get("split.folds") is not None:
        later = "a fold would train on what is later than its test"
        why = later if "time" in key else "the column names the subsets"
        hint = f"{key}=null, or data.split.folds=null fold=null"
        _refuse(key, f"folds cannot be divided by this: {why}", hint)


def _check_folds(folds: Any, fold: Any) -> None:
    if folds is None:
        if fold is not None:
            hint = f"fold={fold} data.split.folds=5"
            _refuse("fold", f"{fold} was given, but not how many folds there are", hint)
        return
    fits = isinstance(folds, int) and folds >= 2
    _check(
        "data.split.folds", folds, fits, "a whole number of at least 2", "5; null divides the samples once"
    )
    every = f"assay train -m 'fold=range({folds})'"
    if fold is None:
        hint = f"{every} data.split.folds={folds}; fold=0 for one of them"
        _refuse("fold", f"there are {folds} folds, and none is chosen", hint)
    fits = isinstance(fold, int) and 0 <= fold < folds
    wanted = f"with data.split.folds={folds} a whole number from 0 to {folds - 1}"
    _check("fold", fold, fits, wanted, f"{folds - 1}, or all: {every}")


def _check(key: str, value: Any, fits: bool, wanted: str, instead: object) -> None:
    if value is not None and (isinstance(value, bool) or not fits):
        _refuse(key, f"{value} was given; {wanted} was expected", f"{key}={instead}")


def _refuse(key: str, message: str, hint: str) -> NoReturn:
    raise ConfigError(message, key=key, hint=hint)
