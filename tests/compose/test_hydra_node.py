from __future__ import annotations

import copy
from typing import Any

import pytest
from omegaconf import OmegaConf

from assay.compose.hydra_node import SWEEP_PARTS, check_hydra
from assay.errors import ConfigError

FINE: list[tuple[str, Any]] = [
    (f"{key.removeprefix('hydra.')}._target_", target) for key, some in SWEEP_PARTS.items() for target in some
]
FINE += [
    ("sweeper.sampler._target_", "optuna.samplers.TPESampler"),
    ("callbacks.log._target_", "hydra.experimental.callbacks.LogJobReturnCallback"),
    ("job.name", "my-job_2"),
    ("job.env_set.OMP_NUM_THREADS", "1"),
    ("job_logging.handlers.file.filename", "${hydra.runtime.output_dir}/${hydra.job.name}.log"),
    ("job_logging.handlers.console.stream", "ext://sys.stderr"),
    ("job_logging.formatters.simple.()", "colorlog.ColoredFormatter"),
]
BAD: list[tuple[str, Any]] = [
    ("launcher._target_", "os.system"),
    ("launcher._target_", "assay.sweep.search.grid.GridSearch"),
    ("sweeper._target_", "assay.sweep.launcher.local.LocalLauncher"),
    ("sweeper.sampler._target_", "optuna.storages.RDBStorage"),
    ("sweeper.sampler._target_", "optuna.samplers.os.system"),
    ("sweeper.sampler._target_", ["optuna.samplers.TPESampler"]),
    ("callbacks.mine._target_", "my_package.Callback"),
    ("job.name", "../../x"),
    ("job.env_set.LD_PRELOAD", "x.so"),
    ("job.env_set.PATH", "/x"),
    ("job_logging.handlers.file.class", "logging.handlers.SocketHandler"),
    ("job_logging.handlers.file.filename", "/etc/passwd"),
    ("job_logging.handlers.file.filename", "../x.log"),
    ("job_logging.handlers.console.stream", "ext://os.environ"),
    ("hydra_logging.formatters.simple.()", "os.system"),
    ("job_logging.x", "cfg://handlers"),
]


def node(key: str, value: Any) -> Any:
    made = OmegaConf.create({"runtime": {"output_dir": "x"}, "job": {"name": "assay"}})
    parts = key.split(".")
    inner: dict[str, Any] = {parts[-1]: value}
    for part in reversed(parts[:-1]):
        inner = {part: inner}
    return OmegaConf.create({"hydra": OmegaConf.merge(made, inner)}).hydra


@pytest.mark.parametrize(("key", "value"), FINE)
def test_what_hydra_may_be_asked(key: str, value: Any) -> None:
    check_hydra(node(key, value))


@pytest.mark.parametrize(("key", "value"), BAD)
def test_what_it_may_not_be_asked(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        check_hydra(node(key, copy.deepcopy(value)))
    assert str(refused.value.key).startswith(f"hydra.{key.rpartition('.')[0]}")
    assert refused.value.hint


@pytest.mark.parametrize(("key", "value"), [one for one in BAD if isinstance(one[1], str)][:5])
def test_an_interpolation_hides_nothing(key: str, value: str) -> None:
    made = OmegaConf.create({"hydra": node(key, "${hydra.hidden}")})
    OmegaConf.update(made, "hydra.hidden", value)
    with pytest.raises(ConfigError):
        check_hydra(made.hydra)
