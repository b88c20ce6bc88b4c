"""Which arguments of a node are given later, by assay itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from omegaconf import DictConfig, OmegaConf

from assay.config.omegaconf_internals import parent_of, root_of
from assay.config.unread_keys import OUR_MODULE
from assay.targets.allowed_targets import trusted_in
from assay.targets.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping


@final
@dataclass(frozen=True)
class Supplied:
    """What a call gets beside what its node says.

    Attributes:
        by_position: How many values come first, after the node's own `_args_`.
        by_name: Names of the others, each with what to type instead of it.
        otherwise: What to do where a call does not take them.
    """

    by_position: int = 0
    by_name: Mapping[str, str] | None = None
    otherwise: str = ""

    @property
    def names(self) -> Mapping[str, str]:
        """`by_name`, empty where there are none."""
        return self.by_name or {}


_TRAINER = {
    "callbacks": "callbacks=[…] names them; see assay configs callbacks",
    "logger": "logger=[…] names them; see assay configs logger",
    "plugins": "precision=… and trainer.strategy=… choose them",
    "enable_checkpointing": "callbacks=[checkpoint] is what keeps checkpoints",
    "enable_progress_bar": "callbacks=[progress_bar] is what shows one",
    "enable_model_summary": "callbacks=[model_summary] is what shows one",
    "use_distributed_sampler": "leave it out",
    "default_root_dir": "hydra.run.dir=… is the run directory",
}
_MODULE = {
    "model": "model=…",
    "task": "data=…, whose spec names it",
    "loss": "loss=…",
    "optimizer": "optimizer=…",
    "scheduler": "scheduler=…",
    "schedule": "scheduler.interval=…, scheduler.frequency=…, scheduler.monitor=…",
    "metrics": "metrics=…",
    "augment": "augment=…",
    "param_groups": "param_groups=…",
    "finetune": "finetune=…",
    "target_scale": "data.standardize_targets=…",
    "channels_last": "trainer.channels_last=true",
}
_CALLED_WITH = {"optimizer": 1, "scheduler": 1, "param_groups": 2}


def is_called_later(key: str, node: DictConfig) -> bool:
    """Whether a node has to be `_partial_`, because assay calls it with what is not there yet."""
    return key in _CALLED_WITH or _called_around(key, node) is not None


def supplied(config: DictConfig, key: str) -> Supplied | None:
    """What comes later to the call of a node; None where nobody can tell.

    Args:
        config: The job.
        key: Full key of a node with a `_target_`.
    """
    ours = OmegaConf.select(config, "module._target_", default=OUR_MODULE) == OUR_MODULE
    if key == "trainer":
        return Supplied(by_name=_TRAINER)
    if key == "module" and ours:
        return Supplied(by_name=_MODULE)
    node = OmegaConf.select(config, key)
    if not (node is not None and node.get("_partial_")):
        return Supplied()
    if key in _CALLED_WITH and ours:
        return Supplied(_CALLED_WITH[key])
    called = _called_around(key, node)
    return None if called is None else Supplied(called[0], called[1], "take data=custom; ")


def _called_around(key: str, node: DictConfig) -> tuple[int, Mapping[str, str]] | None:
    """What the class of the node around calls this one with, as it says in `calls_with`."""
    around, root = parent_of(node), root_of(node)
    if not isinstance(around, DictConfig) or "_target_" not in around or not isinstance(root, DictConfig):
        return None
    outer, _, name = key.rpartition(".")
    kind = resolve(outer, str(around._target_), trusted_in(root))
    called: tuple[int, Mapping[str, str]] | None = getattr(kind, "calls_with", {}).get(name)
    return called
