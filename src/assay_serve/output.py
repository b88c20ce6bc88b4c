"""Files and folders of one output that get their names together."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.files.atomic import sync_directory, temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def write_together(path: Path) -> Iterator[Path]:
    """Make a folder whose files and folders get their names beside a path, that of the path itself last."""
    existing = next(one for one in path.absolute().parents if one.is_dir())
    named: list[Path] = []
    with temporary_folder(existing / path.name) as folder:
        yield folder
        for made in folder.iterdir():
            if made.is_file():
                with made.open("rb") as file:
                    os.fsync(file.fileno())
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            found = sorted(folder.iterdir(), key=lambda one: one.name == path.name)
            named.extend(made.replace(path.with_name(made.name)) for made in found)
        except OSError:
            for one in named:
                shutil.rmtree(one, ignore_errors=True)  # of folders: they were not there before
            raise
        sync_directory(path.parent)
