from __future__ import annotations

import warnings

import lightning as L
import pytest
from omegaconf import OmegaConf

from assay.check.report import Proof, Report, trainer_key

REPORT = Report([], "run")


def test_a_trainer_is_handed_on_with_what_it_had_to_say() -> None:
    config = OmegaConf.create({"trainer": {"max_epochs": 1}, "callbacks": {}, "run_dir": "x", "metrics": {}})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        warnings.warn("few workers", UserWarning, stacklevel=1)
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    proof = Proof(REPORT, trainer=(trainer, trainer_key(config), said))
    with pytest.warns(UserWarning, match="few workers"):
        assert proof.trainer_for(config) is trainer
    config.trainer.max_epochs = 2
    assert proof.trainer_for(config) is None, "made from another node"
    assert Proof(REPORT).trainer_for(config) is None
