"""A CSV, Parquet, Feather or Excel file: one row per sample, one column to predict."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
import pandas as pd
import torch

from assay.data.samples import Unfitted
from assay.data.source_info import info_of
from assay.data.subset import SUBSET_WORDS
from assay.data.tabular.amount import TIME, is_amount
from assay.data.tabular.column_kind import (
    ColumnOptions,
    Features,
    check_columns,
    choose_features,
    drop_missing_targets,
    find_format,
    is_category,
    is_number,
    is_real,
    is_text,
    join_names,
    kind_of,
    parse_dates,
    parse_targets,
    split_hints,
    task_of_columns,
)
from assay.data.tabular.table_encoder import TableEncoder, blank_texts, category_texts
from assay.data.tabular.table_file import (
    AUTO,
    PLAIN,
    as_integers,
    is_csv,
    parse_texts,
    prepare_rows,
    read_table,
    resolve_options,
)
from assay.data.tokenizer import TextEncoder
from assay.errors import DataError
from assay.quoting import format_override, join_first, pluralize
from assay.task.classification import Binary, Multilabel
from assay.task.predictions import SIGN, name_outputs
from assay.task.reconstruction import Reconstruction
from assay.task.task import describe_subset
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from assay.data.tokenizer import Kind
    from assay.data.types import Bools, Floats, Frame, Strings, Values


@final
class TableTargets:
    """The targets of a table, encoded for its task."""

    def __init__(
        self,
        task: str,
        names: Sequence[str],
        values: Mapping[str, Collection[Any]],
        positive: str | float | bool | None = None,
    ) -> None:
        self._task = task_of(task)
        self._names = list(names)
        self.notes: list[str] = []
        self.is_reversed = False
        self._classes: dict[str, list[Any]] = {}
        for name, classes in values.items():
            is_mixed = len({type(value) for value in classes}) > 1
            ordered = sorted(classes, key=str if is_mixed else None)
            self._classes[name] = sorted(ordered, key=lambda value: _is_class(positive, str(value)))
            self.is_reversed = self._classes[name] != ordered
        self.class_names = self._output_names()
        is_known = task == Binary.name and any(_is_class(positive, name) for name in self.class_names)
        if positive is not None and not is_known:
            classes = f" of the classes {join_first(sorted(self.class_names))}" if self.class_names else ""
            raise DataError(
                f"data.source.positive={positive}: expected a class of a binary task, got {task}{classes}",
                hint="data.source.positive=null takes the last of two in alphabetical order",
            )

    def _output_names(self) -> tuple[str, ...]:
        if self._task.has_real_targets:
            return ()
        if self._task.by_class:
            return tuple(map(str, self._classes[self._names[0]]))
        if not self._task.has_heads:
            return tuple(self._names)
        if signed := [name for name in self._names if SIGN in name]:
            raise DataError(
                f"data.source.target: the column {signed[0]!r} holds {SIGN!r}, which stands between a target "
                "and its classes",
                hint="rename the column",
            )
        kinds = []
        outputs = []
        for name in self._names:
            classes = [str(value) for value in self._classes.get(name, ())]
            kinds.append(f"{name} as one of {len(classes)} classes" if classes else f"{name} as a number")
            outputs += name_outputs(name, classes)
        self.notes.append(f"predicted side by side: {', '.join(kinds)}")
        return tuple(outputs)

    def encode(self, frame: Frame) -> Tensor:
        """Targets: int64 `[N]` of classes, int64 `[N, L]` of labels, float32 `[N, T]` of all else."""
        columns = []
        for name in self._names:
            codes = {value: index for index, value in enumerate(self._classes.get(name, ()))}
            column = frame[name].map(codes).to_numpy(np.int64, copy=True) if codes else None
            columns.append(self._numbers(frame[name]) if column is None else column)
        if self._task.by_class:
            return torch.from_numpy(columns[0])
        exact = np.column_stack([np.empty((len(frame), 0)), *columns])
        if self._task.has_real_targets or self._task.has_heads:
            return torch.from_numpy(exact.astype(np.float32))
        if not np.isin(exact, (0, 1)).all():
            raise DataError(
                f"data.source.target: {', '.join(self._names)} hold values other than 0 and 1, not labels",
                hint="data.source.task=multitask, or data.source.task=regression",
            )
        return torch.from_numpy(exact.astype(np.int64))

    def _numbers(self, column: Values) -> Floats:
        try:
            exact = column.to_numpy(dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"data.source.target: {column.name} cannot be converted to numbers "
                f"({self._task.name}): {error}",
                hint="data.source.task=multiclass, or choose another target",
            ) from error
        with np.errstate(over="ignore"):
            lost = np.abs(exact - exact.astype(np.float32)).max()
        if exact.std() > 0 and not lost <= 1e-2 * exact.std():
            raise DataError(
                f"data.source.target: the values of {column.name!r} differ too little for 32-bit numbers of "
                f"their size (mean {exact.mean():.6g}, deviation {exact.std():.3g})",
                hint="subtract a constant, or scale the column",
            )
        return exact


def _is_class(positive: str | float | bool | None, name: str) -> bool:
    """Whether `positive` means a class; YAML reads yes as true, and 1 may be written 1.0."""
    if isinstance(positive, bool):
        return name.casefold() in (("true", "yes") if positive else ("false", "no"))
    text = f"{positive:g}" if isinstance(positive, float) else positive
    return name == text


def class_columns(task: str, names: Strings, frame: Frame) -> list[str]:
    """The targets that are classes, not numbers."""
    if task_of(task).has_heads:
        return [name for name in names if not is_real(frame[name], name)[0]]
    return list(names[:1]) if task_of(task).by_class else []


@final
class Table:
    r"""Columns of numbers, categories and dates, read with pandas.

    Numbers are taken as they are (and normalised by `data.transform.normalize`), categories become a column
    each, dates those of year, month, weekday, hour and days since the first that vary. What that needs to
    know (categories, values to fill in, the first date) is learned from the training rows alone. Columns of
    ids, free text, a single value or nothing at all are left out, which `notes` says. A column that gives the
    target away is refused.

    Args:
        path: A .csv or .tsv (also compressed), .parquet, .feather or .xlsx file; all samples, or those for
            training.
        target: Column to predict, or several: labels of a multilabel task, numbers of a regression, or
            classes and numbers side by side (`multitask`); None for a task that learns from the other columns
            alone, see `data.task`.
        test_path: A file of the same columns for the test; None: a share of `path`, see `data.split`.
        features: Columns to predict from, whatever they hold; None for all others that are fit for it.
        exclude: Columns to leave out.
        keep: Columns to use although they look like ids or free text (as categories), or tell the target.
        categories: Columns to take as categories although they hold numbers.
        day_first: Whether 05/01/2024 is in January; None: by the dates of the column that tell.
        task: `auto` goes by the target, see `assay.data.tabular.column_kind`.
        missing: `impute`: the median of a column of numbers, a category of its own in one of categories, and
            rows without a target are left out; or `error`.
        separator: Between the columns of a CSV file: one character, `\s+` for any white space, or `auto`, see
            `assay.data.tabular.table_file`.
        decimal: Decimal point of a CSV file, or `auto`.
        encoding: Of a CSV file.
        na_values: What stands for a missing value beside empty cells, such as `?` or `-999`. `auto`: words
            such as NA where columns of numbers have them, too; in these they always are missing.
        sheet: Of an Excel file; None: its only one.
        header: Whether the first row of a CSV or Excel file holds names; if not, columns are c0, c1, …
        skip_rows: Lines above it, such as a title.
        label_separator: Between the labels of a cell, such as `;`: the target is that of a multilabel task.
        max_categories: Columns a categorical column may become; the rarest categories share the last.
        positive: Of two classes the one that precision, recall and the like are of; None: the last one in
            alphabetical order, or the larger of two numbers.
        text: Column of texts to predict from, and from nothing else; rows without one are left out. The
            tokenizer is trained on the training rows alone, or comes with the model.
        tokenizer: `bpe` (byte pairs) or `word`, see `assay.data.tokenizer.Tokenizer`; `auto`: that of
            the model's pretrained weights, else `word` below 10,000 training texts and `bpe` above.
        vocab_size: Tokens at most.
        max_length: Tokens of a text; what comes after them is cut off, which `notes` says.
        lowercase: Fold capital letters, and compatible forms of characters.

    Attributes:
        is_reversed: Whether `positive` has put the two classes in another order; rows are divided as without.
        text_encoder: Makes token ids of the texts; None without them.
        targets: Columns to predict.
        file_options: How files are read, for `read_table`.
        split_columns: Columns that samples are divided by, by the keys that name them, set before `read()`:
            features only where `keep` or `features` names them.
        fitted: An encoder that has learned, set before `read()`: its columns are the features, whatever else
            the table holds or looks like.
        known_labels: Labels of a trained model, set before `read()`: those that no cell names are 0.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    info = info_of("assay.data.table.Table")

    def __init__(
        self,
        path: str,
        target: str | Sequence[str] | None,
        *,
        test_path: str | None = None,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        keep: Sequence[str] = (),
        categories: Sequence[str] = (),
        day_first: bool | None = None,
        task: str = "auto",
        missing: Literal["impute", "error"] = "impute",
        separator: str = AUTO,
        decimal: str = AUTO,
        encoding: str = "utf-8",
        na_values: str | float | Sequence[str | float] = AUTO,
        sheet: str | None = None,
        header: bool | Literal["auto"] = AUTO,
        skip_rows: int = 0,
        label_separator: str | None = None,
        max_categories: int | None = 100,
        positive: str | float | bool | None = None,
        text: str | None = None,
        tokenizer: Kind | Literal["auto"] = "auto",
        vocab_size: int = 8192,
        max_length: int = 256,
        lowercase: bool = True,
    ) -> None:
        if task != "auto":
            task_of(task)
        if len(separator) != 1 and separator not in (r"\s+", AUTO):  # a regular expression may never end
            raise ValueError(rf"separator={separator!r}: expected one character, \s+ or auto")
        self._paths = {"all": path} if test_path is None else {"train": path, "test": test_path}
        codes = AUTO if na_values == AUTO else _as_names(na_values)
        typed = column_options(target, features, exclude, keep, categories)
        self._asked_of_columns = replace(typed, day_first=day_first, na_values=() if codes == AUTO else codes)
        self.targets = typed.targets
        self.text_encoder: TextEncoder | None = None
        if text is not None:
            if text in self.targets:
                raise ValueError(f"text={text!r}: expected a column other than the target")
            of_columns = (features, day_first, *exclude, *keep, *categories)
            if any(value is not None for value in of_columns) or missing != "impute" or max_categories != 100:
                raise ValueError(
                    f"text={text!r}: expected no options of other columns beside it, such as features, keep, "
                    "missing and max_categories"
                )
            if target is None:
                raise ValueError("target=None: expected the name of a column")
            self.text_encoder = TextEncoder(
                text, tokenizer=tokenizer, vocab_size=vocab_size, max_length=max_length, lowercase=lowercase
            )
        if task != "auto" and task_of(task).learns_from_inputs != (target is None):
            expected = "null" if target is not None else "the name of a column"
            raise ValueError(f"target={target!r}: expected {expected} for task={task!r}")
        self._asked: str = task
        self.file_options: dict[str, Any] = {
            "separator": separator,
            "decimal": decimal,
            "encoding": encoding,
            "na_values": codes,
            "sheet": sheet,
            "header": header,
            "skip_rows": skip_rows,
        }
        if label_separator is not None and (len(self.targets) != 1 or not label_separator):
            raise ValueError(f"label_separator={label_separator!r}: expected a character, and one target")
        if skip_rows < 0:
            raise ValueError(f"skip_rows={skip_rows}: expected an int >= 0")
        self._label_separator, self._label_column = label_separator, "".join(self.targets[:1])
        self.known_labels: Strings = ()
        self._impute = missing == "impute"
        self._max_categories = max_categories
        self._positive = positive
        self.is_reversed = False
        self.task: str = "multiclass"
        self.class_names: tuple[str, ...] = ()
        self._notes: list[str] = []
        self.split_columns: Mapping[str, str] = {}
        self.fitted: TableEncoder | TextEncoder | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided about the rows and columns and became of the texts, a sentence each."""
        return (*self._notes, *(self.text_encoder.notes if self.text_encoder is not None else ()))

    def read(self) -> Mapping[str, Unfitted]:
        """The subsets given, to be encoded once the training rows are known: float32 `[N, F]`, or tokens."""
        self._notes = []
        if self._label_separator is not None:
            self.targets = [self._label_column]  # an earlier reading has put labels in its place
        encoder = self.fitted or self.text_encoder
        texts = [column.name for column in encoder.columns if column.kind == "text"] if encoder else []
        frames = {subset: self._read_subset(subset, path, texts) for subset, path in self._paths.items()}
        if self._label_separator is not None:
            frames = self._divide_labels(frames, self._label_separator)
        first = next(iter(frames.values()))
        path = next(iter(self._paths.values()))
        forms = dict(getattr(encoder, "target_forms", {}))
        problem: DataError | None = None
        try:
            for frame in (
                frames.values() if may_be_real(self._asked) and self._label_separator is None else ()
            ):
                self._notes += parse_targets(frame, self.targets, forms)
            self.task = self._find_task(first)
        except DataError as error:
            problem = error
        if problem is not None and encoder is not None:
            raise problem
        categories = [*self._asked_of_columns.categories, *declared_categories(first, self._asked_of_columns)]
        if encoder is not None:
            chosen = learned_features(encoder)
        else:
            asked = self._asked_of_columns
            left_out = [*self._check_split_columns(first, path), *self._find_subset_columns(first)]
            exclude = [*asked.exclude, *left_out]
            options = replace(asked, targets=self.targets, exclude=exclude, categories=categories)
            # What is wrong with them and with the target is told together.
            chosen = choose_features(first, options, path, [] if problem is None else [problem])
            self._notes += chosen.notes
            encoder = TableEncoder(self._impute, self._max_categories, forms=chosen.forms)
            encoder.target_forms = forms
            if is_csv(path):
                dialect = resolve_options(path, self.file_options)
                encoder.csv = {key: str(dialect[key]) for key in PLAIN}
        hints = {} if self.split_columns else split_hints(first.drop(columns=self.targets), chosen.kinds)
        for subset, frame in frames.items():
            check_columns(frame, chosen.names, self._paths[subset], _path_option(subset))
            read_columns(frame, chosen.forms, categories)
            if self.fitted is not None:
                frame[chosen.names] = prepare_rows(frame, self.fitted.columns, self.file_options["na_values"])
            if self.fitted is None and self._impute:
                self._describe_gaps(subset, frame, chosen)
        all_targets = pd.concat([frame[self.targets] for frame in frames.values()])
        names = class_columns(self.task, self.targets, all_targets)
        classes = {name: all_targets[name].unique().tolist() for name in names}
        positive = self._positive if self.fitted is None else None  # else classes go by their names
        targets = TableTargets(self.task, self.targets, classes, positive)
        self._notes += targets.notes
        self.class_names = targets.class_names
        self.is_reversed = targets.is_reversed
        named = (*self.split_columns.values(), *hints)
        subsets = {}
        for subset, frame in frames.items():
            raw = frame[chosen.names]
            times = {name: self._as_times(frame[name]) for name in named if name in frame}
            # Numbers of the rows in their file, where some were left out.
            rows = [] if frame.index[-1] == len(frame) - 1 else list(map(str, frame.index))
            subsets[subset] = Unfitted(raw, targets.encode(frame), encoder, rows, times, hints)
        return subsets

    def _read_subset(self, subset: str, path: str, texts: Strings) -> Frame:
        """The rows of a file that have a target, and a text, by their numbers in it."""
        option = _path_option(subset)
        categories = self._asked_of_columns.categories
        frame = read_table(path, option, **self.file_options, texts=categories, notes=self._notes)
        dialect = resolve_options(path, self.file_options)
        unusual = [
            f"{key} {dialect[key]!r}"
            for key, plain in PLAIN.items()
            if self.file_options[key] == AUTO and dialect[key] != plain
        ]
        if unusual:
            self._notes.append(f"{path}: {' and '.join(unusual)} found")
        check_columns(frame, self.targets, path, "target" if subset != "test" else option)
        rows = drop_missing_targets(frame, self.targets) if self._impute else frame
        for name in rows.columns if len(rows) < len(frame) else ():
            if is_text(rows[name]) and name not in (*categories, *texts):
                parsed, whole = (parse_texts(some[name], dialect["decimal"]) for some in (rows, frame))
                if is_number(parsed) and not is_number(whole):  # other cells made it text
                    rows[name] = parsed
        if not len(rows):
            raise DataError(
                f"data.source.target={','.join(self.targets)}: no row of {path} has a value there",
                hint="choose another column",
            )
        if number := len(frame) - len(rows):
            subject = f"{pluralize(number, 'row')} of {len(frame):,} without a target"
            self._notes.append(f"{path}: {subject} {'are' if number > 1 else 'is'} left out")
        for name in self.targets:
            if (wrong := _missing(rows[name])).any():
                mend = "data.source.missing=impute, or " if rows[name].isna().any() else ""
                raise DataError(
                    f"data: the target column {name!r} has no finite value in row "
                    f"{rows.index[int(wrong.argmax())]} (rows count from 0)",
                    hint=f"{mend}leave such rows out ({wrong.sum()} of {len(wrong)})",
                )
        for name in texts:
            check_columns(rows, [name], path, option if self.fitted is not None else "text")
            rows = self._drop_blank_texts(rows, name, subset)
        return rows

    def _drop_blank_texts(self, frame: Frame, name: str, subset: str) -> Frame:
        """The rows that have a text."""
        key = f"data.source.text={name}"
        blank = blank_texts(frame[name])
        if is_number(frame[name]) and not blank.all():
            raise DataError(
                f"{key}: the column holds numbers, not texts",
                hint="choose another column; data=table predicts from numbers",
            )
        if blank.all():
            subject = describe_subset(subset)
            raise DataError(f"{key}: no row of {subject} has a text there", hint="choose another column")
        if number := int(blank.sum()):
            self._notes.append(f"{key}: {pluralize(number, 'row')} of {len(frame):,} without a text left out")
        return frame[~blank]

    def _describe_gaps(self, subset: str, frame: Frame, chosen: Features) -> None:
        missing = {name: gaps for name in chosen.names if (gaps := _missing(frame[name])).any()}
        if not missing:
            return
        middle = {
            name: "median" if name in chosen.forms or is_number(frame[name]) else "a category"
            for name in missing
        }
        filled = [f"{name} ({int(gaps.sum()):,}, {middle[name]})" for name, gaps in missing.items()]
        rows = np.logical_or.reduce([*missing.values()]).sum()
        self._notes.append(
            f"{rows:,} of {len(frame):,} rows{' for testing' if subset == 'test' else ''} have missing "
            f"values, which are filled in: {join_names(filled)}; data.source.missing=error refuses them"
        )

    def _as_times(self, column: Values) -> Values:
        """Dates written as 31.12.2024 as such, so that they can be ordered; anything else as it is."""
        if is_text(column) and kind_of(column)[0] == "date":
            with suppress(DataError):
                return parse_dates(column, find_format(column, self._asked_of_columns.day_first))
        return column

    def _check_split_columns(self, frame: Frame, path: str) -> list[str]:
        """Columns that divide the samples and are not features."""
        options = self._asked_of_columns
        split_names = list[str]()
        for key, name in self.split_columns.items():
            check_columns(frame, [name], path, key)
            if name in self.targets:
                raise DataError(f"{key}: {name!r} is the target", hint="name another column")
            if options.features is None and name not in (*options.keep, *options.exclude):
                split_names.append(name)
                self._notes.append(
                    f"{key}={name}: it divides the samples and is not a feature; to use it as one as well: "
                    + format_override("data.source.keep", [name])
                )
        return split_names

    def _find_subset_columns(self, frame: Frame) -> list[str]:
        """Columns of words such as train and test, which are no features."""
        asked = self._asked_of_columns
        others = (*self.targets, *asked.keep, *asked.exclude, *self.split_columns.values())
        names = list[str]()
        for name in frame.columns if asked.features is None else ():
            if name in others or not is_text(frame[name]):
                continue
            words = {str(value).strip().casefold() for value in frame[name].dropna().unique()[:10]}
            if len(words) > 1 and words <= SUBSET_WORDS.keys():
                names.append(name)
                use = format_override("data.split.column", name)
                keep = format_override("data.source.keep", [*asked.keep, name])
                self._notes.append(
                    f"left out of the features: {name}, which says {join_first(sorted(words))}; to divide "
                    f"the samples by it: {use}; as a feature: {keep}"
                )
        return names

    def _divide_labels(self, frames: Mapping[str, Frame], mark: str) -> dict[str, Frame]:
        """A column of 0 and 1 for each label in place of the target's."""
        name = self._label_column
        if not self.known_labels and not any(
            frame[name].astype(str).str.contains(mark, regex=False).any() for frame in frames.values()
        ):
            found = find_label_separator(next(iter(frames.values()))[name])
            raise DataError(
                f"data.source.label_separator={mark}: no cell of {name!r} contains it",
                hint=format_override("data.source.label_separator", found) if found else "leave it out",
            )
        around = rf"\s*{re.escape(mark)}\s*"
        texts = {subset: frame[name].astype(str).str.strip() for subset, frame in frames.items()}
        marks = {
            subset: column.str.replace(around, mark, regex=True).str.get_dummies(mark)
            for subset, column in texts.items()
        }
        self.targets = sorted({*self.known_labels}.union(*(labels.columns for labels in marks.values())))
        others = {name: frame.drop(columns=self._label_column) for name, frame in frames.items()}
        taken = [label for frame in others.values() for label in self.targets if label in frame]
        if taken or len(self.targets) < 2:
            wrong = (
                f"a column is called {taken[0]!r} as well"
                if taken
                else f"expected labels, got {self.targets}"
            )
            hint = "rename it, or leave it out"
            raise DataError(f"data.source.label_separator={mark}: {wrong}", hint=hint)
        return {
            subset: frame.join(marks[subset].reindex(columns=self.targets, fill_value=0))
            for subset, frame in others.items()
        }

    def _find_task(self, frame: Frame) -> str:
        if self._label_separator is not None:
            return Multilabel.name
        mark = find_label_separator(frame[self.targets[0]]) if len(self.targets) == 1 else ""
        option = format_override("data.source.label_separator", mark)
        labels = f"several labels in a cell: {option} makes it multilabel"
        try:
            task, note = choose_task(self._asked, frame, self.targets)
        except DataError as error:
            if not mark:
                raise
            raise DataError(error.message, hint=f"{error.hint}; for {labels}") from error
        self._notes += [note] if note else []
        if mark and task_of(task).by_class:
            self._notes.append(f"the target {self.targets[0]!r} seems to have {labels}")
        if task_of(task).by_class and len(self.targets) > 1:
            raise DataError(
                f"data.source.target: {len(self.targets)} columns for a {task} task, which has one",
                hint="data.source.task=multilabel, or data.source.task=regression",
            )
        return task


def find_label_separator(target: Values) -> str:
    """What stands between labels of a target: fewer of them make up all of its texts; empty for classes."""
    if not is_text(target):
        return ""
    texts = target.dropna().unique()
    for mark in ";|,/":
        divided = [{label.strip() for label in str(text).split(mark)} for text in texts]
        labels = set[str]().union(*divided)
        numbers = {*map(len, divided)}
        if "" not in labels and 1 < len(labels) < len(divided) and 1 in numbers and max(numbers) > 1:
            return mark
    return ""


def declared_categories(frame: Frame, asked: ColumnOptions) -> list[str]:
    """Features that the file itself says are categories."""
    names = frame.columns[[isinstance(dtype, pd.CategoricalDtype) for dtype in frame.dtypes]]
    return [name for name in names if name not in (*asked.targets, *asked.categories)]


def learned_features(encoder: TableEncoder | TextEncoder) -> Features:
    """The columns of an encoder that has learned, whatever else the table holds."""
    forms = {
        column.name: column.form
        for column in encoder.columns
        if column.kind == "date" or (column.kind == "number" and is_amount(column.form))
    }
    return Features([column.name for column in encoder.columns], forms)


def _path_option(subset: str) -> str:
    """Of the source, which names the file of a subset."""
    return "test_path" if subset == "test" else "path"


def may_be_real(asked: str) -> bool:
    """Whether targets may be numbers under the task that is asked for."""
    return asked == "auto" or task_of(asked).has_real_targets or task_of(asked).has_heads


def choose_task(asked: str, frame: Frame, targets: Strings) -> tuple[str, str]:
    """The task that is asked for, else the one of the target columns, and a note where that is ambiguous."""
    if asked != "auto":
        return asked, ""
    return task_of_columns(frame, targets) if targets else (Reconstruction.name, "")


def column_options(target: Any, features: Any, exclude: Any, keep: Any, categories: Any) -> ColumnOptions:
    """Columns that a config names, one or several under each key."""
    targets = _as_names(target)
    used = None if features is None else _as_names(features)
    if target is not None and not targets:
        raise ValueError(f"target={target!r}: expected the name of a column, or a list of them")
    excluded, kept, as_categories = map(_as_names, (exclude, keep, categories))
    return ColumnOptions(targets, used, excluded, kept, as_categories)


def _as_names(value: Any) -> list[str]:
    names = [value] if isinstance(value, str | int | float) else list(value or ())
    return [str(name) for name in names]


def read_columns(frame: Frame, forms: Mapping[str, str], categories: Strings) -> None:
    """Dates as such, unless there are others among them, and categories as text, whatever they look like."""
    for name, form in forms.items():
        if is_amount(form) or form == TIME:
            continue  # pages show them as they are written
        dates = parse_dates(frame[name], form)
        if (dates.isna() == frame[name].isna()).all():
            frame[name] = dates
    for name in categories:
        if name in frame and is_number(frame[name]):
            frame[name] = category_texts(frame[name]).reindex(frame.index)
        elif name in frame and is_text(frame[name]):
            frame[name] = as_integers(frame[name])
        elif name in frame and is_category(frame[name]):
            frame[name] = frame[name].astype(object)


def _missing(column: Values) -> Bools:
    """Where a column has no value, or an infinite one."""
    infinite = column.isin([np.inf, -np.inf]) if is_number(column) else False
    return (column.isna() | infinite).to_numpy()
