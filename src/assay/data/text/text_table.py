"""A file of a table with a column of texts and one to predict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

from assay.data.table.table_file import AUTO
from assay.data.table.table_source import TableSource, column_options
from assay.data.text.tokenizer import TextEncoder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.data.text.tokenizer import Kind


@final
class TextTable(TableSource):
    """One column of a table as texts, of which token ids are made; rows without a text are left out.

    The tokenizer is trained on the training rows alone, or comes with the model.

    Args:
        path: As for `assay.data.table.table.Table`.
        target: Column to predict, or several, as for `Table`.
        text: Column of texts to predict from.
        test_path: As for `Table`, and so are the options of files.
        task: As for `Table`.
        separator: As for `Table`.
        decimal: As for `Table`.
        encoding: As for `Table`.
        na_values: As for `Table`.
        sheet: As for `Table`.
        header: As for `Table`.
        skip_rows: As for `Table`.
        label_separator: As for `Table`.
        positive: As for `Table`.
        tokenizer: `bpe` (byte pairs) or `word`, see `assay.data.text.tokenizer.Tokenizer`; `auto`: that of
            the model's pretrained weights, else `word` below 10,000 training texts and `bpe` above.
        vocab_size: Tokens at most.
        max_length: Tokens of a text; what comes after them is cut off, which `notes` says.
        lowercase: Fold capital letters, and compatible forms of characters.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    def __init__(
        self,
        path: str,
        target: str | Sequence[str],
        text: str,
        *,
        test_path: str | None = None,
        task: str = "auto",
        separator: str = AUTO,
        decimal: str = AUTO,
        encoding: str = "utf-8",
        na_values: str | float | Sequence[str | float] = AUTO,
        sheet: str | None = None,
        header: bool | Literal["auto"] = AUTO,
        skip_rows: int = 0,
        label_separator: str | None = None,
        positive: str | float | bool | None = None,
        tokenizer: Kind | Literal["auto"] = "auto",
        vocab_size: int = 8192,
        max_length: int = 256,
        lowercase: bool = True,
    ) -> None:
        if target is None:
            raise ValueError("target=None: expected the name of a column")
        columns = column_options(target)
        if text in columns.targets:
            raise ValueError(f"text={text!r}: expected a column other than the target")
        super().__init__(
            path,
            test_path,
            columns,
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
        )
        self.text_encoder = TextEncoder(
            text,
            tokenizer=tokenizer,
            vocab_size=vocab_size,
            max_length=max_length,
            lowercase=lowercase,
        )
