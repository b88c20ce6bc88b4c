"""Where the options of groups go that are not called as their node."""

from __future__ import annotations

from typing import Final

PACKAGES: Final = {
    "experiment": "_global_",
    "debug": "_global_",
    "task": "_global_",
    "device": "trainer",
    "precision": "trainer",
}
"""Groups whose options are merged somewhere else than under their own name."""
