from __future__ import annotations

import re

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.compose.compose import compose, job_config
from assay.config.serialize import fingerprint


def job(*overrides: str) -> DictConfig:
    return job_config(compose(overrides))


def test_is_a_sha256_that_stays_the_same_from_run_to_run() -> None:
    one, two = job(), job()
    assert one.run_dir != two.run_dir
    assert re.fullmatch(r"[0-9a-f]{64}", fingerprint(one))
    assert fingerprint(one) == fingerprint(two)


@pytest.mark.parametrize("same", ["name=other", "tags=[a]", "hydra.run.dir=elsewhere"])
def test_does_not_change_with_what_leaves_the_outcome_alone(same: str) -> None:
    assert fingerprint(job(same)) == fingerprint(job())


@pytest.mark.parametrize("other", ["seed=1", "optimizer.lr=0.1", "model=mlp", "callbacks=[default,ema]"])
def test_changes_with_what_decides_the_outcome(other: str) -> None:
    assert fingerprint(job(other)) != fingerprint(job())


def test_is_the_same_before_and_after_the_data_is_read() -> None:
    config = OmegaConf.create({"seed": 1, "model": {"n": "${spec.n}"}})
    before = fingerprint(config)
    config.spec = {"n": 3}
    assert fingerprint(config) == before
