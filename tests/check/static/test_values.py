from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf

from assay.check.job import check_values
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("data.batch_size", [1, 512], [0, -3, 1.5, "x", True]),
        ("data.eval_batch_size", [1], [0]),
        ("data.num_workers", [0, 8], [-1, "many"]),
        ("data.split.val", [0, 0.1, 0.79], [1, -0.1, "x", True, 0.8]),
        ("data.split.test", [0, 0.1, 0.89], [1, -0.1, "x", [0.1]]),
        ("data.split.seed", [0, 3], [-1, 0.5]),
        ("data.thin_classes", [None, 1, 0.01], [0, -1, 1.5]),
        ("trainer.precision", ["bf16-mixed", "32-true", "16", 32, "64-true"], ["fp32", "bf16-mix", 8]),
        ("trainer.gradient_clip_algorithm", ["norm", "value"], ["norms"]),
        ("scheduler.interval", ["step", "epoch"], ["hour", 3]),
    ],
    ids=str,
)
def test_ranges(job: DictConfig, key: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        OmegaConf.update(job, key, value)
        check_values(job)
    for value in bad:
        OmegaConf.update(job, key, value)
        with pytest.raises(ConfigError) as caught:
            check_values(job)
        assert key in caught.value.key.split(", ")
        assert caught.value.hint


def test_what_waits_for_the_data_is_left_alone(job: DictConfig) -> None:
    job.data.batch_size = "${spec.num_train}"
    check_values(job)


def test_what_is_somebody_elses_is_left_alone(job: DictConfig) -> None:
    job.data = {"_target_": "my_project.Data", "batch_size": "all"}
    check_values(job)


def test_a_word_nearly_right(job: DictConfig) -> None:
    job.trainer.precision = "bf16-mixd"
    with pytest.raises(ConfigError, match="did you mean 'bf16-mixed'"):
        check_values(job)
