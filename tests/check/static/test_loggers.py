"""What a logger's service would refuse is refused before the run begins."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from assay.check.signature import check_signatures
from assay.check.trainer import check_loggers
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.targets.optional_packages import check_installed

if TYPE_CHECKING:
    from omegaconf import DictConfig

pytestmark = pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("logger.wandb.settings.console=0", "logger.wandb.settings.console"),
        ("+logger.wandb.settings.no_such=1", "logger.wandb.settings.no_such"),
        ("+logger.wandb.no_such=1", "logger.wandb.no_such"),
        ("+logger.wandb.experiment=abc", "logger.wandb.experiment"),
        ("logger.wandb.tags=abc", "logger.wandb.tags"),
    ],
)
def test_weights_and_biases(typed: str, key: str) -> None:
    config = job_config(compose(["data=iris", "logger=wandb", typed]))
    with pytest.raises(ConfigError) as caught:
        refuse(config)
    assert caught.value.key == key


@pytest.mark.parametrize("typed", ["logger.wandb.offline=true", "+logger.wandb.notes=first"])
def test_what_it_takes_is_let_through(typed: str) -> None:
    config = job_config(compose(["data=iris", "logger=wandb", typed]))
    check_installed(config)
    refuse(config)


def refuse(config: DictConfig) -> None:
    check_signatures(config, ["logger"])
    check_loggers(config)
