from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.data.tokenizer import Tokenizer
from assay.errors import AssayError
from assay.run.encoder_file import TOKENIZER_FILE, read_tokenizer, write_tokenizer

if TYPE_CHECKING:
    from pathlib import Path

TEXTS = ["one two three", "two three four"]


def test_a_kept_tokenizer_is_the_same_also_for_the_library(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    tokenizer = Tokenizer.train(TEXTS, kind="word")
    sha256 = write_tokenizer(tmp_path, tokenizer)
    assert read_tokenizer(tmp_path, sha256).encode(TEXTS) == tokenizer.encode(TEXTS)
    library = Library.from_file(str(tmp_path / TOKENIZER_FILE))
    assert [found.ids for found in library.encode_batch(TEXTS)] == tokenizer.encode(TEXTS)


def test_a_tokenizer_that_is_missing_damaged_or_something_else_is_told(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match=r"tokenizer\.json cannot be read: .*No such file"):
        read_tokenizer(tmp_path, "")
    sha256 = write_tokenizer(tmp_path, Tokenizer.train(TEXTS, kind="word"))
    path = tmp_path / TOKENIZER_FILE
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"four", b"five"))
    with pytest.raises(AssayError, match="is damaged or was changed"):
        read_tokenizer(tmp_path, sha256)
    with path.open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(AssayError, match=r"cannot be read: .*64 MiB"):
        read_tokenizer(tmp_path, sha256)
