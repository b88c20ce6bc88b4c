"""What may be typed for an evaluation; tests/run/test_evaluate.py holds what comes of it."""

from __future__ import annotations

import pytest
from omegaconf import DictConfig, OmegaConf

from assay.errors import ConfigError
from assay.run.evaluate import change_data


def config() -> DictConfig:
    return OmegaConf.create(
        {
            "trusted_packages": [],
            "trainer": {"accelerator": "gpu"},
            "data": {
                "_target_": "assay.data.data_module.DataModule",
                "source": {"_target_": "assay.data.bundled.Bundled", "name": "iris"},
                "eval_batch_size": 512,
                "num_workers": 0,
                "transform": {"eval": ["mine"]},
            },
        }
    )


def test_other_data_and_how_it_is_loaded() -> None:
    changed = config()
    assert not change_data(changed, [])
    assert not change_data(changed, ["data.eval_batch_size=7", "device=cpu"])
    assert (changed.data.eval_batch_size, changed.trainer.accelerator) == (7, "cpu")
    assert change_data(changed, ["data.source.name=wine"])
    assert changed.data.source.name == "wine"


def test_another_option_brings_its_source_alone() -> None:
    changed = config()
    assert change_data(changed, ["data=digits", "data.num_workers=1"])
    assert changed.data.source == {"_target_": "assay.data.digits.Digits"}
    assert changed.data.transform == {"eval": ["mine"]}
    assert (changed.data.eval_batch_size, changed.data.num_workers) == (512, 1)


@pytest.mark.parametrize(
    "override", ["seed=1", "data.seed=1", "data.batch_size=2", "~data", "data.transform.eval=[]"]
)
def test_the_rest_is_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        change_data(config(), [override])
