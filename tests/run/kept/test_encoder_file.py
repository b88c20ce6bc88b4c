from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch

from assay.data.encoder_file import FILE, TOKENIZER_FILE, read_encoder, write_encoder
from assay.data.table.table_encoder import TableEncoder
from assay.data.text.tokenizer import Tokenizer
from assay.errors import AssayError

if TYPE_CHECKING:
    from pathlib import Path

ROWS = pd.DataFrame({"size": [1.5, 2.0, 7.0], "Straße": ["Köln", "Ulm", "Köln"]})


@pytest.fixture
def written(tmp_path: Path) -> Path:
    encoder = TableEncoder()
    encoder.fit(ROWS, np.arange(2))
    write_encoder(tmp_path, encoder)
    return tmp_path / FILE


def test_what_was_learned_comes_back(written: Path) -> None:
    encoder = TableEncoder()
    encoder.fit(ROWS, np.arange(2))
    back = read_encoder(written.parent)
    assert isinstance(back, TableEncoder)
    assert torch.equal(back.transform(ROWS), encoder.transform(ROWS))
    assert "Köln" in written.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "change", [lambda text: text.replace("Ulm", "Uhm"), lambda text: text[:-20], lambda _: "["]
)
def test_a_changed_file_is_refused(written: Path, change: object) -> None:
    written.write_text(change(written.read_text(encoding="utf-8")), encoding="utf-8")  # type: ignore[operator]  # a lambda
    with pytest.raises(AssayError, match=r"encoder\.json (is damaged|cannot be read)"):
        read_encoder(written.parent)


def test_a_table_has_one(written: Path) -> None:
    written.unlink()
    with pytest.raises(AssayError, match=r"encoder\.json is missing"):
        read_encoder(written.parent, must_be=True)
    written.mkdir()
    for must_be in (True, False):
        with pytest.raises(AssayError, match=r"encoder\.json cannot be read: .*not a regular file"):
            read_encoder(written.parent, must_be=must_be)


TEXTS = ["one two three", "two three four"]


def test_a_kept_tokenizer_is_the_same_also_for_the_library(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library

    tokenizer = Tokenizer.train(TEXTS, kind="word")
    write_encoder(tmp_path, tokenizer)
    back = read_encoder(tmp_path)
    assert isinstance(back, Tokenizer)
    assert back.encode(TEXTS) == tokenizer.encode(TEXTS)
    library = Library.from_file(str(tmp_path / TOKENIZER_FILE))
    assert [found.ids for found in library.encode_batch(TEXTS)] == tokenizer.encode(TEXTS)


def test_a_tokenizer_that_is_missing_damaged_or_something_else_is_told(tmp_path: Path) -> None:
    write_encoder(tmp_path, Tokenizer.train(TEXTS, kind="word"))
    path = tmp_path / TOKENIZER_FILE
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"four", b"five"))
    with pytest.raises(AssayError, match="is damaged or was changed"):
        read_encoder(tmp_path)
    path.unlink()
    with pytest.raises(AssayError, match=r"tokenizer\.json cannot be read: .*No such file"):
        read_encoder(tmp_path)
