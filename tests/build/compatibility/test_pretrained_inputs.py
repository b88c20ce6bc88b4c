from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf

from assay.build.compatibility import pretrained_inputs

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig


def job(weights: str | None, name: str = "vit_tiny_patch16_224") -> DictConfig:
    node = {"_target_": "assay.model.timm.Timm", "name": name, "weights": weights}
    return OmegaConf.create({"model": node})


def test_published_weights_and_files_are_as_the_library_says() -> None:
    assert pretrained_inputs(job(None)) is None
    for weights in ("DEFAULT", "/somewhere/net.pth"):
        known = pretrained_inputs(job(weights))
        assert known is not None
        assert known["mean"] == (0.5, 0.5, 0.5)


def test_those_of_a_run_are_as_the_run_says(tmp_path: Path) -> None:
    spec = {"mean": [0.1], "std": [0.2], "input_shape": [1, 8, 8]}
    OmegaConf.save(OmegaConf.create({"spec": spec}), tmp_path / "config.yaml")
    (tmp_path / "checkpoints").mkdir()
    for path in (tmp_path, tmp_path / "checkpoints" / "best.ckpt"):
        assert pretrained_inputs(job(str(path))) == {
            "mean": (0.1,), "std": (0.2,), "size": (8, 8), "source": f"the run {tmp_path}",
        }  # fmt: skip


@pytest.mark.parametrize("spec", [None, {"mean": 3}, {"mean": ["x"], "std": [1], "input_shape": [1]}, [1]])
def test_a_run_that_says_nothing_of_use(tmp_path: Path, spec: object) -> None:
    OmegaConf.save(OmegaConf.create({"spec": spec}), tmp_path / "config.yaml")
    known = pretrained_inputs(job(str(tmp_path)))
    assert known is not None
    assert known["source"].startswith("timm's")
