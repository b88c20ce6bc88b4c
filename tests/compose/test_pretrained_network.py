from __future__ import annotations

import json
from typing import TYPE_CHECKING

from omegaconf import OmegaConf

from assay.compose.task_choice import settle_network

if TYPE_CHECKING:
    from pathlib import Path


def test_a_job_holds_what_the_folder_says(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "hidden_size": 8, "dtype": "x"}))
    model = {"_target_": "assay.model.hf_text.HFText", "config": "auto", "weights": str(tmp_path)}
    config = OmegaConf.create({"model": model})
    OmegaConf.set_struct(config, True)
    settle_network(config)
    assert config.model.config == {"model_type": "bert", "hidden_size": 8}
    nothing = OmegaConf.create({"model": {**model, "weights": str(tmp_path / "none")}})
    settle_network(nothing)
    assert nothing.model.config == "auto", "the model says why"
