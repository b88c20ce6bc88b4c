"""What a job's config says by reference, kept apart from the resolved config of its run directory."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from omegaconf import OmegaConf, open_dict

from assay.config.tree import walk
from assay.targets.trust import KEY as TRUSTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omegaconf import DictConfig

_PLAIN: Final = re.compile(r"(?:[^$]|\$\{[\w.]+\}|\$\{oc\.select:[\w.]+(?:,[\w.-]*)?\})+", re.ASCII)
"""Text with references to other keys; no call of another resolver, which could read the environment."""


def interpolations(config: DictConfig) -> dict[str, str]:
    """Everything that a job says as `${…}`, as it is written, by its full key.

    Args:
        config: A job, not yet resolved.

    >>> interpolations(OmegaConf.create({"lr": 0.1, "max_lr": "${lr}", "home": "${oc.env:HOME}"}))
    {'max_lr': '${lr}', 'home': '${oc.env:HOME}'}
    """
    return {entry.key: str(entry.node._value()) for entry in walk(config) if entry.is_interpolation}


def as_written(config: DictConfig, written: Mapping[str, str]) -> DictConfig:
    """A resolved config as it was before: what its fingerprint is taken of, and never to be resolved.

    Args:
        config: Left as it is.
        written: From `interpolations`; perhaps somebody else's.
    """
    before = config.copy()
    with open_dict(before):
        _put(before, written)
    return before


def restore(config: DictConfig, written: Mapping[str, str]) -> None:
    """Put references back into a resolved config, so that they follow what they refer to.

    Args:
        config: Changed in place.
        written: From `interpolations`; perhaps somebody else's: what names a target or whom to trust, or
            calls a resolver, is left out, and so is a key that is not there.
    """
    _put(config, {key: text for key, text in written.items() if _is_plain(key, text)})


def _put(config: DictConfig, written: Mapping[str, str]) -> None:
    there = {entry.key for entry in walk(config)}  # not selected: that would ask for what is not yet known
    for key, text in written.items():
        if key in there:
            OmegaConf.update(config, key, text)


def _is_plain(key: str, text: str) -> bool:
    parts = re.split(r"[.\[\]]+", key)
    return "_target_" not in parts and TRUSTED not in parts and _PLAIN.fullmatch(text) is not None
