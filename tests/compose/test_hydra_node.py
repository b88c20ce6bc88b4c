from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.compose.hydra_node import SWEEP_PARTS, check_hydra
from assay.errors import ConfigError
from assay.targets.trust import Trust


def node(key: str, value: Any) -> Any:
    config = OmegaConf.create({"hydra": {"runtime": {"output_dir": "x"}}, "hidden": value})
    OmegaConf.update(config, f"hydra.{key}", value, force_add=True)
    return config


@pytest.mark.parametrize(
    ("key", "value"),
    [(f"{key.removeprefix('hydra.')}._target_", name) for key, names in SWEEP_PARTS.items() for name in names]
    + [("sweeper.sampler._target_", "optuna.samplers.TPESampler"), ("job.name", "my-job_2")],
)
def test_what_hydra_may_be_asked(key: str, value: Any) -> None:
    check_hydra(node(key, value).hydra, Trust())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("launcher._target_", "os.system"),
        ("launcher._target_", "assay.sweep.search.grid.GridSearch"),
        ("sweeper._target_", "assay.sweep.launcher.local.LocalLauncher"),
        ("sweeper.sampler._target_", "optuna.storages.RDBStorage"),
        ("sweeper.sampler._target_", "optuna.samplers.os.system"),
        ("sweeper.sampler._target_", ["optuna.samplers.TPESampler"]),
        ("callbacks.mine._target_", "my_package.Callback"),
        ("job.env_set.LD_PRELOAD", "x.so"),
        ("job_logging.handlers.file.class", "logging.handlers.SocketHandler"),
        ("hydra_logging.formatters.simple.()", "os.system"),
    ],
)
def test_what_it_may_not_be_asked(key: str, value: Any) -> None:
    hidden = node(key, "${hidden}")
    hidden.hidden = value
    for config in (node(key, value), hidden):
        with pytest.raises(ConfigError) as refused:
            check_hydra(config.hydra, Trust())
        assert f"hydra.{key}".startswith(str(refused.value.key))
        assert refused.value.hint
