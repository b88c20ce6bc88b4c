"""What a job is made of, by the names of its classes."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from assay.config.unread_keys import OUR_MODULE
from assay.targets.objects import name_of


def chosen_classes(config: DictConfig) -> dict[str, str]:
    """The class of each node that says what is trained, by its key."""
    if config.module._target_ != OUR_MODULE:
        return {"model": name_of(config.module)}
    nodes = {key: config.get(key) or {} for key in ("model", "loss", "optimizer", "scheduler", "augment")}
    shape = OmegaConf.select(config, "scheduler.lr_lambda")
    if isinstance(shape, DictConfig):
        nodes["scheduler"] = shape  # says more than LambdaLR
    network = OmegaConf.select(config, "model.network")
    if isinstance(network, DictConfig):
        nodes["model"] = network  # and more than Adapted
    return {key: name_of(node) for key, node in nodes.items() if "_target_" in node}
