"""A CSV or Parquet file: one row per sample, one column to predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import pandas as pd
import torch

from assay.data.samples import Unfitted
from assay.data.tabular.column_kind import kind_of
from assay.data.tabular.table_encoder import TableEncoder
from assay.data.tabular.table_file import CLEAN, check_columns, read_table, task_of_columns
from assay.data.tabular.target_leak import leak
from assay.errors import DataError
from assay.quoting import override
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from assay.task.task_name import TaskName


@final
class Table:
    r"""Columns of numbers and categories, read with pandas.

    Numbers are taken as they are (and normalised by `data.transform.normalize`), columns of text or
    categories become one column a category. What that needs to know (categories, values to fill in) is
    learned from the training rows alone. Columns of ids, dates, free text or nothing at all are left out,
    which `notes` says. A column that gives the target away is refused.

    Args:
        path: A .csv (also compressed) or .parquet file; all samples, or those for training.
        target: Column to predict, or several: labels of a multilabel task, numbers of a regression.
        test_path: A file of the same columns for the test; None: a share of `path`, see `data.split`.
        features: Columns to predict from, whatever they hold; None for all others that are fit for it.
        exclude: Columns to leave out.
        keep: Columns to use although they look like ids, free text or dates (which become days since 1970),
            or tell the target.
        task: `auto` goes by the target, see `assay.data.tabular.table_file.task_of_columns`.
        missing: `error`, or `impute`: the median of a column of numbers, the most frequent of a column of
            categories.
        separator: Between the columns of a CSV file: one character, or `\s+` for any white space.
        decimal: Decimal point of a CSV file.
        na_values: More texts in a CSV file that stand for a missing value, such as `?`.
        max_categories: Columns a categorical column may become; the rarest categories share the last.

    Attributes:
        targets: Columns to predict.
        csv_options: How CSV files are read, for `read_table`.
        notes: What was decided about the columns, a sentence each; there after `read()`.
        fitted: An encoder that has learned, set before `read()`: its columns are the features, whatever else
            the table holds or looks like.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    def __init__(
        self,
        path: str,
        target: str | Sequence[str],
        *,
        test_path: str | None = None,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        keep: Sequence[str] = (),
        task: TaskName | Literal["auto"] = "auto",
        missing: str = "error",
        separator: str = ",",
        decimal: str = ".",
        na_values: Sequence[str] = (),
        max_categories: int | None = 100,
    ) -> None:
        if task != "auto":
            task_of(task)
        if missing not in ("error", "impute"):
            raise ValueError(f"missing={missing!r}: error or impute was expected")
        if len(separator) != 1 and separator != r"\s+":  # pandas takes longer ones for regular expressions
            raise ValueError(rf"separator={separator!r}: one character, or \s+ for white space, was expected")
        if len(decimal) != 1 or decimal == separator:
            raise ValueError(f"decimal={decimal!r}: a character other than the separator was expected")
        if max_categories is not None and max_categories < 1:
            raise ValueError(
                f"max_categories={max_categories}: a number of at least 1, or null, was expected"
            )
        self._paths = {"all": path} if test_path is None else {"train": path, "test": test_path}
        self.targets = _names("target", target)
        self._features = None if features is None else _names("features", features)
        self._exclude, self._keep = _names("exclude", exclude), _names("keep", keep)
        self._asked: TaskName | Literal["auto"] = task
        self.csv_options: dict[str, Any] = {
            "separator": separator,
            "decimal": decimal,
            "na_values": _names("na_values", na_values),
        }
        self._impute, self._max_categories = missing == "impute", max_categories
        self.task: TaskName = "multiclass"
        self.class_names: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.fitted: TableEncoder | None = None

    def prepare(self) -> None:
        """Nothing to download."""

    def read(self) -> Mapping[str, Unfitted]:
        """The parts given, to be encoded once the training rows are known: inputs float32 `[N, F]`.

        Raises:
            DataError: A file or a column is missing, or holds what cannot be used.
        """
        frames = {
            part: read_table(path, _option(part), **self.csv_options) for part, path in self._paths.items()
        }
        first, path = next(iter(frames.values())), next(iter(self._paths.values()))
        check_columns(first, self.targets, path, "target")
        for part, frame in frames.items():
            check_columns(frame, self.targets, self._paths[part], _option(part))
            _check_values(frame, self.targets, "target")
        self.notes = ()
        self.task = self._find_task(first)
        fitted = self.fitted.columns if self.fitted is not None else ()
        features = [one.name for one in fitted] or self._choose_features(first, path)
        for part, frame in frames.items():
            check_columns(frame, features, self._paths[part], _option(part))
            if not self._impute and not fitted:
                _check_values(frame, features, "feature")
        if not fitted:
            self._check_leaks(first, features)
        dates = [one.name for one in fitted if one.kind == "date"] if fitted else self._keep
        for frame in frames.values():
            _read_dates(frame, [name for name in dates if name in features])
        task = task_of(self.task)
        classes = self._find_classes(frames.values()) if task.by_class else []
        names = classes or ([] if task.has_real_targets else self.targets)
        self.class_names = tuple(str(name) for name in names)
        encoder = self.fitted or TableEncoder(self._impute, self._max_categories)
        return {
            part: Unfitted(frame[features], self._encode_target(frame, classes), encoder)
            for part, frame in frames.items()
        }

    def _choose_features(self, frame: pd.DataFrame, path: str) -> list[str]:
        for option, names in (("features", self._features), ("exclude", self._exclude), ("keep", self._keep)):
            check_columns(frame, names or [], path, option)
            if both := [name for name in names or [] if name in self.targets]:
                raise DataError(
                    f"data.source.{option}: {both[0]!r} is the target", hint=f"leave it out of {option}"
                )
        if self._features is not None:
            chosen = [name for name in self._features if name not in self._exclude]
        else:
            others = [name for name in frame.columns if name not in (*self.targets, *self._exclude)]
            unfit = self._unfit(frame, [name for name in others if name not in self._keep])
            chosen = [name for name in others if name not in unfit]
        if not chosen:
            why = f" ({'; '.join(self.notes)})" if self.notes else ""
            raise DataError(
                f"data.source.features: no column is left to predict from{why}",
                hint="add a column, or keep one: data.source.keep=[NAME]",
            )
        return chosen

    def _unfit(self, frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
        """Columns to leave out, with a note on each."""
        left_out = {}
        for name in names:
            kind, why = kind_of(frame[name])
            if kind == "unclear":
                raise DataError(
                    f"data: the column {name!r} is {why}",
                    hint=f"{CLEAN}; {_override('exclude', name)} leaves it out, "
                    f"{_override('keep', name)} takes it as categories",
                )
            if why:
                left_out[name] = why
        if left_out:
            listed = "; ".join(f"{name} ({why})" for name, why in left_out.items())
            able = next((name for name in left_out if not frame[name].isna().all()), "")
            keep = f"; to use one: {_override('keep', able)}" if able else ""
            self.notes = (*self.notes, f"left out of the features: {listed}{keep}")
        return list(left_out)

    def _check_leaks(self, frame: pd.DataFrame, features: Sequence[str]) -> None:
        asked = [name for name in features if name not in self._keep]
        for target in self.targets:
            name, how = leak(frame, asked, target)
            if name and len(features) > 1:
                raise DataError(
                    f"data: the column {name!r} gives the target {target!r} away: {how}",
                    hint=f"{_override('exclude', name)}; where it is known before the target: "
                    f"{_override('keep', name)}",
                )
            if name:  # nothing else to predict from: it cannot be a slip
                self.notes = (*self.notes, f"the column {name!r} gives the target {target!r} away: {how}")

    def _find_task(self, frame: pd.DataFrame) -> TaskName:
        if self._asked == "auto":
            found, note = task_of_columns(frame, self.targets)
            self.notes = (*self.notes, note) if note else self.notes
            return found
        if task_of(self._asked).by_class and len(self.targets) > 1:
            raise DataError(
                f"data.source.target: {len(self.targets)} columns for a {self._asked} task, which has one",
                hint="data.source.task=multilabel, or data.source.task=regression",
            )
        return self._asked

    def _find_classes(self, frames: Iterable[pd.DataFrame]) -> list[Any]:
        values: list[Any] = pd.concat([frame[self.targets[0]] for frame in frames]).unique().tolist()
        alike: dict[str, list[Any]] = {}
        for value in values:
            alike.setdefault(" ".join(str(value).split()).casefold(), []).append(value)
        if several := next((same for same in alike.values() if len(same) > 1), None):
            told = f"classes that differ only in blanks or capital letters: {', '.join(map(repr, several))}"
            self.notes = (*self.notes, told)
        return sorted(values, key=str if len({type(value) for value in values}) > 1 else None)

    def _encode_target(self, frame: pd.DataFrame, classes: list[Any]) -> Tensor:
        if classes:
            index = {value: position for position, value in enumerate(classes)}
            return torch.tensor([index[value] for value in frame[self.targets[0]]], dtype=torch.int64)
        try:
            exact = frame[self.targets].to_numpy(dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.source.target: {', '.join(self.targets)} cannot be numbers ({self.task}): {error}",
                hint="data.source.task=multiclass, or choose another target",
            ) from error
        with np.errstate(over="ignore"):
            values = exact.astype(np.float32)
        if task_of(self.task).has_real_targets:
            for column, name in enumerate(self.targets):
                _check_precision(name, exact[:, column], values[:, column])
            return torch.from_numpy(values)
        if not ((values == 0) | (values == 1)).all():
            raise DataError(
                f"data.source.target: {', '.join(self.targets)} hold more than 0 and 1, which labels are",
                hint="data.source.task=regression, or choose other columns",
            )
        return torch.from_numpy(values).to(torch.int64)


def _option(part: str) -> str:
    """Of the source, which names the file of a part."""
    return "test_path" if part == "test" else "path"


def _override(option: str, column: str) -> str:
    return override(f"data.source.{option}", [column])


def _names(option: str, given: Any) -> list[str]:
    names = [given] if isinstance(given, str | int | float) else list(given or ())
    if option == "target" and not names:
        raise ValueError(f"{option}={given!r}: the name of a column, or a list of them, was expected")
    return [str(name) for name in names]


def _read_dates(frame: pd.DataFrame, names: Sequence[str]) -> None:
    for name in names:
        if kind_of(frame[name])[0] == "date" and frame[name].dtype.kind not in "mMiuf":
            try:
                frame[name] = pd.to_datetime(frame[name], format="ISO8601", utc=True)
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"data.source.keep: the dates in {name!r} are not written as 2024-12-31: {error}",
                    hint="rewrite them, or turn them into numbers",
                ) from error


def _check_values(frame: pd.DataFrame, names: Sequence[str], what: str) -> None:
    """Refuse missing and infinite values."""
    for name in names:
        column = frame[name]
        wrong = column.isna().to_numpy()
        if pd.api.types.is_float_dtype(column):
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            wrong = wrong | (np.abs(values) > np.finfo(np.float32).max)  # the type they will have
        if wrong.any():
            row = int(wrong.argmax())
            mend = "data.source.missing=impute, or " if what == "feature" else ""
            raise DataError(
                f"data: the {what} column {name!r} has no finite value in row {row} (rows count from 0)",
                hint=f"{mend}leave such rows out ({int(wrong.sum())} of {len(wrong)})",
            )


def _check_precision(name: str, exact: np.ndarray[Any, Any], stored: np.ndarray[Any, Any]) -> None:
    """Refuse numbers that differ by less than float32 can tell so far from 0."""
    spread = exact.std()
    if spread > 0 and not np.abs(exact - stored).max() <= 1e-2 * spread:
        raise DataError(
            f"data.source.target: the values of {name!r} differ too little for 32-bit numbers of their size "
            f"(mean {exact.mean():.6g}, deviation {spread:.3g})",
            hint="subtract a constant, or scale the column",
        )
