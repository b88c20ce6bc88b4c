"""What makes two jobs the same job."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from assay.config.serialize import written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omegaconf import DictConfig

NOT_IDENTITY: Final = (
    "run_dir",
    "name",
    "tags",
    "spec",
    "trusted_packages",
    "enforce_clean_git",
    "predictions",
    "baseline",
)
"""They leave the outcome alone, or follow from the rest."""
REPETITIONS: Final = ("seed", "fold", "inner_fold")
"""Jobs that differ in these alone repeat one configuration."""


def fingerprint(config: DictConfig) -> str:
    """SHA-256 of a job's config without what leaves its outcome alone: where it writes, its name and tags.

    Args:
        config: A job; interpolations count as written, so that it can be taken before the data is read.

    >>> from omegaconf import OmegaConf
    >>> one = OmegaConf.create({"seed": 1, "lr": 0.1, "run_dir": "a"})
    >>> two = OmegaConf.create({"lr": 0.1, "run_dir": "b", "seed": 1})
    >>> fingerprint(one) == fingerprint(two)
    True
    """
    return fingerprint_of(written(config))


def config_fingerprint(config: DictConfig) -> str:
    """The same of a job without its seed and fold: repetitions of one configuration share it.

    Args:
        config: A job; interpolations count as written.
    """
    return fingerprint_of(written(config), REPETITIONS)


def fingerprint_of(config: Mapping[str, Any], without: Sequence[str] = ()) -> str:
    """The same of a job as plain data.

    Args:
        config: A job.
        without: More top-level keys that do not count: without `seed`, jobs that differ in nothing else are
            the same.
    """
    identity = {key: value for key, value in config.items() if key not in (*NOT_IDENTITY, *without)}
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
