"""`encoder.json` of a run: what its table's columns or its texts are turned into, as plain data."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from assay.data.table.table_encoder import TableEncoder
from assay.data.text.tokenizer import Bytes, TextEncoder, Tokenizer, pretrained_tokenizer
from assay.errors import AssayError, first_line
from assay.files.atomic import write_text
from assay.files.checksum import is_json_intact, seal_json
from assay.files.symlinks import read_whole

if TYPE_CHECKING:
    from pathlib import Path

    from assay.data.core.samples import Encoder


TOKENIZER_FILE = "tokenizer.json"


def write_tokenizer(run_dir: Path, tokenizer: Tokenizer) -> str:
    """Keep what a tokenizer has learned, for assay and for Hugging Face's `tokenizers` alike."""
    text = tokenizer.to_json()
    write_text(run_dir / TOKENIZER_FILE, text)
    return hashlib.sha256(text.encode()).hexdigest()


FILE = "encoder.json"
_DAMAGED = "it is damaged or was changed: its SHA-256 does not match"


def write_encoder(run_dir: Path, encoder: Encoder | Bytes | Tokenizer | None) -> None:
    """Keep what the encoder of a table or of texts has learned."""
    if isinstance(encoder, Bytes | Tokenizer):
        codec = {"kind": "bytes"}
        if isinstance(encoder, Tokenizer):
            codec = {"kind": "bpe", "tokenizer_sha256": write_tokenizer(run_dir, encoder)}
        plain: dict[str, Any] = {"codec": codec}
    elif isinstance(encoder, TextEncoder):
        sha256 = write_tokenizer(run_dir, encoder.tokenizer)
        plain = {"text": {**encoder.as_plain(), "tokenizer_sha256": sha256}}
    elif isinstance(encoder, TableEncoder):
        plain = encoder.as_plain()
    else:
        return
    write_text(run_dir / FILE, seal_json(json.dumps(plain, indent=2, ensure_ascii=False)))


def read_encoder(
    run_dir: Path, *, must_be: bool = False
) -> TableEncoder | TextEncoder | Bytes | Tokenizer | None:
    """The encoder of a run's table or texts; None where the run has none."""
    path = run_dir / FILE
    if not path.exists():
        if must_be:
            raise AssayError(
                f"{path} is missing; it holds how columns are encoded",
                hint="restore it from a copy",
            )
        return None
    try:
        data = read_whole(path)
        if not is_json_intact(data):
            raise ValueError(_DAMAGED)
        plain = json.loads(data)
        if "columns" in plain:
            return TableEncoder.from_plain(plain)
        about = plain.get("codec") or plain["text"]
        if about.get("kind") == "bytes":
            return Bytes()
        path = run_dir / TOKENIZER_FILE
        data = read_whole(path)
        if hashlib.sha256(data).hexdigest() != about["tokenizer_sha256"]:
            raise ValueError(_DAMAGED)
        if about.get("pretrained"):
            tokenizer = pretrained_tokenizer(data)
        else:
            tokenizer = Tokenizer.from_json(data)
        if "codec" in plain:
            return tokenizer
        return TextEncoder.from_plain(about, tokenizer)
    except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        hint = "restore it from a copy"
        raise AssayError(f"{path} cannot be read: {first_line(error)}", hint=hint) from error
