"""A job's config as text, for another process: as it was composed, interpolations included."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf

if TYPE_CHECKING:
    from omegaconf import DictConfig


def to_text(config: DictConfig) -> str:
    """One line of JSON; YAML where a key is no text, which JSON cannot write.

    Args:
        config: A job.
    """
    return to_text_of(OmegaConf.to_container(config, resolve=False))


def to_text_of(plain: Any) -> str:
    """The same of a job as plain data.

    Args:
        plain: A job.
    """
    return json.dumps(plain) if _has_only_text_keys(plain) else yaml.safe_dump(plain)


def from_text(text: str) -> DictConfig:
    """Read `to_text` back.

    Args:
        text: What it wrote.

    >>> job = OmegaConf.create({"lr": 1e-5, "half": "${lr}", "weights": {0: 1.0}})
    >>> from_text(to_text(job)) == job
    True
    """
    plain = json.loads(text) if text.startswith("{") else yaml.safe_load(text)
    config: DictConfig = OmegaConf.create(plain)
    OmegaConf.set_struct(config, True)
    return config


def _has_only_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_only_text_keys(inner) for key, inner in value.items())
    return not isinstance(value, list) or all(map(_has_only_text_keys, value))
