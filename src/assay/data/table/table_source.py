"""Rows of a table file as samples: reading, targets, features and what is left out."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.data.table.category import as_integers, blank_texts, category_texts
from assay.data.table.column import (
    MISSING_WORDS,
    check_columns,
    is_category,
    is_number,
    is_text,
)
from assay.data.table.column_kind import FORMED, kind_of, split_hints
from assay.data.table.date import TIME, Date, find_format, parse_dates
from assay.data.table.features import ColumnOptions, Features, choose_features
from assay.data.table.number import Number, is_amount
from assay.data.table.table_encoder import TableEncoder
from assay.data.table.table_file import (
    AUTO,
    PLAIN,
    as_names,
    is_csv,
    parse_texts,
    prepare_rows,
    read_table,
    resolve_options,
)
from assay.data.table.table_targets import (
    TableTargets,
    choose_task,
    class_columns,
    drop_missing_targets,
    find_label_separator,
    parse_targets,
)
from assay.errors import DataError, check_numbers
from assay.quoting import format_override, join_first, pluralize
from assay.task.classification import Multilabel
from assay.task.task import describe_subset
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from assay.data.core.types import Bools, Frame, Strings, Values


_PATH_OPTIONS = {"all": "path", "train": "path", "test": "test_path"}
"""Of the source, each of which names the file of a subset."""


class TableSource(Source):
    """Reads the rows of one or two table files; see `assay.data.table.table.Table`."""

    input_option = "text"
    """What names the one column to predict from, where it is one; the word for what lies there, too."""

    def __init__(
        self,
        path: str,
        test_path: str | None,
        columns: ColumnOptions,
        file_options: Mapping[str, Any],
        *,
        task: str,
        label_separator: str | None,
        positive: str | float | bool | None,
        impute: bool = True,
        max_categories: int | None = None,
    ) -> None:
        separator = file_options["separator"]
        # a regular expression may never end
        if len(separator) != 1 and separator not in (r"\s+", AUTO):
            raise ValueError(rf"separator={separator!r}: expected one character, \s+ or auto")
        check_numbers("[0, inf)", skip_rows=file_options["skip_rows"])
        check_numbers("[1, inf)", max_categories=max_categories)
        if test_path is None:
            self._paths = {"all": path}
        else:
            self._paths = {"train": path, "test": test_path}
        codes = file_options["na_values"]
        if codes != AUTO:
            codes = as_names(codes)
        self.file_options = {**file_options, "na_values": codes}
        self._asked_of_columns = replace(
            columns, na_values=() if codes == AUTO else codes, max_categories=max_categories
        )
        self.targets: list[str] = columns.targets
        if task != "auto" and task_of(task).learns_from_inputs == bool(self.targets):
            expected = "the name of a column"
            if self.targets:
                expected = "null"
            raise ValueError(
                f"target={','.join(self.targets)}: expected {expected} for task={task!r}"
            )
        self._asked: str = task
        if label_separator is not None and (len(self.targets) != 1 or not label_separator):
            raise ValueError(
                f"label_separator={label_separator!r}: expected a character, and one target"
            )
        self._label_separator = label_separator
        self._label_column = "".join(self.targets[:1])
        self._impute = impute
        self._max_categories = max_categories
        self._positive = positive
        self.task: str = "multiclass"
        self.notes: list[str] = []

    def read(self) -> Mapping[str, Samples]:
        """The subsets given, to be encoded once the training rows are known: float32 `[N, F]`, or tokens."""
        self.notes = []
        encoder = self.fitted or self.text_encoder
        frames = self._read_files(encoder)
        first = next(iter(frames.values()))
        path = next(iter(self._paths.values()))
        forms = dict(getattr(encoder, "target_forms", {}))
        problem = self._read_targets(frames, forms)
        for key, name in self.split_columns.items() if self.fitted is None else ():
            check_columns(first, [name], path, key)
        if encoder is not None:
            if problem is not None:
                raise problem
            chosen = learned_features(encoder, self._asked_of_columns)
        else:
            encoder, chosen = self._choose_features(first, path, problem)
            encoder.target_forms = forms
        hints: dict[str, str] = {}
        if not self.split_columns:
            hints = split_hints(first.drop(columns=self.targets), chosen.kinds)
        for subset, frame in frames.items():
            check_columns(frame, chosen.names, self._paths[subset], _PATH_OPTIONS[subset])
            read_columns(frame, chosen)
            if self.fitted is not None:
                frame[chosen.names] = prepare_rows(
                    frame, self.fitted.columns, self.file_options["na_values"]
                )
            if self.fitted is None and self._impute:
                self._describe_gaps(subset, frame, chosen)
        all_targets = pd.concat([frame[self.targets] for frame in frames.values()])
        names = class_columns(self.task, self.targets, all_targets)
        classes = {name: all_targets[name].unique().tolist() for name in names}
        # else classes go by their names
        positive = self._positive if self.fitted is None else None
        targets = TableTargets(self.task, self.targets, classes, positive)
        self.notes += targets.notes
        self.class_names = targets.class_names
        self.is_reversed = targets.is_reversed
        named = (*self.split_columns.values(), *hints)
        subsets = {}
        for subset, frame in frames.items():
            raw = frame[chosen.names]
            times = {name: self._as_times(frame[name]) for name in named if name in frame}
            # Numbers of the rows in their file, where some were left out.
            rows = [] if frame.index[-1] == len(frame) - 1 else list(map(str, frame.index))
            subsets[subset] = Samples(
                raw,
                targets.encode(frame),
                encoder=encoder,
                names=rows,
                split_values=times,
                split_hints=hints,
            )
        return subsets

    def _read_files(self, encoder: Any) -> dict[str, Frame]:
        """The rows of each file; what is a category in another one is text, whatever it looks like."""
        if self._label_separator is not None:
            self.targets = [self._label_column]  # an earlier reading has put labels in its place
        columns = getattr(encoder, "columns", ())
        texts = [column.name for column in columns if column.kind == "text"]
        as_texts: dict[str, Collection[str]] = {}
        if self.fitted is not None:
            learned = [column for column in columns if column.reads_texts]
            as_texts = {column.name: column.missing_words for column in learned}
        frames: dict[str, Frame] = {}
        for subset, path in self._paths.items():
            for train in frames.values():
                as_texts = {
                    str(name): MISSING_WORDS.difference(column.dropna().str.strip().unique())
                    for name, column in train.items()
                    if is_text(column) and kind_of(column)[0] not in FORMED
                }
            frames[subset] = self._read_subset(subset, path, texts, as_texts)
        if self._label_separator is None:
            return frames
        return self._divide_labels(frames, self._label_separator)

    def _read_targets(
        self, frames: Mapping[str, Frame], forms: dict[str, str]
    ) -> DataError | None:
        """Read amounts as numbers, and find the task; what is wrong is told beside the features' problems."""
        try:
            may_be_numbers = may_be_real(self._asked) and self._label_separator is None
            for frame in frames.values() if may_be_numbers else ():
                self.notes += parse_targets(frame, self.targets, forms)
            self.task = self._find_task(next(iter(frames.values())))
        except DataError as error:
            return error
        return None

    def _choose_features(
        self, frame: Frame, path: str, problem: DataError | None
    ) -> tuple[TableEncoder, Features]:
        """The features, and an encoder that is to learn them; what is wrong with the target is told, too."""
        check_columns(frame, self._asked_of_columns.exclude, path, "exclude")
        options = replace(self._asked_of_columns, targets=self.targets, split=self.split_columns)
        chosen = choose_features(frame, options, path, [] if problem is None else [problem])
        self.notes += chosen.notes
        encoder = TableEncoder(self._impute, self._max_categories, chosen)
        if is_csv(path):
            dialect = resolve_options(path, self.file_options)
            encoder.csv = {key: str(dialect[key]) for key in PLAIN}
        return encoder, chosen

    def _read_subset(
        self, subset: str, path: str, texts: Strings, as_texts: Mapping[str, Collection[str]]
    ) -> Frame:
        """The rows of a file that have a target, and a text, by their numbers in it."""
        option = _PATH_OPTIONS[subset]
        known = {name: words for name, words in as_texts.items() if name not in self.targets}
        written = [*self._asked_of_columns.categories, *as_texts]
        frame = read_table(
            path, option, texts=written, known=known, notes=self.notes, **self.file_options
        )
        dialect = resolve_options(path, self.file_options)
        unusual = [
            f"{key} {dialect[key]!r}"
            for key, plain in PLAIN.items()
            if self.file_options[key] == AUTO and dialect[key] != plain
        ]
        if unusual:
            self.notes.append(f"{path}: {' and '.join(unusual)} found")
        check_columns(frame, self.targets, path, "target" if subset != "test" else option)
        rows = frame
        if self._impute:
            rows = drop_missing_targets(frame, self.targets)
        for name in rows.columns if len(rows) < len(frame) else ():
            if is_text(rows[name]) and name not in (*written, *texts):
                parsed, whole = (
                    parse_texts(some[name], dialect["decimal"]) for some in (rows, frame)
                )
                if is_number(parsed) and not is_number(whole):  # other cells made it text
                    rows[name] = parsed
        if not len(rows):
            raise DataError(
                f"data.source.target={','.join(self.targets)}: no row of {path} has a value there",
                hint="choose another column",
            )
        if number := len(frame) - len(rows):
            subject = f"{pluralize(number, 'row')} of {len(frame):,} without a target"
            self.notes.append(f"{path}: {subject} {'are' if number > 1 else 'is'} left out")
        for name in self.targets:
            if (wrong := _missing(rows[name])).any():
                mend = ""
                if rows[name].isna().any():
                    mend = "data.source.missing=impute, or "
                raise DataError(
                    f"data: the target column {name!r} has no finite value in row "
                    f"{rows.index[int(wrong.argmax())]} (rows count from 0)",
                    hint=f"{mend}leave such rows out ({wrong.sum()} of {len(wrong)})",
                )
        for name in texts:
            key = self.input_option if self.fitted is None else option
            check_columns(rows, [name], path, key)
            rows = self._drop_blank_texts(rows, name, subset)
        return rows

    def _drop_blank_texts(self, frame: Frame, name: str, subset: str) -> Frame:
        """The rows that have a text."""
        noun = self.input_option
        key = f"data.source.{noun}={name}"
        blank = blank_texts(frame[name])
        if noun == "text" and is_number(frame[name]) and not blank.all():
            raise DataError(
                f"{key}: the column holds numbers, not texts",
                hint="choose another column; data=table predicts from numbers",
            )
        if blank.all():
            subject = describe_subset(subset)
            raise DataError(
                f"{key}: no row of {subject} has a value there", hint="choose another column"
            )
        if number := int(blank.sum()):
            left_out = f"{pluralize(number, 'row')} of {len(frame):,} with no {noun}"
            self.notes.append(f"{key}: {left_out} left out")
        return frame[~blank]

    def _describe_gaps(self, subset: str, frame: Frame, chosen: Features) -> None:
        missing = {name: gaps for name in chosen.names if (gaps := _missing(frame[name])).any()}
        if not missing:
            return
        middle = {
            name: "median" if name in chosen.forms or is_number(frame[name]) else "a category"
            for name in missing
        }
        filled = [
            f"{name} ({int(gaps.sum()):,}, {middle[name]})" for name, gaps in missing.items()
        ]
        rows = np.logical_or.reduce([*missing.values()]).sum()
        self.notes.append(
            f"{rows:,} of {len(frame):,} rows{' for testing' if subset == 'test' else ''} have missing "
            f"values, which are filled in: {join_first(filled)}; data.source.missing=error refuses them"
        )

    def _as_times(self, column: Values) -> Values:
        """Dates written as 31.12.2024 as such, so that they can be ordered; anything else as it is."""
        if is_text(column) and kind_of(column)[0] == "date":
            with suppress(DataError):
                return parse_dates(column, find_format(column, self._asked_of_columns.day_first))
        return column

    def _divide_labels(self, frames: Mapping[str, Frame], mark: str) -> dict[str, Frame]:
        """A column of 0 and 1 for each label in place of the target's."""
        name = self._label_column
        if not self.known_labels and not any(
            frame[name].astype(str).str.contains(mark, regex=False).any()
            for frame in frames.values()
        ):
            found = find_label_separator(next(iter(frames.values()))[name])
            raise DataError(
                f"data.source.label_separator={mark}: no cell of {name!r} contains it",
                hint=format_override("data.source.label_separator", found)
                if found
                else "leave it out",
            )
        around = rf"\s*{re.escape(mark)}\s*"
        texts = {subset: frame[name].astype(str).str.strip() for subset, frame in frames.items()}
        marks = {
            subset: column.str.replace(around, mark, regex=True).str.get_dummies(mark)
            for subset, column in texts.items()
        }
        self.targets = sorted(
            {*self.known_labels}.union(*(labels.columns for labels in marks.values()))
        )
        others = {name: frame.drop(columns=self._label_column) for name, frame in frames.items()}
        taken = [label for frame in others.values() for label in self.targets if label in frame]
        if taken or len(self.targets) < 2:
            wrong = f"expected labels, got {self.targets}"
            if taken:
                wrong = f"a column is called {taken[0]!r} as well"
            hint = "rename it, or leave it out"
            raise DataError(f"data.source.label_separator={mark}: {wrong}", hint=hint)
        return {
            subset: frame.join(marks[subset].reindex(columns=self.targets, fill_value=0))
            for subset, frame in others.items()
        }

    def _find_task(self, frame: Frame) -> str:
        if self._label_separator is not None:
            return Multilabel.name
        mark = ""
        if len(self.targets) == 1:
            mark = find_label_separator(frame[self.targets[0]])
        option = format_override("data.source.label_separator", mark)
        labels = f"several labels in a cell: {option} makes it multilabel"
        try:
            task, note = choose_task(self._asked, frame, self.targets)
        except DataError as error:
            if not mark:
                raise
            raise DataError(error.message, hint=f"{error.hint}; for {labels}") from error
        if note:
            self.notes += [note]
        if mark and task_of(task).by_class:
            self.notes.append(f"the target {self.targets[0]!r} seems to have {labels}")
        if task_of(task).by_class and len(self.targets) > 1:
            raise DataError(
                f"data.source.target: {len(self.targets)} columns for a {task} task, which has one",
                hint="data.source.task=multilabel, or data.source.task=regression",
            )
        return task


def learned_features(encoder: Any, asked: ColumnOptions) -> Features:
    """The columns of an encoder that has learned, whatever else the table holds."""
    forms = {
        column.name: column.form
        for column in encoder.columns
        if isinstance(column, Date) or (isinstance(column, Number) and is_amount(column.form))
    }
    names = [column.name for column in encoder.columns]
    return Features(names, forms, categories=asked.categories)


def may_be_real(asked: str) -> bool:
    """Whether targets may be numbers under the task that is asked for."""
    return asked == "auto" or task_of(asked).has_real_targets or task_of(asked).has_heads


def column_options(
    target: Any, features: Any = None, exclude: Any = (), keep: Any = (), categories: Any = ()
) -> ColumnOptions:
    """Columns that a config names, one or several under each key."""
    targets = as_names(target)
    if target is not None and not targets:
        raise ValueError(f"target={target!r}: expected the name of a column, or a list of them")
    used = features and as_names(features)
    return ColumnOptions(targets, used, as_names(exclude), as_names(keep), as_names(categories))


def read_columns(frame: Frame, chosen: Features) -> None:
    """Dates as such, unless there are others among them, and categories as text, whatever they look like."""
    for name, form in chosen.forms.items():
        if is_amount(form) or form == TIME:
            continue  # pages show them as they are written
        dates = parse_dates(frame[name], form)
        if (dates.isna() == frame[name].isna()).all():
            frame[name] = dates
    for name in {*chosen.categories}.intersection(chosen.names):
        if is_number(frame[name]):
            frame[name] = category_texts(frame[name])
        elif is_text(frame[name]):
            frame[name] = as_integers(frame[name])
        elif is_category(frame[name]):
            frame[name] = frame[name].astype(object)


def _missing(column: Values) -> Bools:
    """Where a column has no value, or an infinite one."""
    missing: Bools = column.isna().to_numpy()
    if column.dtype.kind == "f" and isinstance(column.dtype, np.dtype):
        missing = missing | np.isinf(column.to_numpy())
    return missing
