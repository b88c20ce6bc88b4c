"""A job's config as plain data and as text, and what makes two jobs the same job."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeGuard

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.config.omegaconf_internals import kept, text_representer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from omegaconf import DictConfig


class _Dumper(getattr(yaml, "CDumper", yaml.Dumper)):  # type: ignore[misc]  # libyaml's is four times as fast
    """Quotes the text that OmegaConf would read as something else."""


_Dumper.add_representer(str, text_representer)


def to_raw_dict(config: DictConfig) -> dict[str, Any]:
    """A mapping as plain data, as it is written."""
    plain: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    return {str(key): _without_tuples(value) for key, value in plain.items()}


def _without_tuples(value: Any) -> Any:
    """Plain data with lists, as YAML and OmegaConf 2.3 have them, in place of tuples."""
    if isinstance(value, dict):
        return {key: _without_tuples(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_tuples(inner) for inner in value]
    return value


def to_resolved_dict(config: DictConfig) -> dict[str, Any]:
    """A job as plain data, resolved once its data has told the `spec`."""
    plain: Any = resolved(config)
    if plain is None:
        plain = OmegaConf.to_container(config, resolve="spec" in config, enum_to_str=True)
    return dict(plain)


@kept
def resolved(config: DictConfig) -> dict[str, Any] | None:
    """All of a job that nothing changes any more, with nothing left to resolve; None of another one."""
    if not OmegaConf.is_readonly(config) or "spec" not in config:
        return None
    try:
        plain: Any = OmegaConf.to_container(
            config, resolve=True, throw_on_missing=True, enum_to_str=True
        )
    except OmegaConfBaseException:
        return None
    return dict(plain)


def resolved_node(config: DictConfig, key: str) -> Any:
    """What `resolved` has under a key."""
    node: Any = resolved(config)
    for name in key.split("."):
        if isinstance(node, dict):
            node = node.get(name)
        else:
            node = None
    return node


def copy_of(config: DictConfig) -> DictConfig:
    """A copy to fill in, which refuses keys that are not there."""
    copied = OmegaConf.masked_copy(config, list(config))
    OmegaConf.set_struct(copied, True)
    return copied


def to_yaml(plain: Any) -> str:
    """Plain data as `OmegaConf.to_yaml` writes it."""
    options: Any = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
    return str(yaml.dump(plain, Dumper=_Dumper, **options))


def exact_json(plain: Any) -> str:
    """Plain data as a line of JSON; empty where that reads back otherwise, as keys that are numbers do."""
    text = json.dumps(plain)
    if json.loads(text) == plain:
        return text
    return ""


LARGEST_SEED = 2**32 - 1
MOST_THREADS = 1024
"""Of a process; more are asked for by mistake."""


def value_of(config: DictConfig, key: str) -> Any:
    """What stands under a key, as plain data; None where it waits for the data, or is refused elsewhere."""
    try:
        value = OmegaConf.select(config, key)
        if OmegaConf.is_config(value):
            return OmegaConf.to_container(value, resolve=True)
        return value
    except OmegaConfBaseException:
        return None


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number; true and false are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


NOT_IDENTITY = (
    "run_dir",
    "name",
    "tags",
    "spec",
    "trusted_packages",
    "predictions",
    "baseline",
)
"""They leave the outcome alone, or follow from the rest."""
REPETITIONS = ("seed", "fold")
"""Jobs that differ in these alone repeat one configuration."""


def fingerprint(config: DictConfig, without: Sequence[str] = ()) -> str:
    """SHA-256 of a job's config without what leaves its outcome alone: where it writes, its name and tags."""
    return fingerprint_of(to_raw_dict(config), without)


def fingerprint_of(config: Mapping[str, Any], without: Sequence[str] = ()) -> str:
    """The same of a job as plain data; without `REPETITIONS`, what jobs of one configuration share."""
    identity = {
        key: value for key, value in config.items() if key not in (*NOT_IDENTITY, *without)
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()
