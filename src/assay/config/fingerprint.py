"""What makes two jobs the same job."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

if TYPE_CHECKING:
    from omegaconf import DictConfig

_NOT_IDENTITY = ("run_dir", "name", "tags", "spec", "trusted_packages", "enforce_clean_git")


def fingerprint(config: DictConfig) -> str:
    """SHA-256 of a job's config without what leaves its outcome alone: where it writes, its name and tags.

    Args:
        config: A job; interpolations count as written, so that it can be taken before the data is read.

    >>> one = OmegaConf.create({"seed": 1, "lr": 0.1, "run_dir": "a"})
    >>> two = OmegaConf.create({"lr": 0.1, "run_dir": "b", "seed": 1})
    >>> fingerprint(one) == fingerprint(two)
    True
    """
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)  # noqa: S101 - a job is a mapping
    identity = {key: value for key, value in plain.items() if key not in _NOT_IDENTITY}
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
