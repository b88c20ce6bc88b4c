"""A page in headless Chromium, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")
_CONSOLE = re.compile(r'CONSOLE[:(]\d+\)?\] "(.*)", source')
_OF_THE_MACHINE = ("WebGL", "GL Driver")
"""Said where there is no graphics card."""


@final
@dataclass(frozen=True)
class Seen:
    """A page after its scripts have run.

    Attributes:
        dom: As it is then.
        console: What it printed.
    """

    dom: str
    console: list[str]


def opened(path: Path, folder: Path, width: int = 1200) -> Seen:
    """Open a file where every look-up of a name fails.

    Args:
        path: The page.
        folder: For the browser's own files.
        width: Of the window.
    """
    assert CHROMIUM is not None
    ended = subprocess.run(
        [
            CHROMIUM,
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *("--disable-background-networking", "--disable-component-update"),
            *(f"--user-data-dir={folder}", "--host-resolver-rules=MAP * ~NOTFOUND"),
            *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000"),
            *(f"--window-size={width},900", "--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    said = _CONSOLE.findall(ended.stderr)
    return Seen(ended.stdout, [line for line in said if not any(word in line for word in _OF_THE_MACHINE)])
