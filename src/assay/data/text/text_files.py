"""Text files as one long row of tokens, which windows are cut from."""

from __future__ import annotations

import hashlib
import sysconfig
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

import torch
from typing_extensions import override

from assay.data.core.samples import Samples
from assay.data.core.source import Source
from assay.data.core.source_files import (
    SUBSET_WORDS,
    SUBSETS,
    check_path,
    find_subset_folders,
    note_bad,
)
from assay.data.text.tokenizer import END, Bytes, Tokenizer, check_tokenizer
from assay.errors import DataError, check_numbers
from assay.quoting import join_first, pluralize
from assay.task.language_modelling import encode_run_lengths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


class Text(NamedTuple):
    """What a file holds, or a piece of it."""

    name: str
    text: str


def split_by_files(
    texts: Sequence[Text], shares: Mapping[str, float], seed: int
) -> dict[str, list[Text]]:
    """Whole texts, drawn until a subset has its share of the characters; each in the order of the texts.

    The draw goes by names, so that another file moves few of the others.
    """
    drawn = sorted(
        range(len(texts)),
        key=lambda i: hashlib.sha256(f"{seed}:{texts[i].name}".encode()).digest(),
    )
    total = sum(len(text.text) for text in texts)
    chosen: dict[str, list[int]] = {"train": drawn}
    # test first, so that the share of validation leaves it as it is
    for subset in ("test", "val"):
        chosen[subset] = []
        size = 0
        while drawn and size < shares[subset] * total:
            size += len(texts[drawn[0]].text)
            chosen[subset].append(drawn.pop(0))
    return {
        subset: [texts[i] for i in sorted(chosen[subset])] for subset in SUBSETS if chosen[subset]
    }


def split_by_tail(texts: Sequence[Text], shares: Mapping[str, float]) -> dict[str, list[Text]]:
    """The end of all texts in their order is the test subset, what comes before it the validation subset."""
    starts = [0, *accumulate(len(text.text) for text in texts)]
    total = starts[-1]
    test_from = total - round(shares["test"] * total)
    cuts = [0, test_from - round(shares["val"] * total), test_from, total]
    subsets: dict[str, list[Text]] = {}
    for subset, low, high in zip(SUBSETS, cuts, cuts[1:], strict=False):
        pieces = [
            Text(text.name, text.text[max(0, low - start) : high - start])
            for text, start in zip(texts, starts, strict=False)
            if max(low, start) < min(high, start + len(text.text))
        ]
        if pieces:
            subsets[subset] = pieces
    return subsets


_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
"""Folders of the standard library that some systems leave out, or that hold other packages."""


def standard_library(pattern: str) -> list[tuple[str, Path]]:
    """Names and paths of the modules of Python's standard library."""
    return [
        (name, path)
        for name, path in find_files(Path(sysconfig.get_path("stdlib")), pattern)
        if not _LEFT_OUT & {*name.split("/")} and not path.name.startswith("_sysconfigd")
    ]


def find_files(root: Path, pattern: str) -> list[tuple[str, Path]]:
    """Names within a folder and paths of its files, ordered by name; a file is itself."""
    if root.is_file():
        return [(root.name, root)]
    named = (
        (path.relative_to(root).as_posix(), path) for path in root.glob(pattern) if path.is_file()
    )
    return sorted(
        (name, path)
        for name, path in named
        if not any(part[0] == "." for part in name.split("/"))
    )


def read_texts(
    files: Sequence[tuple[str, Path]], where: str, on_bad: str
) -> tuple[list[Text], str, list[str]]:
    """What files hold."""
    texts = list[Text]()
    bad: dict[str, str] = {}
    digest = hashlib.sha256()
    empty = 0
    for name, path in files:
        try:
            content = path.read_bytes()
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            bad[name] = f"not UTF-8 at byte {error.start:,}"
            continue
        except OSError as error:
            bad[name] = str(error)
            continue
        empty += not text
        if text:
            texts.append(Text(name, text))
        digest.update(f"{len(name)}:{name};{len(content)};".encode())
        digest.update(content)
    notes = []
    if empty:
        notes.append(f"{where}: {pluralize(empty, 'empty file')} left out")
    if bad:
        mend = "convert them, name others with data.source.pattern"
        notes.append(
            note_bad(where, "file", [*bad.items()], len(files), on_bad=on_bad, mend=mend)
        )
    return texts, digest.hexdigest(), notes


_VOCAB_SIZE = 1024
_BLOCK = 1 << 20
_FEW_FILES = 10
"""Below which a subset of them would be one file or none."""


@final
class TextFiles(Source):
    """Texts as windows of L tokens; what is to be predicted is each next token.

    All texts of a subset are joined in the order of their names, id 0 after each. Windows do not overlap, so
    that each token counts once; what is left over at the end of each is less than a
    window. The tokens are held once, in two bytes each (four beyond 32,768 kinds), and inputs and targets
    are views of them.

    Args:
        root: A folder of UTF-8 files, or one file; None: the source code of Python's standard library.
        context_length: L.
        pattern: Of the names within the folder, such as `**/*.txt`; None: all that are not hidden.
        tokens: `bytes` of UTF-8, of which there are 256, or `bpe`, byte pairs learned from training.
        vocab_size: Tokens of `bpe`; None for 1,024.
        split_by: `files`: whole files are drawn for each subset. `tail`: the end of all text is for testing,
            what lies before it for validation. `folders`: there are folders `train` and `val` or `test`.
            `auto`: folders where they are there, files where there are ten or more, else tail.
        val: Share of validation.
        test: Share of the test subset.
        seed: Of the draw of files.
        on_bad: What to do about files that are not UTF-8: `error`, or `skip` to leave them out.

    Attributes:
        fitted: What makes tokens of texts; None before `read()`. Where it is given, nothing is learned.
        divides: Cut the texts into subsets; otherwise they are one subset, `all`.
        notes: What was decided and left out, a sentence each; there after `read()`.

    Raises:
        ValueError: An argument is not one of its choices.
    """

    task: str = "language_modelling"

    def __init__(
        self,
        root: str | Path | None = None,
        *,
        context_length: int = 128,
        pattern: str | None = None,
        tokens: Literal["bytes", "bpe"] = "bytes",
        vocab_size: int | None = None,
        split_by: Literal["auto", "files", "folders", "tail"] = "auto",
        val: float = 0.1,
        test: float = 0.1,
        seed: int = 0,
        on_bad: Literal["error", "skip"] = "error",
    ) -> None:
        if tokens == "bpe":
            check_tokenizer(tokens, vocab_size or _VOCAB_SIZE)
        elif vocab_size is not None:
            raise ValueError(
                f"data.source.vocab_size={vocab_size} is for byte pairs, but the tokens are {tokens}; use "
                "data.source.vocab_size=null"
            )
        check_numbers("[1, inf)", context_length=context_length)
        check_numbers("[0, 1)", val=val, test=test)
        self._root = None if root is None else Path(root)
        self._pattern = pattern
        self._length = context_length
        self._tokens = tokens
        self._vocab_size = vocab_size or _VOCAB_SIZE
        self._split_by = split_by
        self._shares = {"val": val, "test": test}
        self._seed = seed
        self._on_bad = on_bad
        self.divides = True

    def read(self) -> Mapping[str, Samples]:
        """The subsets `train`, `val` and `test`: inputs and targets `[N, L]`, int16 or int32."""
        files = self._files()
        texts, digest, notes = read_texts(files, self._where, self._on_bad)
        if not texts:
            raise DataError(
                f"{self._where}: all of {pluralize(len(files), 'file')} are empty",
                hint="name others",
            )
        if self.divides:
            subsets = self._divide(texts)
        else:
            subsets = {"all": texts}
        sizes = ", ".join(
            f"{name} {sum(len(piece.text) for piece in some):,}" for name, some in subsets.items()
        )
        how = ""
        if len(subsets) > 1:
            how = f" (split by {self._split_method(texts)})"
        self.notes = (*notes, f"characters of text: {sizes}{how}", *self._note_folders(texts))
        if self.fitted is None and self._tokens == "bpe":
            learned = [text.text for text in subsets["train"]]
            self.fitted = Tokenizer.train(learned, kind="bpe", vocab_size=self._vocab_size)
        self.fitted = codec = self.fitted or Bytes()
        return {
            subset: self._samples(subset, some, codec, digest) for subset, some in subsets.items()
        }

    def _note_folders(self, texts: Sequence[Text]) -> list[str]:
        """Name folders that look like classes, as of images."""
        parents = [Path(text.name).parent for text in texts]
        names = sorted({parent.name for parent in parents})
        is_alike = len({len(parent.parts) for parent in parents}) == 1
        are_subsets = any(name.casefold() in SUBSET_WORDS for name in names)
        are_many = 1 < len(names) < len(texts) / _FEW_FILES
        if self._root is None or are_subsets or not (is_alike and are_many):
            return []
        return [
            f"folders are not classes here: {join_first(names)}; each next token is predicted. To classify "
            "texts, write them into a table with a column of classes: data=text_table"
        ]

    @property
    def _where(self) -> str:
        pattern = ""
        if self._pattern:
            pattern = f" data.source.pattern={self._pattern}"
        return f"data.source.root={'null' if self._root is None else self._root}{pattern}"

    def _files(self) -> list[tuple[str, Path]]:
        if self._root is None:
            return standard_library(self._pattern or "**/*.py")
        check_path(self._root, self.info.paths[0], "data.source.root")
        hint = "data.source.pattern='**/*' finds all that are not hidden"
        try:
            files = find_files(self._root, self._pattern or "**/*")
        except (NotImplementedError, ValueError) as error:  # of glob
            raise DataError(f"{self._where}: {error}", hint=hint) from error
        if not files:
            message = f"{self._where}: no such file in {self._root.absolute()}"
            raise DataError(message, hint=hint)
        return files

    def _split_method(self, texts: Sequence[Text]) -> str:
        if self._split_by != "auto":
            return self._split_by
        folders = {text.name.partition("/")[0] for text in texts if "/" in text.name}
        subsets = find_subset_folders(self._root)
        if "train" in subsets and len(subsets) == len(folders) > 1:
            return "folders"
        if len(texts) >= _FEW_FILES:
            return "files"
        return "tail"

    def _divide(self, texts: list[Text]) -> dict[str, list[Text]]:
        how = self._split_method(texts)
        shares = dict(self._shares)
        subsets = dict[str, list[Text]]()
        if how == "folders":
            for name, folder in find_subset_folders(self._root).items():
                if inside := [text for text in texts if text.name.startswith(f"{folder.name}/")]:
                    subsets[name] = inside
                    shares[name] = 0.0
            if sum(map(len, subsets.values())) < len(texts) or "train" not in subsets:
                raise DataError(
                    f"{self._where}: expected files in the folders train, val and test only",
                    hint="data.source.split_by=files",
                )
            texts = subsets["train"]  # what has no folder is a share of it
            how = "tail"
            if len(texts) >= _FEW_FILES:
                how = "files"
        if how == "files":
            cut = split_by_files(texts, shares, self._seed)
        else:
            cut = split_by_tail(texts, shares)
        lacking = [
            name for name in SUBSETS if name not in {**subsets, **cut} and shares.get(name, 1)
        ]
        if lacking and how == "files":
            raise DataError(
                f"{self._where}: {pluralize(len(texts), 'file')} are too few: {lacking[0]} gets none",
                hint="data.source.split_by=tail cuts the text itself",
            )
        return {**subsets, **cut}

    def _samples(
        self, subset: str, texts: Sequence[Text], codec: Bytes | Tokenizer, digest: str
    ) -> Samples:
        kind = torch.int32
        if codec.vocab_size <= 1 << 15:
            kind = torch.int16
        end = torch.full((1,), END, dtype=kind)
        encoded = [torch.cat([_encode(codec, one.text, kind), end]) for one in texts]
        tokens = torch.cat(encoded)
        starts = [0, *accumulate(map(len, encoded))]
        length = self._length
        count = (len(tokens) - 1) // length
        if count < 1:
            raise DataError(
                f"data.source.context_length={length}: the {subset} subset has {len(tokens):,} tokens; a "
                f"window takes {length + 1:,}",
                hint=f"data.source.context_length={max(1, len(tokens) // 2)}, more text, or other shares: "
                "data.split.val, data.split.test",
            )
        sizes = (count, length)
        steps = (length, 1)
        return Samples(
            tokens.as_strided(sizes, steps),
            tokens.as_strided(sizes, steps, 1),
            identity=f"{digest} {codec.to_json()} {length}",
            names=_Windows([one.name for one in texts], starts, count, length),
            vocab_size=codec.vocab_size,
            token_bytes=encode_run_lengths(codec.token_bytes),
        )


def _encode(codec: Bytes | Tokenizer, text: str, kind: torch.dtype) -> Tensor:
    """Token ids of a text, which is taken in blocks of whole lines where it is long."""
    blocks = []
    start = 0
    while start < len(text):
        end = start + _BLOCK
        end = text.find("\n", end, end + _BLOCK) + 1 or end
        blocks.append(text[start:end])
        start = end
    encoded = [torch.as_tensor(ids).to(kind) for ids in codec.encode(blocks)]
    return torch.cat([torch.empty(0, dtype=kind), *encoded])


@final
class _Windows(Sequence[str]):
    """Names of windows: of the file that they begin in, and at which of its tokens."""

    def __init__(
        self, names: Sequence[str], starts: Sequence[int], count: int, stride: int
    ) -> None:
        self._names = names
        self._starts = starts
        self._count = count
        self._stride = stride

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._count))]
        token = index * self._stride
        file = bisect_right(self._starts, token) - 1
        return f"{self._names[file]}:{token - self._starts[file]}"
