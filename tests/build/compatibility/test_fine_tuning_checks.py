from __future__ import annotations

from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from torch import nn

from assay.build.model import check_fine_tuning, notes_on_model, warnings_of
from assay.errors import ConfigError
from assay.finetune.freeze import Freeze
from assay.finetune.gradual import Gradual


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model.head_names = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    return model


def job(kind: str = "freeze.Freeze", **changes: Any) -> DictConfig:
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
    check_fine_tuning(job(trainer={"devices": 1}), Gradual())
    with pytest.raises(ConfigError, match="only exchange gradients") as error:
        check_fine_tuning(job(trainer={"devices": 2, "strategy": "ddp", "accelerator": "cpu"}), Gradual())
    assert error.value.key == "finetune"
    with pytest.raises(ConfigError, match="keep their statistics") as error:
        check_fine_tuning(job(trainer={"devices": 1, "sync_batchnorm": True}), Freeze(["."]))
    assert error.value.key == "trainer.sync_batchnorm"


def test_what_is_probably_a_mistake() -> None:
    model, freeze = network(), Freeze(["."])
    freeze.prepare(model)
    assert warnings_of(job(), freeze, model) == []
    assert warnings_of(job(), None, model) == []
    random = job(model={"_target_": "assay.model.mlp.MLP"})
    assert "finetune=head keeps weights that were never trained" in warnings_of(random, freeze, model)[0]
    assert warnings_of(job(model={"_target_": "mine.Net"}), freeze, model) == []
    assert warnings_of(job(model={"_target_": "assay.load", "run": "a"}), freeze, model) == []
    assert (
        "layer_decay changes nothing" in warnings_of(job(param_groups={"layer_decay": 0.5}), freeze, model)[0]
    )
    gradual, layered = Gradual(every_n_epochs=3), network()
    gradual.prepare(layered)
    said = warnings_of(job("gradual.Gradual"), gradual, layered)
    assert said == [
        "finetune=gradual unfreezes the last layers in epoch 6, counted from 0, but trainer.max_epochs=5: "
        "they stay as they are; finetune.every_n_epochs or finetune.schedule say when"
    ]


def test_what_is_said() -> None:
    model, freeze = network(), Freeze(["."])
    freeze.prepare(model)
    assert notes_on_model(job(), freeze, model) == ["finetune=head: 8 of 35 parameters are trained (22.9 %)"]
    model, gradual = network(), Gradual()
    gradual.prepare(model)
    gradual.begin_epoch(model, 1)
    before = [p.requires_grad for p in model.parameters()]
    model.new_layers = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    assert notes_on_model(job("gradual.Gradual"), gradual, model) == [
        "model.weights=a.pth: not for 2, which differ in shape and start from random values",
        "finetune=gradual: at first 8 of 35 parameters are trained (22.9 %); from epoch 2 on 35 of 35 "
        "parameters are trained (100 %)",
    ]
    assert [p.requires_grad for p in model.parameters()] == before, "it only looks"
    published = job(
        model={"_target_": "assay.model.torchvision.Torchvision", "name": "vgg11", "weights": "DEFAULT"}
    )
    assert (
        "training will download vgg11-8a719046.pth (507 MB) from https://"
        in notes_on_model(published, None, model)[0]
    )
