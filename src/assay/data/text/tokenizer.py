"""Texts to token ids and back: bytes, or a trained tokenizer; and the encoder of a column of texts."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Literal, Self, final, get_args

import numpy as np
import torch

from assay.data.table.category import Text
from assay.data.table.column import describe_unusual
from assay.errors import DataError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import tokenizers
    from numpy.typing import NDArray
    from torch import Tensor

    from assay.data.core.types import Frame, Rows, Strings
    from assay.data.table.column import Column


def normalize_tokenizer(text: str | bytes, padding: int) -> dict[str, Any]:
    """The tokenizer as plain data, in which padding has the id 0."""
    plain = json.loads(text)
    model = plain["model"]
    added = plain.get("added_tokens") or []
    vocabulary = model["vocab"]
    if not {0, padding} <= {*vocabulary.values(), *(one["id"] for one in added)}:
        raise ValueError(f"its vocabulary has no token with the id {padding}, which pads texts")
    swapped = {0: padding, padding: 0}
    model |= {
        "vocab": {
            token: swapped.get(token_id, token_id) for token, token_id in vocabulary.items()
        }
    }
    # it would draw other tokens each time
    if model["type"] == "BPE":
        model |= {"dropout": None}
    for one in added:
        one["id"] = swapped.get(one["id"], one["id"])
    post = plain.get("post_processor") or {}
    for step in post.get("processors", [post]):
        for name in ("sep", "cls"):
            if name in step:
                step[name] = [step[name][0], swapped.get(step[name][1], step[name][1])]
        for special in (step.get("special_tokens") or {}).values():
            special["ids"] = [swapped.get(one, one) for one in special["ids"]]
    return {**plain, "decoder": None, "padding": None, "truncation": None}


Kind = Literal["bpe", "word"]
KINDS = get_args(Kind)
PAD = 0
"""The padding id, which no text contains."""
UNKNOWN = 1
"""The id of a word that training texts lack, or that is too rare."""
_SPECIAL = ("[PAD]", "[UNK]")
_NUM_BYTES = 256
_MOST = 1_000_000
UNSPACED = (
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff"
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words, such as Chinese or Thai: a word by itself."""
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, of which JSON may tell


@final
class Tokenizer:
    """Token ids of texts, by Hugging Face's `tokenizers`: id 0 is padding, id 1 an unknown word.

    - `bpe`: byte pairs (Sennrich, Haddow and Birch, 2016) over bytes as in GPT-2, so that no text has an
      unknown token, and `decode` gives back each text that was not folded;
    - `word`: the most frequent words and runs of signs, and characters of scripts without spaces.
    """

    end: int = PAD
    never: Sequence[int] = (UNKNOWN,)
    unknown: int = UNKNOWN
    num_closing: int = 0

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        *,
        kind: Kind = "bpe",
        vocab_size: int = 8192,
        lowercase: bool = False,
    ) -> Self:
        """A tokenizer that has learned its tokens; the same texts give the same one."""
        check_tokenizer(kind, vocab_size)
        pre_tokenizers = _library().pre_tokenizers
        trainers = _library().trainers
        backend = _backend(
            kind, {token: index for index, token in enumerate(_SPECIAL)}, [], lowercase
        )
        options = dict[str, Any](
            vocab_size=vocab_size, special_tokens=list(_SPECIAL), show_progress=False
        )
        trainer: Any
        if kind == "bpe":
            trainer = trainers.BpeTrainer(
                initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), **options
            )
        else:
            trainer = trainers.WordLevelTrainer(**options)
        backend.train_from_iterator(map(_replace_surrogates, texts), trainer)
        model = json.loads(backend.to_str())["model"]
        # Anew: special tokens of the trainer's would be found in texts, too.
        return cls(_backend(kind, model["vocab"], model.get("merges", []), lowercase))

    @property
    def vocab_size(self) -> int:
        """Ids go from 0 to below this."""
        return max(self.backend.get_vocab().values()) + 1

    @property
    def token_bytes(self) -> list[int]:
        """How many bytes of UTF-8 each id stands for; none: padding, and what is unknown."""
        tokens = self.tokens[len(_SPECIAL) :]
        are_bytes = self.backend.decoder is not None  # written as characters that can be seen
        sizes = [len(token) if are_bytes else len(token.encode()) for token in tokens]
        return [0] * len(_SPECIAL) + sizes

    @property
    def tokens(self) -> list[str]:
        """Each token by its id, as the library writes it: of `bpe` a character for each byte."""
        vocabulary = self.backend.get_vocab()
        return sorted(vocabulary, key=vocabulary.__getitem__)

    def encode(self, texts: Strings) -> list[list[int]]:
        """Token ids of each text."""
        return [
            row.ids
            for row in self.backend.encode_batch_fast(list(map(_replace_surrogates, texts)))
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; padding and unknown tokens are left out."""
        text: str = self.backend.decode([token for token in ids if token >= len(_SPECIAL)])
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each token id stands for, as it can be shown."""
        return [self.decode([token]) for token in ids]

    def to_json(self) -> str:
        """The tokenizer as the `tokenizer.json` of the library, indented by two spaces."""
        return json.dumps(json.loads(self.backend.to_str()), indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The tokenizer that `to_json` wrote."""
        try:
            return cls(
                _library().Tokenizer.from_str(text if isinstance(text, str) else text.decode())
            )
        except DataError:
            raise
        except Exception as error:  # of the library, which has no kind of its own
            raise ValueError(f"it is not a tokenizer: {first_line(error)}") from error


def pretrained_tokenizer(text: str | bytes, padding: int = PAD) -> Tokenizer:
    """The tokenizer of a pretrained network."""
    plain = normalize_tokenizer(text, padding)
    tokenizer = Tokenizer.from_json(json.dumps(plain))
    tokenizer.unknown = -1
    tokenizer.never = ()
    if (unknown := plain["model"].get("unk_token")) is not None:
        tokenizer.unknown = int(tokenizer.backend.token_to_id(unknown) or 0)
        tokenizer.never = (tokenizer.unknown,)
    mask = tokenizer.backend.encode("a").special_tokens_mask
    tokenizer.num_closing = next(
        (index for index, special in enumerate(reversed(mask)) if not special), 0
    )
    return tokenizer


def _library() -> Any:
    # Of a process that forks after the library has used several threads, it would warn at each fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ImportError as error:
        raise DataError(
            "data: texts need the package tokenizers, which is not installed",
            hint="pip install 'assay[text]'",
        ) from error
    return tokenizers


def check_tokenizer(kind: str, vocab_size: int) -> None:
    """Refuse a kind or size that no tokenizer can be trained with."""
    if kind not in KINDS:
        raise ValueError(f"tokenizer={kind!r}: expected one of {', '.join(KINDS)}")
    least = len(_SPECIAL) + (_NUM_BYTES if kind == "bpe" else 1)
    if not least <= vocab_size <= _MOST:
        raise ValueError(
            f"vocab_size={vocab_size}: expected {least} to {_MOST:,} for tokenizer={kind}"
        )


def _backend(
    kind: Kind, vocabulary: dict[str, int], merges: Sequence[Strings], lowercase: bool
) -> tokenizers.Tokenizer:
    _library()
    from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Backend

    if kind == "bpe":
        backend = Backend(
            models.BPE(vocab=vocabulary, merges=[(one, other) for one, other in merges])
        )
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    else:
        backend = Backend(models.WordLevel(vocab=vocabulary, unk_token=_SPECIAL[UNKNOWN]))
        characters = pre_tokenizers.Split(Regex(UNSPACED), "isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([characters, pre_tokenizers.Whitespace()])
    if lowercase:
        backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    return backend


def _replace_surrogates(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


END = 0
"""The id between two texts; as a byte, one that no text has."""


@final
class Bytes:
    """Token ids of texts: their bytes in UTF-8."""

    end: int = END
    never: Sequence[int] = ()
    vocab_size: int = _NUM_BYTES
    token_bytes: Sequence[int] = (0, *[1] * (_NUM_BYTES - 1))
    """How many bytes each id stands for; none: the end of a text."""

    def encode(self, texts: Strings) -> list[NDArray[np.int32]]:
        """Token ids of each text."""
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; what ends a text is left out."""
        return bytes(byte for byte in ids if byte != END).decode(errors="replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each token id stands for, as it can be shown: a byte that is not a character as its number."""
        return [
            "" if byte == END else chr(byte) if byte < 128 else f"\\x{byte:02x}" for byte in ids
        ]

    def to_json(self) -> str:
        """The tokenizer as a run stores it."""
        return json.dumps({"kind": "bytes"})


_BLOCK = 1024
_FEW = 10_000
"""Texts below which words tell more than their pieces."""
_SIGNS = 64
"""Characters per token that are looked at, at most: the time for a text is bounded, however long it is."""
LONGEST = 65_536


@final
class TextEncoder:
    """Token ids of a column of texts, by a tokenizer that is trained on the training rows, or pretrained."""

    tokenizer: Tokenizer
    """Available after `fit`."""

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
        if not 1 <= max_length <= LONGEST:
            raise ValueError(f"max_length={max_length}: expected 1 to {LONGEST:,}")
        self.columns: tuple[Column, ...] = (Text(column),)
        self.max_length = max_length
        self.csv: dict[str, str] = {}
        self._options: dict[str, Any] = {"vocab_size": vocab_size, "lowercase": lowercase}
        self._asked = tokenizer
        self._pretrained: Tokenizer | None = None
        self._source = ""
        self._num_tokens: Rows = np.zeros(0, np.int64)
        self._lengths: list[Rows] | None = None

    @property
    def column(self) -> str:
        """Name of the column."""
        return self.columns[0].name

    @property
    def vocab_size(self) -> int:
        """Token ids go from 0, which is padding, to below this."""
        return self.tokenizer.vocab_size

    def use(self, text: str, padding: int, source: str) -> None:
        """Make `fit` use the tokenizer of a pretrained network instead of training one."""
        if self._asked != "auto":
            raise DataError(
                f"data.source.tokenizer={self._asked}: the weights of {source} were trained with tokens of "
                "their own",
                hint="data.source.tokenizer=auto takes these",
            )
        try:
            self._pretrained = pretrained_tokenizer(text, padding)
            self._source = source
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
            why = (
                error
                if isinstance(error, ValueError)
                else "it has no vocabulary of tokens and ids"
            )
            raise DataError(
                f"data.source.tokenizer=auto: the tokenizer.json of {source} cannot be used: {why}",
                hint="choose other weights",
            ) from error

    def fit(self, raw: Frame, rows: Rows) -> None:
        """Train the tokenizer, or use the pretrained one."""
        texts = raw[self.column].iloc[rows]
        kind: Kind = "bpe"
        if len(texts) < _FEW:
            kind = "word"
        options = {"kind": kind if self._asked == "auto" else self._asked, **self._options}
        self.tokenizer = self._pretrained or Tokenizer.train(map(self._clip, texts), **options)
        self._lengths = []

    def transform(self, raw: Frame) -> Tensor:
        """Int64 `[N, max_length]`, each row filled up with zeros; each has at least one token."""
        ids = torch.zeros(len(raw), self.max_length, dtype=torch.int64)
        lengths = np.zeros(len(raw), dtype=np.int64)
        texts = list(map(self._clip, raw[self.column]))
        for start in range(0, len(texts), _BLOCK):
            for row, tokens in enumerate(
                self.tokenizer.encode(texts[start : start + _BLOCK]), start
            ):
                truncated = self._cut(tokens)
                ids[row, : len(truncated)] = torch.tensor(truncated)
                lengths[row] = len(tokens)
        self._num_tokens = lengths
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
        return [token or unknown for token in tokens] or [unknown]

    def _clip(self, text: Any) -> str:
        return str(text)[: _SIGNS * self.max_length]

    @property
    def notes(self) -> tuple[str, ...]:
        """What became of the texts that were encoded since `fit`, a sentence each."""
        if not self._lengths:
            return ()
        lengths = np.concatenate(self._lengths)
        notes = [f"{len(lengths):,} texts have {np.median(lengths):.0f} tokens in the median"]
        if cut := int((lengths > self.max_length).sum()):
            notes.append(
                f"data.source.max_length={self.max_length}: {cut:,} texts "
                f"({100 * cut / len(lengths):.1f} %) are longer, and are cut off there"
            )
        if self._pretrained is not None:
            notes.append(
                f"texts become the {self.vocab_size:,} tokens of {self._source}; data.source.vocab_size and "
                "lowercase have no effect"
            )
        return tuple(notes)

    def unknown(self, raw: Frame) -> list[str]:
        """A sentence on texts of which the training texts lack most words, or that do not fit."""
        return describe_unusual(self.odd(self.transform(raw)), raw.index)

    def odd(self, ids: Tensor) -> dict[int, str]:
        """What is odd about the texts that were encoded last, by their position."""
        lengths = (ids != 0).sum(1)
        unknown = (ids == self.tokenizer.unknown).sum(1)
        reasons = dict.fromkeys(
            (2 * unknown > lengths).nonzero()[:, 0].tolist(),
            f"most words of {self.column!r} are unknown to the model",
        )
        cut = f"{self.column!r} has more than {self.max_length} tokens, and is cut off there"
        for position in np.flatnonzero(self._num_tokens > self.max_length).tolist():
            if position in reasons:
                reasons[position] = f"{reasons[position]}; {cut}"
            else:
                reasons[position] = cut
        return reasons

    def as_plain(self) -> dict[str, Any]:
        """The settings beside the tokenizer, as text and numbers."""
        plain = {"column": self.column, "max_length": self.max_length}
        if self._pretrained is None:
            return plain
        return {**plain, "pretrained": True}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], tokenizer: Tokenizer) -> Self:
        """A fitted encoder."""
        encoder = cls(plain["column"], max_length=plain["max_length"])
        encoder.tokenizer = tokenizer
        if plain.get("pretrained"):
            encoder._pretrained = tokenizer
        return encoder
