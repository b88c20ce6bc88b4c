from __future__ import annotations

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.check.callbacks import check_monitors
from assay.errors import ConfigError

NAMES = {"train": ["train/loss", "train/accuracy"], "val": ["val/loss", "val/accuracy"]}


def job(num_val: int = 10, limit: float = 1.0, scheduler: str | None = None, **monitors: Any) -> DictConfig:
    callbacks = {name: {"_target_": "x.Y", "monitor": monitor} for name, monitor in monitors.items()}
    trainer = {"limit_val_batches": limit}
    return OmegaConf.create(
        {
            "spec": {"num_val": num_val},
            "trainer": trainer,
            "callbacks": callbacks,
            "scheduler": {"monitor": scheduler},
        }
    )


@pytest.mark.parametrize(
    "config",
    [
        job(),
        job(checkpoint="val/loss", stopping="train/accuracy", scheduler="val/accuracy"),
        job(checkpoint=None, ema="epoch", other="lr-AdamW"),
        job(num_val=0, checkpoint="train/loss"),
    ],
)
def test_there(config: DictConfig) -> None:
    check_monitors(config, NAMES)


@pytest.mark.parametrize(
    ("config", "key", "message", "hint"),
    [
        (job(a="val/acc"), "callbacks.a.monitor", "did you mean 'val/accuracy'?", "train/accuracy"),
        (job(a="test/loss"), "callbacks.a.monitor", "no metric 'test/loss'", "val/loss"),
        (job(scheduler="loss"), "scheduler.monitor", "no metric 'loss'", "val/loss"),
        (job(num_val=0, a="val/loss"), "callbacks.a.monitor", "no validation subset", "data.split.val=0.1"),
        (job(limit=0, a="val/loss"), "callbacks.a.monitor", "limit_val_batches=0", "train/loss"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_not_there(config: DictConfig, key: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_monitors(config, NAMES)
    assert caught.value.key == key
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_job_without_callbacks() -> None:
    config = OmegaConf.create({"spec": {"num_val": 0}, "trainer": {}, "callbacks": None})
    check_monitors(config, NAMES)
