"""Models of a job: adapted, given back plain, with weights of others; what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from assay.build.model import (
    build_model,
    build_trained,
    check_fine_tuning,
    has_weights,
    notes_on_model,
    pretrained_inputs,
    query_model_class,
    warnings_of,
)
from assay.compose.recipe import settle_recipe
from assay.errors import ConfigError
from assay.finetune.freeze import Freeze
from assay.finetune.gradual import Gradual

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
    with pytest.raises(ConfigError, match="a rank below the size of layers") as error:
        build_model(job(rank=40))
    assert str(error.value.message).startswith("finetune.rank: expected a rank")


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
    assert query_model_class(job(), "trained_on") is None
    known = query_model_class(job("DEFAULT"), "trained_on")
    assert known["source"] == "torchvision's ResNet18_Weights.IMAGENET1K_V1"
    with pytest.raises(ConfigError, match=r"model\.weights=MINE: resnet18 has no such weights"):
        query_model_class(job("MINE"), "to_download")


# -- what its inputs were trained with


def with_weights(weights: str | None, name: str = "vit_tiny_patch16_224") -> DictConfig:
    node = {"_target_": "assay.model.timm.Timm", "name": name, "weights": weights}
    return OmegaConf.create({"model": node})


def test_published_weights_and_files_are_as_the_library_says() -> None:
    assert pretrained_inputs(with_weights(None)) is None
    for weights in ("DEFAULT", "/somewhere/net.pth"):
        known = pretrained_inputs(with_weights(weights))
        assert known is not None
        assert known["mean"] == (0.5, 0.5, 0.5)


def test_those_of_a_run_are_as_the_run_says(tmp_path: Path) -> None:
    spec = {"mean": [0.1], "std": [0.2], "input_shape": [1, 8, 8]}
    OmegaConf.save(OmegaConf.create({"spec": spec}), tmp_path / "config.yaml")
    (tmp_path / "checkpoints").mkdir()
    for path in (tmp_path, tmp_path / "checkpoints" / "best.ckpt"):
        assert pretrained_inputs(with_weights(str(path))) == {
            "mean": (0.1,), "std": (0.2,), "size": (8, 8), "source": f"the run {tmp_path}",
        }  # fmt: skip


@pytest.mark.parametrize("spec", [None, {"mean": 3}, {"mean": ["x"], "std": [1], "input_shape": [1]}, [1]])
def test_a_run_that_says_nothing_of_use(tmp_path: Path, spec: object) -> None:
    OmegaConf.save(OmegaConf.create({"spec": spec}), tmp_path / "config.yaml")
    known = pretrained_inputs(with_weights(str(tmp_path)))
    assert known is not None
    assert known["source"].startswith("timm's")


# -- fine-tuning


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model.head_names = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    return model


def tuned(kind: str = "freeze.Freeze", **changes: Any) -> DictConfig:
    finetune = {"_target_": f"assay.finetune.{kind}", "trained": []}
    return OmegaConf.create(
        {
            "model": {"_target_": "assay.model.timm.Timm", "name": "resnet18", "weights": "a.pth"},
            "finetune": finetune,
            "param_groups": {"layer_decay": None},
            "trainer": {"max_epochs": 5, "devices": 1},
            **changes,
        }
    )


def test_what_cannot_be_done_together() -> None:
    check_fine_tuning(tuned(trainer={"devices": 1}), Gradual())
    with pytest.raises(ConfigError, match="only exchange gradients") as error:
        check_fine_tuning(tuned(trainer={"devices": 2, "strategy": "ddp", "accelerator": "cpu"}), Gradual())
    assert error.value.key == "finetune"
    with pytest.raises(ConfigError, match="keep their statistics") as error:
        check_fine_tuning(tuned(trainer={"devices": 1, "sync_batchnorm": True}), Freeze(["."]))
    assert error.value.key == "trainer.sync_batchnorm"


def test_what_is_probably_a_mistake() -> None:
    model, freeze = network(), Freeze(["."])
    freeze.prepare(model)
    assert warnings_of(tuned(), freeze, model) == []
    assert warnings_of(tuned(), None, model) == []
    random = tuned(model={"_target_": "assay.model.mlp.MLP"})
    assert "finetune=head keeps weights that were never trained" in warnings_of(random, freeze, model)[0]
    assert warnings_of(tuned(model={"_target_": "mine.Net"}), freeze, model) == []
    assert warnings_of(tuned(model={"_target_": "assay.load", "run": "a"}), freeze, model) == []
    assert (
        "layer_decay changes nothing"
        in warnings_of(tuned(param_groups={"layer_decay": 0.5}), freeze, model)[0]
    )
    gradual, layered = Gradual(every_n_epochs=3), network()
    gradual.prepare(layered)
    said = warnings_of(tuned("gradual.Gradual"), gradual, layered)
    assert said == [
        "finetune=gradual unfreezes the last layers in epoch 6, counted from 0, but trainer.max_epochs=5: "
        "they stay as they are; finetune.every_n_epochs says when"
    ]


def test_what_is_said() -> None:
    model, freeze = network(), Freeze(["."])
    freeze.prepare(model)
    assert notes_on_model(tuned(), freeze, model) == [
        "finetune=head: 8 of 35 parameters are trained (22.9 %)"
    ]
    model, gradual = network(), Gradual()
    gradual.prepare(model)
    gradual.begin_epoch(model, 1)
    before = [p.requires_grad for p in model.parameters()]
    model.new_layers = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    assert notes_on_model(tuned("gradual.Gradual"), gradual, model) == [
        "model.weights=a.pth: not for 2, which differ in shape and start from random values",
        "finetune=gradual: at first 8 of 35 parameters are trained (22.9 %); from epoch 2 on 35 of 35 "
        "parameters are trained (100 %)",
    ]
    assert [p.requires_grad for p in model.parameters()] == before, "it only looks"
    published = tuned(
        model={"_target_": "assay.model.torchvision.Torchvision", "name": "vgg11", "weights": "DEFAULT"}
    )
    assert (
        "training will download vgg11-8a719046.pth (507 MB) from https://"
        in notes_on_model(published, None, model)[0]
    )
