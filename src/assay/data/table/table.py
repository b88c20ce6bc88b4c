"""A CSV, Parquet, Feather or Excel file: one row per sample, one column to predict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, final

from assay.data.table.table_file import AUTO
from assay.data.table.table_source import TableSource, column_options

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class Table(TableSource):
    r"""Columns of numbers, categories and dates, read with pandas.

    Numbers are taken as they are (and normalised by `data.transform.normalize`), those with a long tail by
    their quantiles. Categories become codes, or a column each where the model takes no codes, and dates their
    parts and cycles that vary. Texts that share character n-grams become up to 30 numbers. What that needs to
    know is learned from the training rows alone. Columns of ids, other texts, one value or nothing at all are
    left out, which `notes` says. A column that gives the target away is refused.

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
        task: `auto` goes by the target, see `assay.data.table.table_targets`.
        missing: `impute`: the median of a column of numbers, a category of its own in one of categories, and
            rows without a target are left out; or `error`.
        separator: Between the columns of a CSV file: one character, `\s+` for any white space, or `auto`, see
            `assay.data.table.table_file`.
        decimal: Decimal point of a CSV file, or `auto`.
        encoding: Of a CSV file.
        na_values: What stands for a missing value beside empty cells, such as `?` or `-999`. `auto`: words
            such as NA where columns of numbers have them, too; in these they always are missing.
        sheet: Of an Excel file; None: its only one.
        header: Whether the first row of a CSV or Excel file holds names; if not, columns are c0, c1, …
        skip_rows: Lines above it, such as a title.
        label_separator: Between the labels of a cell, such as `;`: the target is that of a multilabel task.
        max_categories: Categories of a column that are told apart; the rarest ones share the last.
        positive: Of two classes the one that precision, recall and the like are of; None: the last one in
            alphabetical order, or the larger of two numbers.

    Attributes:
        is_reversed: Whether `positive` has put the two classes in another order; rows are divided as without.
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
        max_categories: int | None = 1000,
        positive: str | float | bool | None = None,
    ) -> None:
        columns = column_options(target, features, exclude, keep, categories)
        super().__init__(
            path,
            test_path,
            replace(columns, day_first=day_first),
            {
                "separator": separator,
                "decimal": decimal,
                "encoding": encoding,
                "na_values": na_values,
                "sheet": sheet,
                "header": header,
                "skip_rows": skip_rows,
            },
            task=task,
            label_separator=label_separator,
            positive=positive,
            impute=missing == "impute",
            max_categories=max_categories,
        )
