"""Texts as one tensor of token ids, padded at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, final

import numpy as np
import torch

from assay.data.tabular.table_encoder import Column, check_columns, describe_odd
from assay.data.tokenizer import UNKNOWN, Kind, Tokenizer, check_tokenizer, pretrained_tokenizer
from assay.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray
    from torch import Tensor


_BLOCK = 1024
_FEW = 10_000
"""Texts below which words tell more than their pieces."""
_SIGNS = 64
"""Characters per token that are looked at, at most: the time for a text is bounded, however long it is."""
LONGEST = 65_536


@final
class TextEncoder:
    """Token ids of a column of texts, by a tokenizer that is trained on the training rows, or pretrained."""

    def __init__(
        self,
        column: str,
        *,
        tokenizer: Kind | Literal["auto"] = "auto",
        vocab_size: int = 8192,
        max_length: int = 256,
        lowercase: bool = True,
    ) -> None:
        check_tokenizer("bpe" if tokenizer == "auto" else tokenizer, vocab_size)
        check_length(max_length)
        self.columns: tuple[Column, ...] = (Column(column, "text"),)
        self.max_length = max_length
        self.csv: dict[str, str] = {}
        self._options: dict[str, Any] = {"vocab_size": vocab_size, "lowercase": lowercase}
        self._asked = tokenizer
        self._tokenizer: Tokenizer | None = None
        self._pretrained: Tokenizer | None = None
        self._source = ""
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

    def use(self, text: str, padding: int, source: str) -> None:
        """Have `fit` take the tokenizer that a network was trained with, in place of training one."""
        if self._asked != "auto":
            raise DataError(
                f"data.source.tokenizer={self._asked}: the weights of {source} were trained with tokens of "
                "their own",
                hint="data.source.tokenizer=auto takes these",
            )
        try:
            self._pretrained, self._source = pretrained_tokenizer(text, padding), source
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise DataError(
                f"data.source.tokenizer=auto: the tokenizer.json of {source} cannot be used: {error}",
                hint="choose other weights",
            ) from error

    def fit(self, raw: pd.DataFrame, rows: NDArray[np.int64]) -> None:
        """Train the tokenizer, or take the one that is there."""
        texts = raw[self.column].iloc[rows]
        kind: Any = self._asked
        if kind == "auto":
            kind = "word" if len(texts) < _FEW else "bpe"
        options = {"kind": kind, **self._options}
        self._tokenizer = self._pretrained or Tokenizer.train(map(self._beginning, texts), **options)
        self._lengths = []

    def transform(self, raw: pd.DataFrame) -> Tensor:
        """Int64 `[N, max_length]`, each row filled up with zeros; each has at least one token."""
        ids = torch.zeros(len(raw), self.max_length, dtype=torch.int64)
        lengths = np.zeros(len(raw), dtype=np.int64)
        for row, tokens in enumerate(self._tokens(raw[self.column])):
            kept = self._cut(tokens)
            ids[row, : len(kept)] = torch.tensor(kept)
            lengths[row] = len(tokens)
        if self._lengths is not None:
            self._lengths.append(lengths)
        return ids

    encode = transform

    def _cut(self, tokens: list[int]) -> list[int]:
        """As many as there is room for, the last ones those that end every text; none is padding."""
        num_closing = min(self.tokenizer.num_closing, self.max_length)
        if len(tokens) > self.max_length:
            tokens = tokens[: self.max_length - num_closing] + tokens[len(tokens) - num_closing :]
        unknown = max(self.tokenizer.unknown, UNKNOWN)
        return [one or unknown for one in tokens] or [unknown]

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
        told = [f"{len(lengths):,} texts have {np.median(lengths):.0f} tokens in the median"]
        if cut := int((lengths > self.max_length).sum()):
            told.append(
                f"data.source.max_length={self.max_length}: {cut:,} texts "
                f"({100 * cut / len(lengths):.1f} %) are longer, and are cut off there"
            )
        if self._pretrained is not None:
            told.append(
                f"texts become the {self.vocab_size:,} tokens of {self._source}; data.source.vocab_size and "
                "lowercase do not count"
            )
        return tuple(told)

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks the column, or has it twice."""
        check_columns(self.columns, names)

    def unknown(self, raw: pd.DataFrame) -> list[str]:
        """A sentence on texts of which the training texts lack most words, or that do not fit."""
        return describe_odd(self.odd(self.transform(raw)), raw.index)

    def odd(self, ids: Tensor) -> dict[int, str]:
        """What is odd about encoded texts, by their position."""
        lengths, unknown = (ids != 0).sum(1), (ids == self.tokenizer.unknown).sum(1)
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
        own = {"column": self.column, "max_length": self.max_length}
        return own if self._pretrained is None else {**own, "pretrained": True}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """An encoder that has learned already."""
        column, length = plain.get("column"), plain.get("max_length")
        if not isinstance(column, str) or type(length) is not int:
            raise ValueError("not what a text's encoder has learned")
        encoder = cls(column, max_length=length)
        encoder._tokenizer = tokenizer
        encoder._pretrained = tokenizer if plain.get("pretrained") else None
        return encoder


def check_length(max_length: int) -> None:
    """Refuse a number of tokens that no text is cut to."""
    if not 1 <= max_length <= LONGEST:
        raise ValueError(f"max_length={max_length}: 1 to {LONGEST:,} tokens were expected")
