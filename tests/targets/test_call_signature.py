from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from assay.targets.call_signature import example


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("optimizer.lr", "for example optimizer.lr=0.001"),
        ("optimizer.nothing", ""),
        ("optimizer", ""),
        ("nowhere.lr", ""),
    ],
)
def test_example(key: str, told: str) -> None:
    config = OmegaConf.create({"optimizer": {"_target_": "torch.optim.AdamW", "lr": "x"}})
    assert example(config, key) == told
