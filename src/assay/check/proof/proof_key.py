"""What of a job decides a proof: equal texts of it share one."""

from __future__ import annotations

import json
from typing import Any

from omegaconf import DictConfig, OmegaConf

_RATES = ("lr", "weight_decay", "momentum", "dampening", "betas", "eps", "alpha", "rho")
"""Arguments of optimizers that are numbers to compute with, whatever the optimizer."""


def copy_of(config: DictConfig) -> DictConfig:
    """A copy to fill in, which refuses keys that are not there."""
    copied = OmegaConf.masked_copy(config, list(config))
    OmegaConf.set_struct(copied, True)
    return copied


def plain_node(config: DictConfig, key: str) -> Any:
    """A node resolved; as written where it waits for something."""
    node = OmegaConf.select(config, key)
    if not OmegaConf.is_config(node):
        return node
    try:
        return OmegaConf.to_container(node, resolve=True)
    except Exception:  # an interpolation of what is not known yet
        return OmegaConf.to_container(node, resolve=False)


def trainer_key(config: DictConfig) -> str:
    """What a job's trainer and its callbacks are made from.

    Args:
        config: A job with its `spec`.
    """
    return json.dumps([plain_node(config, key) for key in ("trainer", "callbacks")], default=str)


def but_for_rates(node: Any) -> Any:
    """The optimizer's node in which a rate is only nothing or something: how large it is changes no shape.

    Args:
        node: As plain data.
    """
    if not isinstance(node, dict):
        return node
    return {key: _is_zero(value) if key in _RATES else value for key, value in node.items()}


def _is_zero(value: Any) -> Any:
    if isinstance(value, list):
        return [_is_zero(one) for one in value]
    return value == 0 if isinstance(value, int | float) else value


def elsewhere(node: Any, run_dir: str) -> Any:
    """A node without the run directory that paths in it begin with: each job has another one.

    Args:
        node: As plain data.
        run_dir: Of the job.
    """
    if isinstance(node, dict):
        return {key: elsewhere(value, run_dir) for key, value in node.items()}
    if isinstance(node, list):
        return [elsewhere(value, run_dir) for value in node]
    if isinstance(node, str) and (node == run_dir or node.startswith(f"{run_dir}/")):
        return node[len(run_dir) :] or "."
    return node
