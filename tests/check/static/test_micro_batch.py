"""Steps that are not assay's are not cut; sizes themselves are looked at in `test_trainer.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf

from assay.check.trainer import KEY, check_micro_batch
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


@pytest.mark.parametrize(
    ("key", "value", "says", "with_a_number"),
    [
        ("trainer._target_", "my_project.Trainer", "a trainer of your own", True),
        ("module._target_", "my_project.Module", "a LightningModule of your own", True),
        ("optimizer._target_", "torch.optim.LBFGS", "several times a step", False),
    ],
)
def test_who_takes_the_step(job: DictConfig, key: str, value: str, says: str, with_a_number: bool) -> None:
    OmegaConf.update(job, key, value)
    check_micro_batch(job)
    for asked, refused in (("auto", True), (8, with_a_number)):
        job.trainer.micro_batch = asked
        if not refused:
            check_micro_batch(job)
            continue
        with pytest.raises(ConfigError, match=says) as caught:
            check_micro_batch(job)
        assert caught.value.key == KEY
        assert caught.value.hint
