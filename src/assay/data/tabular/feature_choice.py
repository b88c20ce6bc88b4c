"""Which columns of a table are predicted from, and as what: each decision is said. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pandas as pd

from assay.data.tabular.column_kind import find_format, is_number, kind_of, to_numbers
from assay.data.tabular.table_file import check_columns
from assay.errors import DataError
from assay.quoting import override
from assay.task.multitask import Multitask
from assay.task.task_of import infer_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pandas import Series


_FEW_CLASSES = 20
_MOST_CLASSES = 100
_FEW_SAMPLES = 10
"""Of a class on average, below which so many classes are more than make sense."""


def with_targets(frame: pd.DataFrame, targets: Sequence[str]) -> pd.DataFrame:
    """The rows that have all targets, with their index; integers that gaps made floats are such again."""
    lacking = frame[list(targets)].isna().any(axis=1)
    if not lacking.any():
        return frame
    kept = frame[~lacking].copy()
    for name in targets:
        if frame[name].isna().any():
            values = kept[name].infer_objects()
            whole = pd.api.types.is_float_dtype(values) and bool((values == np.floor(values)).all())
            kept[name] = values.astype(np.int64) if whole and np.isfinite(values).all() else values
    return kept


def task_of_columns(frame: pd.DataFrame, targets: Sequence[str]) -> tuple[str, str]:
    """What there is to predict, and a note where that could be meant otherwise."""
    frame = with_targets(frame, targets)
    found = [is_real(frame[name], name) for name in targets]
    real = bool(found) and all(is_number for is_number, _ in found)
    if len(targets) > 1 and not real and not frame[list(targets)].isin([0, 1]).to_numpy().all():
        return Multitask.name, ""
    notes = "; ".join(note for _, note in found if note)
    num_classes = int(frame[targets[0]].nunique()) if len(targets) == 1 and not real else 0
    return infer_task(is_real=real, num_columns=len(targets), num_classes=num_classes), notes if real else ""


def is_real(values: pd.Series[Any], name: str) -> tuple[bool, str]:
    """Whether a target is predicted as a number, and a note where that could be meant otherwise."""
    different = values.nunique()
    if not is_number(values):
        _check_classes(values, name, different)
        return False, ""
    is_float = pd.api.types.is_float_dtype(values)
    note = (
        f"the target {name!r} has {different:,} different {'values' if is_float else 'integers'} and is "
        "predicted as a number; for classes: data.source.task=multiclass"
    )
    if is_float:
        return True, note if 1 < different <= _FEW and bool((values == np.floor(values)).all()) else ""
    if pd.api.types.is_bool_dtype(values) or different <= 2:
        return False, ""
    is_rare = values.value_counts().min() < 3  # such a class cannot be in all subsets: these may be counts
    if different <= _FEW_CLASSES and not is_rare:
        return False, ""
    if different <= _FEW_CLASSES or len(values) / different >= _FEW_CLASSES:
        raise DataError(
            f"data.source.target={name}: {different:,} different integers in {len(values):,} rows: numbers, "
            "or classes?",
            hint="data.source.task=regression, or data.source.task=multiclass",
        )
    return True, note


def _check_classes(values: pd.Series[Any], name: str, different: int) -> None:
    kind, why = kind_of(values)
    example = str(values.iloc[0])[:40] if len(values) else ""
    key = f"data.source.target={name}"
    if kind == "unclear":
        raise DataError(f"{key}: the column is {why}", hint=to_numbers(values))
    if kind == "date":
        raise DataError(f"{key}: the column holds {why}", hint="turn it into numbers or classes")
    if different > _FEW_CLASSES and 2 * different > len(values):
        raise DataError(
            f"{key}: {different:,} different texts in {len(values):,} rows, such as {example!r}, are not "
            "classes",
            hint="choose another column",
        )
    if different > _MOST_CLASSES and different * _FEW_SAMPLES > len(values):
        raise DataError(
            f"{key}: {different:,} classes in {len(values):,} rows, fewer than {_FEW_SAMPLES} rows a class",
            hint="choose another column; data.source.task=multiclass takes them all the same",
        )


_ROWS = 20
"""Below this many, one column may follow another by chance."""
_ROUNDING = 1e-12


def leak(frame: pd.DataFrame, features: Sequence[str], target: str) -> tuple[str, str]:
    """The first feature from which the target can be read off, and how; two empty texts if there is none."""
    for name in features:
        both = frame[[name, target]].dropna()
        if len(both) < _ROWS:
            continue
        if how := _how(both[name], both[target]):
            return name, how
    return "", ""


def _how(feature: Series[Any], target: Series[Any]) -> str:
    different = target.nunique()
    if different < 2:
        return ""
    if feature.astype(str).equals(target.astype(str)):
        return "the two columns are equal"
    if is_number(feature) and is_number(target) and different > 2:
        return _in_another_unit(feature.to_numpy(dtype=float), target.to_numpy(dtype=float))
    if 2 * different > len(target) or feature.nunique() != different:
        return ""
    pairs = pd.DataFrame({"feature": feature, "target": target}).drop_duplicates()
    return f"each of its {different} values stands for one of the target" if len(pairs) == different else ""


def _in_another_unit(feature: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> str:
    with np.errstate(all="ignore"):
        correlation = np.corrcoef(feature, target)[0, 1]
    return "the target is it times a number, plus a constant" if 1 - abs(correlation) < _ROUNDING else ""


NAMED: Final = 10
"""Columns in a sentence."""
_FEW: Final = 10


@final
@dataclass(frozen=True)
class Asked:
    """What a config says of columns; see `assay.data.table.Table`."""

    targets: Sequence[str]
    features: Sequence[str] | None = None
    exclude: Sequence[str] = ()
    keep: Sequence[str] = ()
    categories: Sequence[str] = ()
    day_first: bool | None = None


@final
@dataclass
class Features:
    """What was decided."""

    names: list[str]
    forms: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    kinds: dict[str, tuple[Any, str]] = field(default_factory=dict)


def choose_features(frame: pd.DataFrame, asked: Asked, path: str) -> Features:
    """Look at every column."""
    options = {"features": asked.features, "exclude": asked.exclude, "keep": asked.keep}
    for option, names in {**options, "categories": asked.categories}.items():
        check_columns(frame, names or [], path, option)
        if both := [name for name in names or [] if name in asked.targets]:
            raise DataError(
                f"data.source.{option}: {both[0]!r} is the target", hint=f"leave it out of {option}"
            )
    named = frame.columns if asked.features is None else asked.features
    chosen = Features([name for name in named if name not in (*asked.targets, *asked.exclude)])
    kinds = {name: kind_of(frame[name]) for name in chosen.names if name not in asked.categories}
    chosen.kinds = kinds
    if asked.features is None:
        _leave_out_unfit(frame, asked, chosen)
    for name in chosen.names:
        kind = kinds.get(name, ("category", ""))[0]
        if kind == "date":
            chosen.forms[name] = find_format(frame[name], asked.day_first)
    if not chosen.names:
        why = f" ({'; '.join(chosen.notes)})" if chosen.notes else ""
        raise DataError(
            f"data.source.features: no column is left to predict from{why}",
            hint="add a column, or keep one: data.source.keep=[NAME]",
        )
    _say(frame, asked, chosen)
    _check_leaks(frame, asked, chosen)
    return chosen


def _leave_out_unfit(frame: pd.DataFrame, asked: Asked, chosen: Features) -> None:
    left_out: dict[str, str] = {}
    unclear: list[str] = []
    for name, (kind, why) in chosen.kinds.items():
        if name in asked.keep:
            continue
        if kind == "unclear":
            unclear.append(name)
        elif len(frame) > 1 and frame[name].nunique() == 1:
            left_out[name] = "one value in all rows"
        elif why and kind != "date":
            left_out[name] = why
    if unclear:
        them = "it" if len(unclear) == 1 else "them"
        raise DataError(
            f"data: {listed([f'the column {name!r} is {chosen.kinds[name][1]}' for name in unclear])}",
            hint=f"{to_numbers(*(frame[name] for name in unclear))}; "
            f"{_override(asked, 'exclude', *unclear)} leaves {them} out, "
            f"{_override(asked, 'keep', *unclear)} takes {them} as categories",
        )
    if left_out:
        reasons = "; ".join(f"{name} ({why})" for name, why in left_out.items())
        able = next((name for name in left_out if not frame[name].isna().all()), "")
        keep = f"; to use one: {_override(asked, 'keep', able)}" if able else ""
        chosen.notes.append(f"left out of the features: {reasons}{keep}")
        chosen.names = [name for name in chosen.names if name not in left_out]


def _say(frame: pd.DataFrame, asked: Asked, chosen: Features) -> None:
    if chosen.forms:
        dates = [
            f"{name} such as {str(frame[name].dropna().iloc[0])[:40]!r}{f' ({form})' if '%' in form else ''}"
            for name, form in chosen.forms.items()
        ]
        chosen.notes.append(
            "dates become year, month, weekday, hour and days since the first, those that vary: "
            + listed(dates)
        )
    few = [name for name in chosen.names if name not in asked.categories and _is_few_integers(frame[name])]
    if few:
        values = listed([f"{name} ({frame[name].nunique()} values)" for name in few])
        chosen.notes.append(
            f"integers with few values are taken as numbers: {values}; as categories: "
            f"{_override(asked, 'categories', few[0])}"
        )


def listed(texts: Sequence[str]) -> str:
    """The first of some columns, and how many more there are."""
    more = f", and {len(texts) - NAMED} more columns" if len(texts) > NAMED else ""
    return f"{', '.join(texts[:NAMED])}{more}"


def _is_few_integers(column: pd.Series[Any]) -> bool:
    if not is_number(column) or pd.api.types.is_bool_dtype(column):
        return False
    values = column.dropna()
    return 2 < values.nunique() <= _FEW and bool((values == values.round()).all())


def _check_leaks(frame: pd.DataFrame, asked: Asked, chosen: Features) -> None:
    names = [name for name in chosen.names if name not in asked.keep]
    for target in asked.targets:
        name, how = leak(frame, names, target)
        given_away = f"the column {name!r} gives the target {target!r} away: {how}"
        if name and len(chosen.names) > 1:
            raise DataError(
                f"data: {given_away}",
                hint=f"{_override(asked, 'exclude', name)}; where it is known before the target: "
                f"{_override(asked, 'keep', name)}",
            )
        chosen.notes += [given_away] if name else []  # nothing else to predict from: it cannot be a slip


def _override(asked: Asked, option: str, *columns: str) -> str:
    """The columns beside those that are named already: an override replaces the whole list."""
    return override(f"data.source.{option}", [*getattr(asked, option), *columns])
