from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from assay.data.source_info import info_of
from assay.data.table import Table
from assay.data.tabular.table_file import AUTO
from assay.data.tokenizer import TextEncoder
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.data.samples import Unfitted
    from assay.data.tokenizer import Kind


@final
class TextTable:
    """Texts of one column; the tokenizer is trained on the training rows alone, or comes with the model.

    Rows without a text or a target are left out, which `notes` says.

    Args:
        path: As for `assay.data.table.Table`; also a .jsonl file.
        text: Column of texts.
        target: Column to predict, or several: labels of a multilabel task, numbers of a regression.
        test_path: A file of the same columns for the test; None: a share of `path`, see `data.split`.
        task: As for `assay.data.table.Table`.
        tokenizer: `bpe` (byte pairs) or `word`, see `assay.data.tokenizer.Tokenizer`; `auto`: that of
            the model's pretrained weights, else `word` below 10,000 training texts and `bpe` above.
        vocab_size: Tokens at most.
        max_length: Tokens of a text; what comes after them is cut off, which `notes` says.
        lowercase: Fold capital letters, and compatible forms of characters.
        separator: As for `assay.data.table.Table`, and so the others.
        decimal: As there.
        encoding: As there.
        na_values: As there.
        sheet: As there.

    Attributes:
        text_encoder: Makes token ids of the texts.
        text: As given.
        targets: Columns to predict.
        file_options: As in `assay.data.table.Table`, and so `split_columns`.
        fitted: An encoder that has learned, set before `read()`.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    info = info_of("assay.data.text_table.TextTable")

    def __init__(
        self,
        path: str,
        text: str,
        target: str | Sequence[str],
        *,
        test_path: str | None = None,
        task: str = "auto",
        tokenizer: Kind | Literal["auto"] = "auto",
        vocab_size: int = 8192,
        max_length: int = 256,
        lowercase: bool = True,
        separator: str = AUTO,
        decimal: str = AUTO,
        encoding: str = "utf-8",
        na_values: Sequence[str | float] = (),
        sheet: str | None = None,
    ) -> None:
        self._table = Table(
            path,
            target,
            test_path=test_path,
            features=[text],
            task=task,
            separator=separator,
            decimal=decimal,
            encoding=encoding,
            na_values=na_values,
            sheet=sheet,
        )
        self.targets, self.text = self._table.targets, text
        if text in self.targets:
            raise ValueError(f"text={text!r}: expected a column other than the target")
        self.text_encoder = TextEncoder(
            text, tokenizer=tokenizer, vocab_size=vocab_size, max_length=max_length, lowercase=lowercase
        )
        self.fitted: TextEncoder | None = None
        self.file_options = self._table.file_options
        self.split_columns: Mapping[str, str] = {}
        self.task: str = "multiclass"
        self.class_names: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What was decided about the rows and became of the texts, a sentence each."""
        return (*self._table.notes, *self.text_encoder.notes)

    def read(self) -> Mapping[str, Unfitted]:
        """The subsets given, to be encoded once the training rows are known: token ids `[N, max_length]`."""
        self._table.split_columns = self.split_columns
        self._table.fitted = encoder = self.fitted or self.text_encoder
        subsets = self._table.read()
        self.task, self.class_names = self._table.task, self._table.class_names
        first = next(iter(subsets.values())).raw[encoder.column]
        if self.fitted is None and len(first) > 1 and first.nunique() == 1:
            raise DataError(
                f"data.source.text={self.text}: all {len(first):,} texts are equal: nothing can be learnt",
                hint="choose another column",
            )
        return subsets
