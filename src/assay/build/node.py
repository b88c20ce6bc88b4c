"""One node of a config as the object it describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.build.build_error import build_error
from assay.targets.allowed_targets import trusted_in
from assay.targets.instantiate import CallError, instantiate
from assay.targets.own_task import import_tasks
from assay.targets.resolve import check_made, ready

if TYPE_CHECKING:
    from collections.abc import Mapping

NOT_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("spec",),
    "scheduler": ("interval", "frequency", "monitor"),
    "trainer": ("compile", "channels_last", "matmul_precision", "micro_batch"),
}
"""Keys of a node that assay reads itself; the others are arguments of its target."""


def build(config: DictConfig, key: str, /, **objects: Any) -> Any:
    """Make what a node of a config describes.

    Args:
        config: The job.
        key: Dotted path of the node.
        **objects: Arguments of its target that are no config; they come before its keys.

    Returns:
        The object; a `functools.partial` for `_partial_` nodes; None for an empty node.

    Raises:
        ConfigError: A target in it is not allowed, or a call failed; the message names the full key.
    """
    try:
        node = OmegaConf.select(config, key)
        if not node:
            return None
        import_tasks(config)
        tree = ready(config, key, node, NOT_ARGUMENTS.get(key, ()))
        made = instantiate(tree, key, trusted_in(config), **objects)
        check_made(key, made)
        return made
    except CallError as error:
        raise build_error(error.reason, config, error.key) from error.reason
    except OmegaConfBaseException as error:
        raise build_error(error, config, key) from error
