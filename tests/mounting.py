"""File systems that are small, full or read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[bool]:
    """Mount one in memory, as only the superuser can; whether that was possible.

    Args:
        folder: It is mounted on, made if need be.
        options: As for `mount -o`, such as `size=8m`.
    """
    folder.mkdir(exist_ok=True)
    able = hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("mount") and shutil.which("umount")
    if not able or not mount("-t", "tmpfs", "-o", options, "tmpfs", str(folder)):
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run([str(shutil.which("umount")), "--lazy", str(folder)], check=True)


def mount(*words: str) -> bool:
    """Run `mount`; whether it did what it was asked for.

    Args:
        words: Its arguments.
    """
    command = [str(shutil.which("mount")), *words]
    return not subprocess.run(command, capture_output=True, check=False).returncode


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may become larger; the system refuses, as it does on a full disk."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
