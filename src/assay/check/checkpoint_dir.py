"""Where callbacks keep checkpoints: in the run directory, which is the whole truth about a run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_KIND: Final = ".ModelCheckpoint"


def check_checkpoint_dir(config: DictConfig) -> None:
    """Refuse checkpoints that resuming, testing and comparing would not find.

    Args:
        config: A job.

    Raises:
        ConfigError: A callback keeps its checkpoints elsewhere than in `checkpoints/` of the run directory.
    """
    run_dir = str(config.get("run_dir") or "")
    wanted = os.path.normpath(os.path.join(run_dir, "checkpoints"))  # noqa: PTH118 - nothing is opened
    for key, value in _places(config):
        if value is None or os.path.normpath(str(value)) != wanted:
            raise ConfigError(
                f"a run keeps its checkpoints in its own directory, not in {value}",
                key=key,
                hint=f"{key}='${{run_dir}}/checkpoints', and hydra.run.dir=… for the whole run elsewhere",
            )


def _places(config: DictConfig) -> Iterator[tuple[str, object]]:
    """Key and value of each folder that is given for checkpoints."""
    for name, node in (config.get("callbacks") or {}).items():
        if isinstance(node, DictConfig) and ("dirpath" in node or str(node.get("_target_")).endswith(_KIND)):
            key = f"callbacks.{name}.dirpath"
            try:
                yield key, OmegaConf.select(config, key)
            except OmegaConfBaseException as error:
                raise ConfigError(str(error).splitlines()[0], key=key) from error
