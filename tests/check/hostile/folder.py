"""The folder of a hostile case: files that run code when they are unpickled or imported."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from tests.check.hostile.payloads import CODE, IMPORT_MODULE, TOUCH

from assay.files.checksum import write_sums

if TYPE_CHECKING:
    from pathlib import Path

EVIL = f"{CODE}\nclass Net: ...\ndef run(*a, **k): ...\nx = Net\n"


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (TOUCH,)


def _torch(held: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(held, buffer)
    return buffer.getvalue()


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([_Payload()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _png() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (8, 8)).save(buffer, "png")
    return buffer.getvalue()


KINDS: dict[str, bytes] = {
    "!pickle": pickle.dumps(_Payload()),
    "!torch": _torch({"state_dict": _Payload()}),
    "!npy": _npy(),
    "!png": _png(),
}
"""Contents that text cannot hold."""

COMMON: dict[str, str] = {
    f"{IMPORT_MODULE}.py": EVIL,
    "harmless.py": "",
    "evil.pt": "!torch",
    "evil.npy": "!npy",
    "evil.pkl": "!pickle",
    "hub/hubconf.py": f"{CODE}\ndef evil(): ...\n",
    "sites/evil.pth": f"import os; {CODE}\n",
    "evil.txt": f">>> {CODE}\n",
    "logging.ini": (
        "[loggers]\nkeys=root\n[handlers]\nkeys=x\n[formatters]\nkeys=\n[logger_root]\nhandlers=x\n"
        f"[handler_x]\nclass=FileHandler\nargs=(__import__('os').system('{TOUCH}') and '' or 'log.log',)\n"
    ),
}
"""What lies in the folder of every case."""


def fill(folder: Path, files: dict[str, str]) -> None:
    """Write a case's files, and those that lie everywhere."""
    for name, text in {**COMMON, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("!link:"):
            path.unlink(missing_ok=True)
            path.symlink_to(text.removeprefix("!link:"))
            continue
        content = KINDS.get(text) or text.encode()
        path.write_bytes(content)
        if path.suffix == ".ckpt":  # so that it is not taken for a damaged one
            write_sums(path, [hashlib.sha256(content).hexdigest()])
