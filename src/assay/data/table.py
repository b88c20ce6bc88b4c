"""A CSV or Parquet file: one row a sample, one column to predict."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np
import pandas as pd
import torch

from assay.data.samples import Unfitted
from assay.data.spec import Task
from assay.data.table_encoder import TableEncoder
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor


@final
class Table:
    """Columns of numbers and categories, read with pandas.

    Numbers are taken as they are (and normalised by `data.transform.normalize`), columns of text or
    categories become one column a category. What that needs to know (categories, values to fill in) is
    learned from the training rows alone.

    Args:
        path: A .csv (also compressed) or .parquet file; all samples, or those for training.
        target: Column to predict, or several: labels of a multilabel task, numbers of a regression.
        test_path: A file of the same columns for the test; None: a share of `path`, see `data.split`.
        features: Columns to predict from; None for all others.
        task: `auto` goes by the target: floating-point numbers are a regression; one column of anything else
            classes, several columns labels.
        missing: `error`, or `impute`: the median of a column of numbers, the most frequent of a column of
            categories.
        separator: Between the columns of a CSV file.
        max_categories: Columns a categorical column may become; the rarest categories share the last.

    Raises:
        ValueError: An argument is none of its choices.
    """

    def __init__(
        self,
        path: str,
        target: str | Sequence[str],
        *,
        test_path: str | None = None,
        features: Sequence[str] | None = None,
        task: Task | Literal["auto"] = "auto",
        missing: str = "error",
        separator: str = ",",
        max_categories: int | None = 100,
    ) -> None:
        if task != "auto" and task not in get_args(Task):
            raise ValueError(f"task={task!r}: auto or one of {', '.join(get_args(Task))} was expected")
        if missing not in ("error", "impute"):
            raise ValueError(f"missing={missing!r}: error or impute was expected")
        self._paths = {"all": path} if test_path is None else {"train": path, "test": test_path}
        self._targets = [target] if isinstance(target, str) else list(target)
        self._features = None if features is None else list(features)
        self._asked: Task | Literal["auto"] = task
        self._separator = separator
        self._impute, self._max_categories = missing == "impute", max_categories
        self.task: Task = "multiclass"
        self.class_names: tuple[str, ...] = ()

    def prepare(self) -> None:
        """Nothing to download."""

    def read(self) -> Mapping[str, Unfitted]:
        """The parts given, to be encoded once the training rows are known: inputs float32 `[N, F]`.

        Raises:
            DataError: A file or a column is missing, or holds what cannot be used.
        """
        frames = {part: _read(path, part, self._separator) for part, path in self._paths.items()}
        first, path = next(iter(frames.values())), next(iter(self._paths.values()))
        features = self._choose_features(first, path)
        self.task = self._find_task(first)
        for part, frame in frames.items():
            _check_columns(frame, [*features, *self._targets], self._paths[part], "test_path")
            _check_values(frame, self._targets, "target")
            if not self._impute:
                _check_values(frame, features, "feature")
        classes = self._find_classes(frames.values()) if self.task in ("multiclass", "binary") else []
        names = self._targets if self.task == "multilabel" else classes
        self.class_names = tuple(str(name) for name in names)
        encoder = TableEncoder(self._impute, self._max_categories)
        return {
            part: Unfitted(frame[features], self._encode_target(frame, classes), encoder)
            for part, frame in frames.items()
        }

    def _choose_features(self, frame: pd.DataFrame, path: str) -> list[str]:
        _check_columns(frame, self._targets, path, "target")
        others = [str(name) for name in frame.columns if name not in self._targets]
        chosen = others if self._features is None else self._features
        _check_columns(frame, chosen, path, "features")
        if not chosen:
            raise DataError("data.source.features: no column is left to predict from", hint="add a column")
        return chosen

    def _find_task(self, frame: pd.DataFrame) -> Task:
        if self._asked == "auto":
            if all(pd.api.types.is_float_dtype(frame[name]) for name in self._targets):
                return "regression"
            return "multiclass" if len(self._targets) == 1 else "multilabel"
        if self._asked in ("multiclass", "binary") and len(self._targets) > 1:
            raise DataError(
                f"data.source.target: {len(self._targets)} columns for a {self._asked} task, which has one",
                hint="data.source.task=multilabel, or data.source.task=regression",
            )
        return self._asked

    def _find_classes(self, frames: Iterable[pd.DataFrame]) -> list[Any]:
        values: list[Any] = pd.concat([frame[self._targets[0]] for frame in frames]).unique().tolist()
        return sorted(values, key=str if len({type(value) for value in values}) > 1 else None)

    def _encode_target(self, frame: pd.DataFrame, classes: list[Any]) -> Tensor:
        if classes:
            index = {value: position for position, value in enumerate(classes)}
            return torch.tensor([index[value] for value in frame[self._targets[0]]], dtype=torch.int64)
        try:
            values = torch.from_numpy(frame[self._targets].to_numpy(dtype=np.float32, copy=True))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.source.target: {', '.join(self._targets)} cannot be numbers ({self.task}): {error}",
                hint="data.source.task=multiclass, or choose another target",
            ) from error
        if self.task == "regression":
            return values
        if not ((values == 0) | (values == 1)).all():
            raise DataError(
                f"data.source.target: {', '.join(self._targets)} hold more than 0 and 1, which labels are",
                hint="data.source.task=regression, or choose other columns",
            )
        return values.to(torch.int64)


def _read(path: str, part: str, separator: str) -> pd.DataFrame:
    option = "data.source.test_path" if part == "test" else "data.source.path"
    name = Path(path).name.lower()
    is_parquet = name.endswith((".parquet", ".pq"))
    if not is_parquet and ".csv" not in name:
        raise DataError(f"{option}={path}: a .csv or .parquet file was expected", hint="convert it to one")
    try:
        frame = pd.read_parquet(path) if is_parquet else pd.read_csv(path, sep=separator)
    except FileNotFoundError as error:
        raise DataError(f"{option}={path}: there is no such file", hint=f"set {option}") from error
    except (ValueError, OSError) as error:
        raise DataError(f"{option}={path} cannot be read: {error}", hint="repair or convert it") from error
    frame.columns = frame.columns.map(str)
    if frame.empty:
        raise DataError(f"{option}={path} has no rows", hint="give a table with samples")
    if frame.shape[1] == 1 and (found := next((sign for sign in ";\t|" if sign in frame.columns[0]), "")):
        raise DataError(
            f"{option}={path} looks separated by {found!r}, not by {separator!r}",
            hint=f"'data.source.separator=\"{found}\"'",
        )
    return frame.reset_index(drop=True)


def _check_columns(frame: pd.DataFrame, names: Sequence[str], path: str, option: str) -> None:
    known = list(frame.columns)
    for name in names:
        if name not in known:
            guess = difflib.get_close_matches(name, known, n=1)
            meant = f"; did you mean {guess[0]!r}?" if guess else ""
            more = ", …" if len(known) > 20 else ""
            raise DataError(
                f"data.source.{option}: {path} has no column {name!r}{meant}",
                hint=f"columns: {', '.join(known[:20])}{more}",
            )


def _check_values(frame: pd.DataFrame, names: Sequence[str], what: str) -> None:
    """Refuse missing and infinite values."""
    for name in names:
        column = frame[name]
        wrong = column.isna().to_numpy()
        if pd.api.types.is_float_dtype(column):
            wrong = wrong | np.isinf(column.to_numpy(dtype=np.float64, na_value=np.nan))
        if wrong.any():
            row = int(wrong.argmax())
            mend = "data.source.missing=impute, or " if what == "feature" else ""
            raise DataError(
                f"data: the {what} column {name!r} has no finite value in row {row} (rows count from 0)",
                hint=f"{mend}leave such rows out ({int(wrong.sum())} of {len(wrong)})",
            )
