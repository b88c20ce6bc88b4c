"""Models of a job: adapted, given back plain, with weights of others; what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from torch import nn

from assay.assemble import assembly as opening
from assay.assemble.assembly import (
    Assembly,
    add_spec,
    assemble,
    build_module,
    notes_on_unregistered,
    open_data,
    settle,
)
from assay.assemble.model import (
    build_model,
    build_trained,
    check_fit,
    has_weights,
    notes_on_model,
    pretrained_inputs,
    query_model_class,
)
from assay.assemble.trainer import build_trainer
from assay.compose.compose import compose, job_config
from assay.compose.recipe import settle_recipe
from assay.errors import ConfigError, DataError
from assay.finetune.freeze import Freeze
from assay.finetune.gradual import Gradual
from assay.module import Module
from assay.task.task_of import TASKS
from assay_explain.listing import list_options
from assay_prove.fit import check_fine_tuning, warnings_of


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
    assert isinstance(tuning, DictConfig)
    tuning.pop("defaults", None)
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


def test_what_is_said() -> None:
    model, freeze = network(), Freeze(["."])
    freeze.prepare(model)
    assert notes_on_model(tuned(), freeze, model) == [
        "finetune=head: 8 of 35 parameters are trained at first"
    ]
    model, gradual = network(), Gradual()
    gradual.prepare(model)
    gradual.begin_epoch(model, 1)
    before = [p.requires_grad for p in model.parameters()]
    model.new_layers = ("2",)  # type: ignore[assignment]  # an attribute of one's own
    assert notes_on_model(tuned("gradual.Gradual"), gradual, model) == [
        "model.weights=a.pth: not for 2, which differ in shape and start anew",
        "finetune=gradual: 8 of 35 parameters are trained at first",
    ]
    assert [p.requires_grad for p in model.parameters()] == before, "it only looks"
    published = tuned(
        model={"_target_": "assay.model.torchvision.Torchvision", "name": "vgg11", "weights": "DEFAULT"}
    )
    assert (
        "training will download vgg11-8a719046.pth (507 MB) from https://"
        in notes_on_model(published, None, model)[0]
    )


def with_data(*overrides: str) -> DictConfig:
    config = job_config(compose([*overrides, "device=cpu", "callbacks=[]", "hydra.run.dir=run"]))
    opened: Any = open_data(config)
    return settle(config, opened.spec)


def built(config: DictConfig) -> Module:
    module = build_module(config, build_trainer(config))
    assert isinstance(module, Module)
    return module


@pytest.mark.parametrize(
    ("overrides", "outputs"),
    [
        (["data=breast_cancer", "loss=bce_with_logits"], 1),
        (["data=breast_cancer", "loss=cross_entropy"], 2),
        (["data=iris"], 3),
        (["data=diabetes"], 1),
    ],
)
def test_data_and_loss_decide_how_many_outputs_a_model_has(overrides: list[str], outputs: int) -> None:
    config = with_data(*overrides)
    module = built(config)
    assert config.spec.num_outputs == outputs
    assert module(torch.zeros(2, *config.spec.input_shape)).shape == (2, outputs)


def assembled(*overrides: str, **options: Any) -> Assembly:
    return assemble(job_config(compose(["data=iris", "model=mlp", "device=cpu", *overrides])), **options)


def weights(assembly: Assembly) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in assembly.module.parameters()])


def test_weights_are_those_of_the_seed() -> None:
    config = job_config(compose(["data=iris", "model=mlp", "device=cpu"]))
    opened = open_data(config)
    torch.rand(1000)  # a datamodule of somebody's own may draw as much as it likes
    first = assemble(config, datamodule=opened)
    assert first.datamodule is opened
    assert torch.equal(weights(first), weights(assembled()))
    assert not torch.equal(weights(first), weights(assembled("seed=1")))


# -- the data


class Broken(L.LightningDataModule):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def setup(self, stage: str) -> None:
        del stage
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (KeyError("label"), DataError, "data: cannot be read: KeyError: 'label'"),
        (DataError("no file"), DataError, "no file"),
        (MemoryError(), MemoryError, ""),
    ],
)
def test_an_error_of_reading_is_one_of_the_data(
    monkeypatch: pytest.MonkeyPatch, error: Exception, kind: type[Exception], says: str
) -> None:
    monkeypatch.setattr(opening, "build", lambda *_: Broken(error))
    with pytest.raises(kind) as caught:
        open_data(OmegaConf.create({"seed": 0, "data": {"_target_": "my_project.Data"}}))
    assert str(caught.value).startswith(says)


def test_data_that_tells_nothing_is_for_a_module_of_ones_own() -> None:
    config = job_config(compose(["data=iris", "device=cpu"]))
    with pytest.raises(ConfigError, match="data: a datamodule needs a `spec` attribute"):
        add_spec(config, None)
    config.module._target_ = "my.Gan"
    add_spec(config, None)
    assert "spec" not in config


SPECS: dict[str, dict[str, Any]] = {
    "multiclass": {"task": "multiclass", "num_classes": 10, "num_targets": 0},
    "binary": {"task": "binary", "num_classes": 2, "num_targets": 0},
    "multilabel": {"task": "multilabel", "num_classes": 5, "num_targets": 0},
    "regression": {"task": "regression", "num_classes": 0, "num_targets": 3},
    "language_modelling": {"task": "language_modelling", "vocab_size": 7},
    "multitask": {"task": "multitask", "num_classes": 0, "num_targets": 2},
    "segmentation": {"task": "segmentation", "num_classes": 3, "input_shape": [1, 2, 2]},
    "reconstruction": {"task": "reconstruction", "num_features": 4, "input_shape": [1, 2, 2]},
    "self_supervised": {"task": "self_supervised", "num_classes": 2, "input_shape": [1, 2, 2]},
}
OF_CLASSES = {"cross_entropy", "dice", "dice_cross_entropy", "dice_nnunet", "focal", "ldam", "kl_div"}
GOES = {
    "multiclass": {*OF_CLASSES, "triplet"},
    "multilabel": {"bce_with_logits"},
    "regression": {"mse", "l1", "huber"},
    "language_modelling": OF_CLASSES,
    "multitask": {"multitask"},
    "segmentation": OF_CLASSES,
    "reconstruction": {"mse", "l1", "huber"},
    "self_supervised": {"nt_xent"},
}
GOES["binary"] = GOES["multiclass"] | {"bce_with_logits"}
"""By what a loss says of itself; that of masks alone is refused for classes when it is tried."""
LOSSES = {
    option.name: str(OmegaConf.select(OmegaConf.load(option.path), "_target_"))
    for option in list_options("loss")
}


def spec_of(task: str) -> DictConfig:
    return OmegaConf.create({"spec": SPECS[task], "model": {}})


def test_every_loss_is_in_the_table() -> None:
    assert set().union(*GOES.values()) == set(LOSSES)
    assert set(GOES) == set(SPECS) == set(TASKS)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("task", SPECS)
def test_every_loss_with_every_task(task: str, loss: str) -> None:
    if loss in GOES[task]:
        check_fit(spec_of(task), get_class(LOSSES[loss]))
        return
    assert TASKS[task].suits.partition("loss=")[2].split()[0] in GOES[task], "what is recommended goes"
    with pytest.raises(ConfigError) as caught:
        check_fit(spec_of(task), get_class(LOSSES[loss]))
    assert caught.value.key == "loss"
    assert caught.value.hint == TASKS[task].suits


@pytest.mark.parametrize(("precision", "most"), [("bf16-true", 256), ("16-true", 2048)])
def test_codes_that_a_type_cannot_hold_are_refused(precision: str, most: int) -> None:
    dtype = {"bf16-true": torch.bfloat16, "16-true": torch.float16}[precision]
    assert len(set(torch.arange(most + 1).to(dtype).tolist())) == most + 1
    assert len(set(torch.arange(most + 2).to(dtype).tolist())) < most + 2

    def config(size: int) -> DictConfig:
        spec = {"task": "regression", "num_targets": 1, "cardinalities": [3, size]}
        return OmegaConf.create({"spec": spec, "trainer": {"precision": precision}})

    check_fit(config(most), nn.L1Loss())
    with pytest.raises(ConfigError, match=rf"hold codes up to {most:,}, .* has {most + 1:,} categories"):
        check_fit(config(most + 1), nn.L1Loss())


class Forgetful(nn.Module):
    """Layers in a list are not in `parameters()`, a plain tensor is not in `state_dict()`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(2, 2)]
        self.mean = torch.zeros(2)


class Registered(nn.Module):
    """All that training changes is registered; a list may name it once more."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.rest = nn.ModuleList([nn.LSTM(2, 2)])
        self.order = [self.first, *self.rest]
        self.register_buffer("mean", torch.zeros(2))
        self.shape = (2, "same")


def test_what_is_neither_trained_nor_saved_is_named() -> None:
    model = nn.Sequential(Registered(), Forgetful())
    assert not any(name.startswith("1.") for name in model.state_dict())
    layers, tensors = notes_on_unregistered(model)
    assert "Forgetful.layers is not trained" in layers
    assert "Forgetful.mean is in no checkpoint" in tensors
    assert notes_on_unregistered(Registered()) == []
