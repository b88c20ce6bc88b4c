"""Tab completion of groups, options and keys, by Hydra's own completion over assay's verbs."""

from __future__ import annotations

import os

from assay.config.compose import PRIMARY, loader

VERBS = ("train",)
"""The verbs whose arguments are overrides."""


def shell_completion(request: str) -> None:
    """Answer `assay -sc install=bash`, `uninstall=…` and the shell's own `query=…`.

    Args:
        request: `install=SHELL`, `uninstall=SHELL` or `query=SHELL`; bash, zsh or fish.
    """
    line = os.environ.get("COMP_LINE", "")
    for verb in VERBS:
        # Hydra's completion knows the program, then overrides.
        line = line.replace(f" {verb} ", " ", 1) if f" {verb} " in line else line
    os.environ["COMP_LINE"] = line
    with loader() as hydra:
        hydra.shell_completion(config_name=PRIMARY, overrides=[request])
