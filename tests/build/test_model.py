from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from assay.build.model import asked_of_model, build_model, build_trained, has_weights
from assay.compose.recipe import settle_recipe
from assay.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig


def load_model(option: str) -> DictConfig:
    model = OmegaConf.load(Path(__file__).parents[2] / "conf" / "model" / f"{option}.yaml")
    job = OmegaConf.create({"model": model})
    settle_recipe(job)
    found: DictConfig = job.model
    return found


def job(weights: str | None = None, finetune: str = "lora", **changes: object) -> DictConfig:
    conf = Path(__file__).parents[2] / "conf"
    spec = {"input_shape": [1, 8, 8], "num_outputs": 3, "num_features": 64}
    model = OmegaConf.merge(load_model("mlp"), {"hidden": [32, 32]})
    if weights is not None:
        model = OmegaConf.merge(load_model("torchvision"), {"name": "resnet18", "weights": weights})
    tuning = OmegaConf.load(conf / "finetune" / f"{finetune}.yaml")
    return OmegaConf.create({"spec": spec, "model": model, "finetune": OmegaConf.merge(tuning, changes)})


def test_the_model_is_adapted_and_given_back_plain() -> None:
    config = job()
    model, finetune = build_model(config)
    assert finetune is not None
    for name, parameter in model.named_parameters():
        if name.endswith("lora_B"):
            nn.init.normal_(parameter)
    plain = build_trained(config, model.state_dict())
    assert {name for name, _ in plain.named_parameters()} == {
        f"layers.{at}.{kind}" for at in (1, 3, 5) for kind in ("weight", "bias")
    }
    inputs = torch.randn(2, 1, 8, 8)
    assert torch.equal(plain(inputs), model(inputs))
    config.finetune = None
    assert build_model(config)[1] is None


def test_an_error_names_the_key() -> None:
    with pytest.raises(ConfigError, match="not below the size of layers") as error:
        build_model(job(rank=40))
    assert str(error.value.message).startswith("finetune.rank: 40 is")


def test_weights_are_not_looked_for_once_a_model_is_trained(tmp_path: Path) -> None:
    config = job(str(tmp_path / "gone.pth"), finetune="head")
    assert has_weights(config)
    with pytest.raises(ConfigError, match="neither a file nor a run"):
        build_model(config)
    config.model.weights = None
    model = build_model(config)[0]
    config.model.weights = str(tmp_path / "gone.pth")
    trained = build_trained(config, model.state_dict())
    assert all(parameter.requires_grad for parameter in trained.parameters())


def test_what_the_class_knows_of_its_weights() -> None:
    assert asked_of_model(job(), "trained_on") is None
    known = asked_of_model(job("DEFAULT"), "trained_on")
    assert known["source"] == "torchvision's ResNet18_Weights.IMAGENET1K_V1"
    with pytest.raises(ConfigError, match=r"model\.weights=MINE: resnet18 has no such weights"):
        asked_of_model(job("MINE"), "to_download")
