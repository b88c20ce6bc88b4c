"""A module or datamodule of somebody's own in the place of assay's: what it is given, and its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf, open_dict, read_write

from assay.config.tree import walk
from assay.config.unread_keys import OF_MODULE, OUR_DATA, OUR_MODULE, is_read, keys_read
from assay.targets.objects import TARGET, name_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

_NAME = re.compile(r"\w+(\.\w+)+", re.ASCII)


def settle_own_parts(config: DictConfig, hydra_node: DictConfig) -> None:
    """Leave custom parts what is theirs alone, and name them by their option or class.

    A typed `data._target_` gets what was typed for it: the other keys are arguments of assay's datamodule.
    A job with a custom module has no model, loss, optimizer and so on unless something reads them.

    Args:
        config: A composed job; changed in place.
        hydra_node: Its `hydra` node, whose choices name the parts; changed in place.
    """
    words: Any = OmegaConf.to_container(hydra_node.overrides.task, resolve=False)  # they may hold `${…}`
    typed = [str(text).lstrip("+~").partition("=")[0].split(".") for text in words]
    data, module = (OmegaConf.select(config, f"{node}._target_") for node in ("data", "module"))
    own_data = ["data", "_target_"] in typed and data != OUR_DATA
    model = OmegaConf.select(config, "model._target_") == TARGET
    for node in [*(["data"] if own_data else []), *(["model"] if model else [])]:
        kept = {parts[1] for parts in typed if parts[0] == node and len(parts) > 1}
        with open_dict(config):
            for key in [str(key) for key in config[node] if str(key) not in kept]:
                del config[node][key]
    names: dict[str, str] = {}
    if own_data and isinstance(data, str) and _NAME.fullmatch(data):
        names["data"] = name_of(config.data)
    chosen = hydra_node.runtime.choices
    with read_write(hydra_node), open_dict(hydra_node), open_dict(config):
        if isinstance(module, str) and module != OUR_MODULE and _NAME.fullmatch(module):
            option = chosen.get("module", "default")
            names["model"] = name_of(config.module) if option == "default" else option
            read = keys_read(list(walk(config)), without=OF_MODULE)
            for name in OF_MODULE:
                if name in config and not is_read(name, read):
                    del config[name]
                    chosen[name] = None
        elif model:
            names["model"] = name_of(config.model)
        for group, name in names.items():
            if group in chosen:
                chosen[group] = name
