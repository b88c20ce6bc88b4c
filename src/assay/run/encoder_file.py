"""`encoder.json` of a run: what its table's columns or its texts are turned into, as plain data."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from assay.data.tabular.table_encoder import TableEncoder
from assay.data.tokenizer import Bytes, TextEncoder, Tokenizer, pretrained_tokenizer
from assay.errors import AssayError, first_line
from assay.files.atomic import write_text
from assay.files.checksum import json_is_whole, seal_json
from assay.files.symlinks import read_whole

if TYPE_CHECKING:
    from pathlib import Path

    from assay.data.samples import Encoder


TOKENIZER_FILE = "tokenizer.json"


def write_tokenizer(run_dir: Path, tokenizer: Tokenizer) -> str:
    """Keep what a tokenizer has learned, for assay and for Hugging Face's `tokenizers` alike."""
    text = tokenizer.to_json()
    write_text(run_dir / TOKENIZER_FILE, text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_tokenizer(run_dir: Path, sha256: str, *, pretrained: bool = False) -> Tokenizer:
    """The tokenizer of a run's texts."""
    path = run_dir / TOKENIZER_FILE
    try:
        data = read_whole(path)
        if hashlib.sha256(data).hexdigest() == sha256:
            return pretrained_tokenizer(data) if pretrained else Tokenizer.from_json(data)
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    raise _damaged(path)


def _damaged(path: Path) -> AssayError:
    return AssayError(
        f"{path} is damaged or was changed: it is not as its SHA-256 says", hint="restore it from a copy"
    )


FILE = "encoder.json"


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
                f"{path} is not there: it says how columns are encoded", hint="restore it from a copy"
            )
        return None
    try:
        data = read_whole(path)
        plain = json.loads(data) if json_is_whole(data) else {}
        if "columns" in plain:
            return TableEncoder.from_plain(plain)
        if codec := plain.get("codec"):
            return Bytes() if codec["kind"] == "bytes" else read_tokenizer(run_dir, codec["tokenizer_sha256"])
        if text := plain.get("text"):
            pretrained = bool(text.get("pretrained"))
            tokenizer = read_tokenizer(run_dir, text["tokenizer_sha256"], pretrained=pretrained)
            return TextEncoder.from_plain(text, tokenizer)
    except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    raise _damaged(path)


def read_codec(run_dir: Path) -> Bytes | Tokenizer:
    """What makes tokens of texts for a run's language model."""
    codec = read_encoder(run_dir, must_be=True)
    if not isinstance(codec, Bytes | Tokenizer):
        raise AssayError(f"{run_dir / FILE} does not say what makes tokens of the run's texts")
    return codec
