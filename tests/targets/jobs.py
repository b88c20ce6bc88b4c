"""Jobs of a few nodes, and how they are refused by name."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.errors import ConfigError
from assay.targets.allowed_targets import check_targets


def job(tree: dict[str, Any], *trusted: str) -> DictConfig:
    return OmegaConf.create({**tree, "trusted_packages": list(trusted)})


def refused(tree: dict[str, Any], *trusted: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_targets(job(tree, *trusted))
    return caught.value
