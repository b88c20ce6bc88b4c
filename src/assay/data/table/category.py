"""Categories, and texts that are told apart by the character n-grams that they share. No torch."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
import pandas as pd
from typing_extensions import override

from assay.data.table.column import MISSING_WORDS, WORDS, Column, as_text, is_text, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.data.core.types import Bools, Floats, Strings, Values
    from assay.data.table.column import JudgedRows

_INTEGRAL = re.compile(r"^([-+]?\d+)\.0$")
_MOST_IN_CARD = 10_000


@final
@dataclass(frozen=True)
class Category(Column):
    """Codes of texts; one that training lacks counts with the rarest ones, or is none of the codes.

    Attributes:
        codes: Of each text of the training rows.
        other: The code of the rarest ones, or of all, where no text has a code; None: each has its own.
    """

    codes: dict[str, int] = field(default_factory=dict)
    other: int | None = None

    @classmethod
    def learn(cls, cells: Values, max_categories: int | None, *, impute: bool) -> Self:
        """Learn from training rows."""
        places, texts = distinct_texts(cells)
        absent, *numbers = np.bincount(places + 1, minlength=len(texts) + 1).tolist()
        counts = dict(zip(texts, numbers, strict=True))
        absent += sum(counts.pop(text) for text in texts if not text.strip())
        gaps = absent > 0
        if gaps and impute:  # that a value is missing may say something, too
            counts[""] = absent
        names = sorted(counts, key=lambda text: (-counts[text], text))
        limit = max_categories or len(names)
        frequent = names
        other = None
        if len(names) > limit:
            frequent = names[: limit - 1]
            other = limit - 1
        codes = {text: code for code, text in enumerate(sorted(frequent))}
        codes = {text: codes.get(text, len(frequent)) for text in sorted(names)}
        fill = None
        if impute:
            fill = "" if gaps else next(iter(names), "")
        return cls(str(cells.name), fill, gaps, codes=codes, other=other)

    @property
    def kind(self) -> str:
        """Its name in `encoder.json`."""
        return "category"

    @property
    def unknown(self) -> int:
        """The code of a category that training lacks."""
        if self.other is None:
            return self.width
        return self.other

    @property
    def width(self) -> int:
        """How many codes there are."""
        return max([*self.codes.values(), self.other or 0]) + 1

    @property
    @override
    def code_names(self) -> list[str]:
        texts = {
            code: text or "missing" for text, code in self.codes.items() if code != self.other
        }
        return [f"{self.name}={texts.get(code, 'other')}" for code in range(self.width)]

    @property
    def reads_texts(self) -> bool:
        """True: codes such as 01 and 02 alone would be read as numbers, which in training they were not."""
        return not set(self.codes) <= {"True", "False", ""}

    @property
    def has_integers(self) -> bool:
        """Whether some categories are integers."""
        return any(text.isdigit() for text in self.codes)

    @property
    def missing_words(self) -> frozenset[str]:
        """Those that are no category."""
        return MISSING_WORDS.difference(map(str.strip, self.codes)) | {""}

    @override
    def read(self, cells: Values, judged: JudgedRows, decimal: str) -> tuple[Values, Bools]:
        missing = cells.isna().to_numpy()
        is_mark = self.other is not None and not any(self.codes)  # of whether there is a value
        if is_mark or self.codes.keys() >= {*category_texts(pd.Series(cells.dropna().unique()))}:
            return cells, missing
        places, distinct = distinct_texts(cells)
        unknown = np.array([*(text not in self.codes for text in distinct), False])[places]
        texts = category_texts(cells).fillna("")
        foreign = unknown & texts.str.contains("\ufffd", regex=False).to_numpy()
        sentence = "is {}, which is not text in UTF-8 (--encoding names another)"
        note(judged.errors, foreign, cells, sentence)
        counts = "as none of the known ones"
        if self.other is not None:
            counts = "with the rarest ones"
        odd = unknown & ~foreign
        known = {text.strip().casefold(): text for text in self.codes}
        alike = texts.str.strip().str.casefold().map(known).fillna("").to_numpy()
        for text in np.unique(alike[odd]):  # empty for what is like none
            known_as = ""
            if text:
                known_as = f" (it has {str(text)!r})"
            sentence = f"is {{}}, which no training row has{known_as}: it counts {counts}"
            note(judged.warnings, odd & (alike == text), cells, sentence)
        return cells, missing

    @override
    def encode_codes(self, values: Values) -> NDArray[Any]:
        places, texts = distinct_texts(values)
        # The last one is for those that are missing, whose place is -1.
        texts.append(str(self.fill))
        codes = np.array([self.codes.get(text, self.unknown) for text in texts])
        return codes[places]

    @override
    def export_inputs(self, values: Values) -> NDArray[Any]:
        return category_texts(values).fillna("").to_numpy(dtype=object)

    @override
    def describe(self, na_values: Strings) -> list[dict[str, Any]]:
        (entry,) = super().describe(na_values)
        if na_values:
            entry["missing_codes"] = list(na_values)
        entry["categories"] = list(self.codes)[:_MOST_IN_CARD]
        entry["unknown"] = "counts as none"
        if self.other is not None:
            entry["unknown"] = "counts with the rarest ones"
        return [entry]

    @override
    def make_up(self, count: int) -> Any:
        return (([*self.codes] or [""]) * count)[:count]


@final
@dataclass(frozen=True)
class Text(Column):
    """Texts: as numbers by their character n-grams, or for a tokenizer, which makes its own of them.

    Attributes:
        ngrams: What encodes them, see `learn_ngrams`; empty: a tokenizer does.
    """

    ngrams: str = ""

    @classmethod
    def learn(cls, cells: Values, *, impute: bool) -> Self | None:
        """Learn from training rows; None where their texts share too few n-grams."""
        learned = learn_ngrams(category_texts(cells.dropna()).astype(str).tolist())
        if not learned:
            return None
        fill = "" if impute else None
        return cls(str(cells.name), fill, bool(cells.isna().any()), ngrams=learned)

    @property
    def kind(self) -> str:
        """Its name in `encoder.json`."""
        if self.ngrams:
            return "ngrams"
        return "text"

    @property
    def names(self) -> list[str]:
        """A direction each."""
        return [f"{self.name}, text {place}" for place in range(self.width)]

    @property
    def width(self) -> int:
        """How many numbers stand for a text."""
        # of base64 and float32; not decoded: asked often
        return len(self.ngrams) * 3 // 4 // (4 * _BUCKETS) - 1

    @property
    def reads_texts(self) -> bool:
        """True."""
        return True

    @property
    def missing_words(self) -> frozenset[str]:
        """None of a tokenizer's, to which they are words."""
        return WORDS if self.ngrams else frozenset()

    @override
    def read(self, cells: Values, judged: JudgedRows, decimal: str) -> tuple[Values, Bools]:
        missing = blank_texts(cells)
        foreign = cells.astype(str).str.contains("\ufffd", regex=False).to_numpy(dtype=bool)
        sentence = "is {}, which is not all text in UTF-8 (--encoding names another)"
        note(judged.warnings, ~missing & foreign, cells, sentence)
        return cells, missing

    @override
    def encode(self, values: Values) -> NDArray[Any]:
        places, texts = distinct_texts(values)
        return encode_ngrams([*texts, ""], self.ngrams)[places]


def category_texts(column: Values) -> Values:
    """Categories as text; 1.0 is 1, and what is missing stays so."""
    texts = column.dropna()
    if is_text(column):
        texts = texts.astype(object)
    else:
        texts = texts.map(as_text)
    return texts.reindex(column.index)


def as_integers(texts: Values) -> Values:
    """Categories as text, 1.0 as 1: pandas writes integers as floats where one is missing."""
    return texts.str.replace(_INTEGRAL, r"\1", regex=True)


def distinct_texts(column: Values) -> tuple[NDArray[np.intp], list[str]]:
    """Each row's place among the categories that occur, -1 where it has none, and these as text."""
    texts = column
    if not is_text(column):
        texts = category_texts(column)
    places, different = pd.factorize(texts)
    return places, [str(text) for text in different]


def blank_texts(texts: Values) -> Bools:
    """Which texts are missing, or are nothing but white space."""
    blank: Bools = (texts.isna() | ~texts.astype(str).str.contains(r"\S")).to_numpy(dtype=bool)
    return blank


# -- n-grams -------------------------------------------------------------------------------------------------

_BUCKETS = 4096
_WIDTH = 30
_MOST_TEXTS = 10_000
_MOST_LOOKED_AT = 1000
_EXPLAINED = 0.1
"""Least share of the variance that the numbers keep; of random ids they keep next to nothing."""
_LEAST_SIZE = 1e-4
"""Of a direction beside the largest: of texts that hold few words, the others are noise."""
_AT_ONCE = 20_000


def learn_ngrams(texts: Sequence[str]) -> str:
    """What encodes texts such as these, as plain text; empty where they share too few n-grams.

    Counts of n-grams are hashed, weighted by their rarity and projected on their main directions (TF-IDF and
    a truncated SVD, as in the `StringEncoder` of skrub).
    """
    from sklearn.decomposition import TruncatedSVD  # type: ignore[import-untyped]  # it ships no types
    from sklearn.feature_extraction.text import TfidfTransformer  # type: ignore[import-untyped]

    sample = texts[:: max(1, len(texts) // _MOST_TEXTS)]
    width = min(_WIDTH, len(set(sample)) - 1)
    if width < 1:
        return ""
    counts = _count_ngrams(sample)
    weighting = TfidfTransformer()
    directions = TruncatedSVD(width, random_state=0)
    directions.fit(weighting.fit_transform(counts))
    if not directions.explained_variance_ratio_.sum() >= _EXPLAINED:
        return ""
    sizes = directions.singular_values_
    components = directions.components_[sizes > _LEAST_SIZE * sizes[0]]
    learned = np.vstack([weighting.idf_, components]).astype("<f4")
    return base64.b64encode(learned.tobytes()).decode("ascii")


def share_ngrams(texts: Sequence[str]) -> bool:
    """Whether different texts share n-grams, by some of them."""
    return bool(learn_ngrams(texts[:: max(1, len(texts) // _MOST_LOOKED_AT)]))


def encode_ngrams(texts: Sequence[str], learned: str) -> Floats:
    """Float64 `[N, F]`; zeros for a text without an n-gram."""
    from sklearn.preprocessing import normalize  # type: ignore[import-untyped]  # it ships no types

    unpacked = _unpack(learned).astype(np.float64)
    weights = unpacked[0]
    directions = unpacked[1:].T
    encoded = [np.empty((0, directions.shape[1]))]
    for start in range(0, len(texts), _AT_ONCE):
        counts = _count_ngrams(texts[start : start + _AT_ONCE])
        encoded.append(normalize(counts.multiply(weights).tocsr()) @ directions)
    return np.concatenate(encoded)


def _unpack(learned: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(learned), "<f4").reshape(-1, _BUCKETS)


def _count_ngrams(texts: Sequence[str]) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    hashing = HashingVectorizer(
        analyzer="char_wb",
        ngram_range=(3, 4),
        n_features=_BUCKETS,
        norm=None,
        alternate_sign=False,
    )
    return hashing.transform(texts)
