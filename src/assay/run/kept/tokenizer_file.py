"""`tokenizer.json` of a run: what makes token ids of its texts, as plain data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from assay.data.text.tokenizer import Tokenizer, pretrained_tokenizer
from assay.errors import AssayError, first_line
from assay.files.atomic import write_text
from assay.files.symlinks import read_whole

if TYPE_CHECKING:
    from pathlib import Path

FILE = "tokenizer.json"


def write_tokenizer(run_dir: Path, tokenizer: Tokenizer) -> str:
    """Keep what a tokenizer has learned, for assay and for Hugging Face's `tokenizers` alike.

    Args:
        run_dir: The run directory, or an exported model's.
        tokenizer: Of the run's data.

    Returns:
        SHA-256 of the file, to be kept in a sealed one: the library takes no field for it.
    """
    text = tokenizer.to_json()
    write_text(run_dir / FILE, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_tokenizer(run_dir: Path, sha256: str, *, pretrained: bool = False) -> Tokenizer:
    """The tokenizer of a run's texts.

    Args:
        run_dir: Run directory, perhaps somebody else's.
        sha256: From `write_tokenizer`.
        pretrained: It came with the weights that the run started from.

    Raises:
        AssayError: The file is missing, damaged, or not what a run writes.
    """
    path = run_dir / FILE
    try:
        data = read_whole(path)
        if hashlib.sha256(data).hexdigest() == sha256:
            return pretrained_tokenizer(data) if pretrained else Tokenizer.from_json(data)
    except FileNotFoundError as error:
        raise AssayError(
            f"{path} is not there: what makes token ids of the run's texts is not known",
            hint="restore it from a copy",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    raise AssayError(
        f"{path} is damaged or was changed: it is not as its SHA-256 in encoder.json says",
        hint="restore it from a copy",
    )
