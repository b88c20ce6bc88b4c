"""What a job's config says by reference, kept apart from the resolved config of its run directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omegaconf import OmegaConf

from assay.config.tree import walk
from assay.targets.trust import KEY as TRUSTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omegaconf import DictConfig

_REFERENCES: Final = re.compile(r"(?:[^$]|\$\{[\w.]+\}|\$\{oc\.select:[\w.]+(?:,[\w.-]*)?\})+", re.ASCII)
"""Text with references to other keys; no call of another resolver, which could read the environment."""


def interpolations(config: DictConfig) -> dict[str, str]:
    """Everything that a job says as `${…}`, as it is written, by its full key.

    Args:
        config: A job, not yet resolved.

    >>> interpolations(OmegaConf.create({"lr": 0.1, "max_lr": "${lr}", "home": "${oc.env:HOME}"}))
    {'max_lr': '${lr}', 'home': '${oc.env:HOME}'}
    """
    return {entry.key: str(entry.raw) for entry in walk(config) if entry.is_interpolation}


def as_written(
    config: DictConfig, written: Mapping[str, str], *, references_only: bool = False
) -> DictConfig:
    """A resolved config as it was before; to be resolved again with references alone.

    Args:
        config: Left as it is.
        written: From `interpolations`; perhaps somebody else's. A key that is not there is left out.
        references_only: Leave out what names a target or whom to trust, and calls of resolvers.
    """
    before = config.copy()
    there = {entry.key for entry in walk(config)}  # not selected: that would ask for what is not yet known
    for key, text in written.items():
        if key in there and (_is_reference(key, text) or not references_only):
            OmegaConf.update(before, key, text)
    return before


def _is_reference(key: str, text: str) -> bool:
    parts = re.split(r"[.\[\]]+", key)
    return "_target_" not in parts and TRUSTED not in parts and _REFERENCES.fullmatch(text) is not None
