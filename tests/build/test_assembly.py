"""From a config to data, module and trainer: what they decide together, and which losses suit which task."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from assay.build import assembly as opening
from assay.build.assembly import Assembly, add_spec, assemble, build_module, build_optimization, open_data
from assay.build.model import check_fit, num_outputs
from assay.build.trainer import build_trainer
from assay.compose.compose import compose, job_config
from assay.compose.listing import list_options
from assay.errors import ConfigError, DataError
from assay.module import Module
from assay.task.task_of import TASKS

if TYPE_CHECKING:
    from pathlib import Path

    from omegaconf import DictConfig


def job(*overrides: str) -> DictConfig:
    config = job_config(compose([*overrides, "device=cpu", "callbacks=[]", "hydra.run.dir=run"]))
    opened: Any = open_data(config)
    add_spec(config, opened.spec)
    return config


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
    config = job(*overrides)
    module = built(config)
    assert config.spec.num_outputs == outputs
    assert module(torch.zeros(2, *config.spec.input_shape)).shape == (2, outputs)


def test_what_lightning_reads_of_a_schedule_is_not_given_to_the_scheduler() -> None:
    config = job("data=iris", "scheduler=plateau", "scheduler.monitor=val/accuracy", "scheduler.factor=0.5")
    parts = build_optimization(config)
    assert parts["schedule"] == {key: config.scheduler[key] for key in ("interval", "frequency", "monitor")}
    assert isinstance(parts["scheduler"], partial)
    assert parts["scheduler"].func is torch.optim.lr_scheduler.ReduceLROnPlateau
    assert parts["scheduler"].keywords["factor"] == 0.5
    assert parts["scheduler"].keywords["mode"] == "max"
    assert not parts["scheduler"].keywords.keys() & parts["schedule"].keys()
    parts = build_optimization(job("data=iris", "scheduler=none"))
    assert (parts["scheduler"], parts["schedule"]) == (None, {})


def assembled(*overrides: str, **options: Any) -> Assembly:
    return assemble(job_config(compose(["data=iris", "model=mlp", "device=cpu", *overrides])), **options)


def weights(assembly: Assembly) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in assembly.module.parameters()])


def test_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assembly = assembled("callbacks=[default]", "logger=[csv,tensorboard]", "hydra.run.dir=run")
    assert list(tmp_path.iterdir()) == []
    assert assembly.plain["spec"]["num_classes"] == 3


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
        (KeyError("label"), DataError, "data: it cannot be read: KeyError: 'label'"),
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
    "reconstruction": {"task": "reconstruction", "num_classes": 2, "input_shape": [1, 2, 2]},
    "self_supervised": {"task": "self_supervised", "num_classes": 2, "input_shape": [1, 2, 2]},
}
GOES = {
    "multiclass": {"cross_entropy", "dice", "dice_cross_entropy", "focal", "ldam", "kl_div", "triplet"},
    "multilabel": {"bce_with_logits"},
    "regression": {"mse", "l1", "huber"},
    "language_modelling": {"cross_entropy", "dice", "dice_cross_entropy", "focal", "ldam", "kl_div"},
    "multitask": {"multitask"},
    "segmentation": {"cross_entropy", "focal", "dice", "dice_cross_entropy", "ldam", "kl_div"},
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


@pytest.mark.parametrize(
    ("task", "kind", "outputs"),
    [
        ("multiclass", "multiclass", 10),
        ("binary", "multiclass", 2),
        ("binary", "binary", 1),
        ("multilabel", "binary", 5),
        ("regression", None, 3),
    ],
)
def test_num_outputs(task: str, kind: str | None, outputs: int) -> None:
    loss = torch.nn.Module()
    loss.kind = kind  # type: ignore[assignment]  # what our losses have as a class attribute
    assert num_outputs(spec_of(task), loss) == outputs
