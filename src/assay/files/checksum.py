"""SHA-256 sums: at the end of a text, and beside a checkpoint as `sha256sum` writes it; without torch."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from assay.files.atomic import write_text
from assay.files.symlinks import read_whole

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path


_YAML = ("# sha256: ", "\n")
_JSON = ('  "sha256": "', '"\n}\n')
_DIGITS = 64


def seal_yaml(text: str) -> str:
    """Add the sum as a last line, a comment."""
    if not text.endswith("\n"):
        text += "\n"
    return _seal(text, *_YAML)


def seal_json(text: str) -> str:
    """Add the sum as the last field, `sha256`, of everything before it."""
    return _seal(text.rstrip().removesuffix("\n}") + ",\n", *_JSON)


def is_yaml_intact(data: bytes) -> bool | None:
    """Whether a YAML file is as it was sealed; None when it has no seal."""
    if _YAML[0].encode() in data:
        return _is_intact(data, *_YAML)
    return None


def is_json_intact(data: bytes) -> bool:
    """Whether a JSON file is as it was sealed."""
    return _is_intact(data, *_JSON)


def _seal(text: str, before: str, after: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{text}{before}{digest}{after}"


def _is_intact(data: bytes, before: str, after: str) -> bool:
    length = len(before) + _DIGITS + len(after)
    text = data[:-length]
    end = data[-length:]
    return end == f"{before}{hashlib.sha256(text).hexdigest()}{after}".encode()


SUFFIX = ".sha256"


def sum_path(path: Path) -> Path:
    """The path of a checkpoint's sum file."""
    return path.with_name(path.name + SUFFIX)


def sha256(path: Path) -> str:
    """The sum that is listed for a checkpoint; empty when there is none."""
    return next(iter(read_sums(path.resolve())), "")


def read_sums(path: Path) -> list[str]:
    """The sums that are listed for a checkpoint, the newest first; none when its sum file is damaged."""
    try:
        text = read_whole(sum_path(path), 1 << 20).decode("utf-8", "surrogateescape")
    except OSError:
        return []
    line = re.compile(f"([0-9a-f]{{64}})  {re.escape(path.name)}\n")
    # All of it must be as it was written: a flipped bit anywhere is damage.
    if re.fullmatch(f"({line.pattern})+", text):
        return line.findall(text)
    return []


def write_sums(path: Path, sums: list[str]) -> None:
    """List the sums of a checkpoint."""
    write_text(sum_path(path), "".join(f"{checksum}  {path.name}\n" for checksum in sums))


def content_sums(path: Path) -> list[str]:
    """Sums of which one is that of the file; read from the file itself when it came without."""
    if not path.is_file() or path.is_symlink():
        return []
    if sum_path(path).is_file():  # a sum that does not fit must not be made to fit
        return read_sums(path)
    with path.open("rb") as file:
        return [digest_of(file)]


def digest_of(file: BufferedReader) -> str:
    """SHA-256 of what is left to read."""
    return hashlib.file_digest(file, "sha256").hexdigest()


def describe_damage(path: Path) -> str:
    """Why a checkpoint cannot be used, as a sentence without its subject; empty when it is whole."""
    source = path.resolve()
    try:
        with source.open("rb") as file:
            if not sum_path(source).is_file():
                return f"has no {SUFFIX} file beside it, so it cannot be verified"
            sums = read_sums(source)
            digest = digest_of(file)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    # A writer may have been between its steps at the first look.
    if digest in sums or digest in read_sums(source):
        return ""
    if not sums:
        return f"cannot be verified: {sum_path(source).name} is damaged"
    return f"is damaged: its SHA-256 is not the one in {sum_path(source).name}"
