"""Keys of a job that do not make it another one."""

from __future__ import annotations

from typing import Final

NOT_IDENTITY: Final = (
    "run_dir",
    "name",
    "tags",
    "spec",
    "trusted_packages",
    "enforce_clean_git",
    "predictions",
)
"""They leave the outcome alone, or follow from the rest."""
REPETITIONS: Final = ("seed", "fold", "inner_fold")
"""Jobs that differ in these alone repeat one configuration."""
