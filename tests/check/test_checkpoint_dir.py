from __future__ import annotations

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.check.checkpoint_dir import check_checkpoint_dir
from assay.config.compose import compose, job_config
from assay.errors import ConfigError


def job(*overrides: str) -> DictConfig:
    return job_config(compose(["data=iris", "model=mlp", *overrides]))


def test_the_shipped_options_keep_theirs_in_the_run_directory() -> None:
    check_checkpoint_dir(job())
    check_checkpoint_dir(job("hydra.run.dir=/tmp/somewhere/else"))


@pytest.mark.parametrize(
    "place", ["/elsewhere", "checkpoints", "null", "${run_dir}", "${run_dir}/checkpoints/a"]
)
@pytest.mark.parametrize("name", ["checkpoint", "last_checkpoint"])
def test_another_place_is_refused_with_what_to_type(name: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"^callbacks\.{name}\.dirpath: ") as refused:
        check_checkpoint_dir(job(f"callbacks.{name}.dirpath={place}"))
    assert "hydra.run.dir" in refused.value.hint


def test_one_that_says_nothing_would_keep_them_beside_a_logger() -> None:
    own = {"own": {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "monitor": "val/loss"}}
    with pytest.raises(ConfigError, match=r"callbacks\.own\.dirpath"):
        check_checkpoint_dir(OmegaConf.create({"run_dir": "run", "callbacks": own}))
