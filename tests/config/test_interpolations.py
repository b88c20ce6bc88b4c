"""What a resolved config referred to can be put back, and nothing else."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from assay.config.interpolations import interpolations, restore

CONFIG = {"lr": 0.1, "run_dir": "a", "s": {"max_lr": "${lr}", "path": "${run_dir}/x", "l": [1, "${lr}"]}}


def test_there_and_back() -> None:
    config = OmegaConf.create(CONFIG)
    written = interpolations(config)
    assert written == {"s.max_lr": "${lr}", "s.path": "${run_dir}/x", "s.l[1]": "${lr}"}
    resolved: Any = OmegaConf.create(OmegaConf.to_container(config, resolve=True))
    restore(resolved, written)
    assert resolved == config
    resolved.lr = 0.5
    assert resolved.s.max_lr == resolved.s.l[1] == 0.5


def test_somebody_elses_record_brings_no_calls_and_no_targets() -> None:
    config = OmegaConf.create({"a": 1, "m": {"_target_": "torch.nn.Linear"}})
    before = OmegaConf.to_yaml(config)
    restore(config, {"a": "${oc.env:HOME}", "m._target_": "${a}", "new": "${a}"})
    assert OmegaConf.to_yaml(config) == before


def test_a_config_that_was_not_resolved_stays_as_it_is() -> None:
    """As the first process of several writes it, before the data has been read."""
    config = OmegaConf.create({"size": "${spec.size}", "l": [{"n": "${spec.n}"}], "lr": 0.1, "max": "${lr}"})
    before = config.copy()
    restore(config, interpolations(config))
    assert config == before
