"""Texts as one tensor of token ids, padded at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import torch

from assay.data.tabular.table_encoder import Column, check_columns
from assay.data.text.tokenizer import UNKNOWN, Kind, Tokenizer, check_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor

_BLOCK = 1024
_SIGNS = 64
"""Characters per token that are looked at, at most: the time for a text is bounded, however long it is."""
LONGEST = 65_536


@final
class TextEncoder:
    """Token ids of a column of texts, by a tokenizer that is trained on the training rows alone.

    Args:
        column: Its name.
        tokenizer: As `kind` of `assay.data.text.tokenizer.Tokenizer`.
        vocab_size: Tokens at most.
        max_length: Tokens of a text; what comes after them is cut off.
        lowercase: As for the tokenizer.

    Attributes:
        columns: The one column.
        max_length: As given.
        csv: As in `assay.data.tabular.table_encoder.TableEncoder`.

    Raises:
        ValueError: An argument is out of its range.
    """

    def __init__(
        self,
        column: str,
        *,
        tokenizer: Kind = "bpe",
        vocab_size: int = 8192,
        max_length: int = 256,
        lowercase: bool = True,
    ) -> None:
        check_tokenizer(tokenizer, vocab_size)
        check_length(max_length)
        self.columns: tuple[Column, ...] = (Column(column, "text"),)
        self.max_length = max_length
        self.csv: dict[str, str] = {}
        self._options: dict[str, Any] = {"kind": tokenizer, "vocab_size": vocab_size, "lowercase": lowercase}
        self._tokenizer: Tokenizer | None = None
        self._lengths: list[NDArray[np.int64]] | None = None

    @property
    def column(self) -> str:
        """Name of the column."""
        return self.columns[0].name

    @property
    def tokenizer(self) -> Tokenizer:
        """What has learned; there after `fit`."""
        if self._tokenizer is None:
            raise RuntimeError("fit() comes first")
        return self._tokenizer

    @property
    def vocab_size(self) -> int:
        """Token ids go from 0, which is padding, to below this."""
        return self.tokenizer.vocab_size

    def fit(self, raw: pd.DataFrame, rows: NDArray[np.int64]) -> None:
        """Train the tokenizer.

        Args:
            raw: The table.
            rows: Those of the training part.
        """
        texts = raw[self.column].iloc[rows]
        self._tokenizer = Tokenizer.train(map(self._beginning, texts), **self._options)
        self._lengths = []

    def transform(self, raw: pd.DataFrame) -> Tensor:
        """Int64 `[N, max_length]`, each row filled up with zeros; each has at least one token.

        Args:
            raw: A table with the column.
        """
        ids = torch.zeros(len(raw), self.max_length, dtype=torch.int64)
        lengths = np.zeros(len(raw), dtype=np.int64)
        for row, tokens in enumerate(self._tokens(raw[self.column])):
            kept = tokens[: self.max_length] or [UNKNOWN]
            ids[row, : len(kept)] = torch.tensor(kept)
            lengths[row] = len(tokens)
        if self._lengths is not None:
            self._lengths.append(lengths)
        return ids

    def _tokens(self, texts: pd.Series[Any]) -> Iterator[list[int]]:
        for start in range(0, len(texts), _BLOCK):
            yield from self.tokenizer.encode(list(map(self._beginning, texts.iloc[start : start + _BLOCK])))

    def _beginning(self, text: Any) -> str:
        return str(text)[: _SIGNS * self.max_length]

    @property
    def notes(self) -> tuple[str, ...]:
        """What became of the texts that were encoded since `fit`, a sentence each."""
        if not self._lengths:
            return ()
        lengths = np.concatenate(self._lengths)
        low, middle, high = np.percentile(lengths, (5, 50, 95))
        told = [
            f"{len(lengths):,} texts have {middle:.0f} tokens in the median, nine of ten from {low:.0f} to "
            f"{high:.0f}"
        ]
        if cut := int((lengths > self.max_length).sum()):
            told.append(
                f"data.source.max_length={self.max_length}: {cut:,} texts ({cut / len(lengths):.1%}) are "
                "longer, and are cut off there"
            )
        if self.vocab_size < (asked := self._options["vocab_size"]):
            told.append(
                f"data.source.vocab_size={asked}: the training texts have only {self.vocab_size:,} tokens"
            )
        return tuple(told)

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks the column, or has it twice.

        Args:
            names: Of its columns.

        Raises:
            DataError: Naming it.
        """
        check_columns(self.columns, names)

    def unknown(self, raw: pd.DataFrame) -> list[str]:
        """Sentences on what texts have that the training texts lack, or that does not fit.

        Args:
            raw: As for `transform`.
        """
        tokens = list(self._tokens(raw[self.column]))
        total, cut = sum(map(len, tokens)), sum(len(ids) > self.max_length for ids in tokens)
        strange = sum(ids.count(UNKNOWN) for ids in tokens)
        told = []
        if cut:
            told.append(
                f"{cut:,} of {len(raw):,} texts are longer than {self.max_length} tokens, and are cut there"
            )
        if strange:
            told.append(f"{strange / total:.1%} of the words are unknown: the training texts lack them")
        return told

    def odd(self, ids: Tensor) -> dict[int, str]:
        """What is odd about encoded texts, by their position.

        Args:
            ids: From `transform`.
        """
        lengths, unknown = (ids != 0).sum(1), (ids == UNKNOWN).sum(1)
        told = dict.fromkeys(
            (2 * unknown > lengths).nonzero()[:, 0].tolist(),
            f"most words of {self.column!r} are unknown to the model",
        )
        cut = f"{self.column!r} has {self.max_length} tokens or more, and is cut off there"
        for at in (lengths == self.max_length).nonzero()[:, 0].tolist():
            told[at] = f"{told[at]}; {cut}" if at in told else cut
        return told

    def as_plain(self) -> dict[str, Any]:
        """What there is to know beside the tokenizer, as text and numbers."""
        return {"column": self.column, "max_length": self.max_length}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """An encoder that has learned already.

        Args:
            plain: From `as_plain`, perhaps written by somebody else.
            tokenizer: Of the same run.

        Raises:
            ValueError: It is something else.
        """
        column, length = plain.get("column"), plain.get("max_length")
        if not isinstance(column, str) or type(length) is not int:
            raise ValueError("not what a text's encoder has learned")
        encoder = cls(column, max_length=length)
        encoder._tokenizer = tokenizer
        return encoder


def check_length(max_length: int) -> None:
    """Refuse a number of tokens that no text is cut to.

    Args:
        max_length: As for `TextEncoder`.

    Raises:
        ValueError: It is out of its range.
    """
    if not 1 <= max_length <= LONGEST:
        raise ValueError(f"max_length={max_length}: 1 to {LONGEST:,} tokens were expected")
