from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf

from assay.check.job import check_job
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def refused(job: DictConfig) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_job(job)
    return caught.value


def test_the_default_job_is_fine(job: DictConfig) -> None:
    check_job(job)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_seeds(job: DictConfig, seed: int) -> None:
    job.seed = seed
    check_job(job)


@pytest.mark.parametrize("seed", [None, True, -1, 2**32, 0.5, "x", [1], "${data.transform.normalize}"])
def test_no_seeds(job: DictConfig, seed: object) -> None:
    job.seed = seed
    assert refused(job).key == "seed"


def test_what_is_missing_is_named_all_at_once(job: DictConfig) -> None:
    job.data.source = {"path": "???", "columns": ["a", {"name": "???"}]}
    error = refused(job)
    assert error.key == "data.source.columns[1].name, data.source.path"
    assert error.hint == "add data.source.columns[1].name=… data.source.path=…"


def test_an_interpolation_of_nothing(job: DictConfig) -> None:
    job.optimizer.betas = [0.9, "${optimizer.epsilon}"]
    error = refused(job)
    assert error.key == "optimizer.betas[1]"
    assert "did you mean 'optimizer.eps'?" in error.message


def test_the_spec_comes_with_the_data(job: DictConfig) -> None:
    job.model.widths = "${spec.anything}"
    check_job(job)


@pytest.mark.parametrize(
    "key", ["trainer.accumulate_grad_batches", "trainer.log_every_n_steps", "scheduler.frequency"]
)
@pytest.mark.parametrize("value", [0, -1, 0.5, True, "often"])
def test_counts(job: DictConfig, key: str, value: object) -> None:
    OmegaConf.update(job, key, value)
    error = refused(job)
    assert (error.key, error.hint) == (key, f"{key}=1")


@pytest.mark.parametrize("interval", ["batch", 3])
def test_interval(job: DictConfig, interval: object) -> None:
    job.scheduler.interval = interval
    assert refused(job).key == "scheduler.interval"


@pytest.mark.parametrize(
    "key", ["data", "model", "loss", "optimizer", "module", "trainer", "callbacks.checkpoint", "logger.csv"]
)
@pytest.mark.parametrize("value", [None, 3, {"lr": 1}])
def test_nodes_that_must_name_a_class(job: DictConfig, key: str, value: object) -> None:
    OmegaConf.update(job, key, value, merge=False)
    if value is None and "." in key:  # one way to leave it out
        check_job(job)
        return
    assert refused(job).key == key


def test_a_module_of_ones_own_needs_no_model(job: DictConfig) -> None:
    job.trusted_packages = ["my_project"]
    job.module._target_ = "my_project.Gan"
    job.model = job.loss = job.optimizer = None
    check_job(job)


def test_no_callbacks_and_no_loggers(job: DictConfig) -> None:
    job.callbacks, job.logger = {}, {}
    check_job(job)
