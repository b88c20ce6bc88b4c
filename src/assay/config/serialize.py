"""A job's config as plain data and as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from omegaconf import OmegaConf

from assay.config.omegaconf_internals import text_representer

if TYPE_CHECKING:
    from omegaconf import DictConfig


class _Dumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]  # libyaml's is four times as fast
    """Quotes the text that OmegaConf would read as something else."""


_Dumper.add_representer(str, text_representer)


def written(config: DictConfig) -> dict[str, Any]:
    """A mapping as plain data, as it is written.

    Args:
        config: A job, or a part of one.
    """
    plain: Any = OmegaConf.to_container(config, resolve=False)
    return {str(key): value for key, value in plain.items()}


def known(config: DictConfig) -> dict[str, Any]:
    """A job as plain data, resolved once its data has told the `spec`."""
    plain: Any = OmegaConf.to_container(config, resolve="spec" in config, enum_to_str=True)
    return dict(plain)


def to_yaml(plain: Any) -> str:
    """Plain data as `OmegaConf.to_yaml` writes it.

    Args:
        plain: Containers of numbers, text and None.

    >>> print(to_yaml({"lr": 0.1, "tags": ["1e3"]}), end="")
    lr: 0.1
    tags:
    - '1e3'
    """
    text: str = yaml.dump(
        plain, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False
    )
    return text


def to_text(config: DictConfig) -> str:
    """As it was composed, for another process: a line of JSON; YAML where a key is not text."""
    return to_text_of(OmegaConf.to_container(config, resolve=False))


def to_text_of(plain: Any) -> str:
    """The same of a job as plain data."""
    return json.dumps(plain) if _has_only_text_keys(plain) else yaml.safe_dump(plain)


def from_text(text: str) -> DictConfig:
    """Read `to_text` back.

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
