"""The objects that targets name, and code of one's own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf
from tests.targets.jobs import job

from assay.errors import ConfigError
from assay.targets.resolve import ready, resolve, resolve_targets

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("key", "target", "says"),
    [
        ("model", "torch.optim.AdamW", "model holds a torch.nn.Module"),
        ("model", "lightning.Trainer", "model holds a torch.nn.Module"),
        ("optimizer", "torch.nn.Linear", "optimizer holds a torch.optim.Optimizer"),
        ("scheduler", "torch.optim.SGD", "scheduler holds a scheduler"),
        ("callbacks.x", "torch.nn.Linear", "callbacks holds a Lightning callback"),
        ("logger.x", "lightning.pytorch.callbacks.Timer", "logger holds a Lightning logger"),
        ("metrics.train", "torch.nn.Linear", "metrics holds a torchmetrics metric"),
        ("trainer", "torch.nn.Linear", "trainer holds Lightning's Trainer"),
        ("data", "torchvision.datasets.CIFAR10", "data holds a LightningDataModule"),
        ("module", "torch.nn.Linear", "module holds a LightningModule"),
        ("param_groups", "torch.nn.Linear", "param_groups holds parameter groups"),
        ("augment", "torch.optim.SGD", "augment holds a transform"),
        ("model", "torch.nn.init.normal_", "it is not a class"),
        ("model", "torch.nn.functional.relu", "it is not a class"),
        ("model", "torch.nn.utils.clip_grad_norm_", "it is not a class"),
        ("model", "torch.nn.modules", "it is not a class"),
        ("model", "torch.nn.Embedding.from_pretrained", "what belongs to a class is not one"),
        ("module", "lightning.LightningModule.load_from_checkpoint", "not allowed"),
        ("data", "lightning.LightningDataModule.from_datasets", "not allowed"),
        ("x", "torch.nn.Module.load_state_dict", "what belongs to a class is not one"),
        ("x", "torch.nn.modules.module.OrderedDict", "it is collections.OrderedDict"),
        ("x", "torch.nn.parallel.distributed.os.system", "is the module os"),
        ("x", "torchvision.datasets.utils.os.system", "is the module os"),
        ("x", "torchvision.datasets.cifar.pickle.loads", "is the module pickle"),
        ("x", "torch.utils.data.datapipes.utils.decoder.basichandlers", "it is not a class"),
        ("x", "torch.utils.data.datapipes.iter.FileOpener", "not allowed"),
        ("x", "torch.utils.data.DataLoader", "not allowed"),
        ("x", "lightning.pytorch.plugins.io.torch_plugin.x", "has no"),
        ("x", "lightning.pytorch.plugins.TorchCheckpointIO", "not allowed"),
        ("x", "lightning.pytorch.loggers.mlflow.tempfile.mkdtemp", "is the module tempfile"),
        ("loss", "assay.load", "loss holds a torch.nn.Module"),
        ("loss", "torch.tensor", "loss holds a torch.nn.Module"),
        ("x", "assay.model.pretrained_weights.load_pretrained_weights", "it is not a class"),
        ("x", "assay.data.arrays.np.load", "is the module numpy"),
        ("x", "torchvision.datasets.LSUN", "unpickles it"),
        ("x", "torchmetrics.multimodal.clip_score.CLIPScore", "model repository"),
        ("x", "torchmetrics.text.bert.BERTScore", "unpickles"),
        ("model", "torch.nn.Lineer", "torch.nn has no 'Lineer'"),
        ("model", "torch.nn.nowhere.X", "torch.nn has no 'nowhere'"),
    ],
)
def test_refused_as_an_object(key: str, target: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(key, target)
    assert caught.value.key == f"{key}._target_"
    assert says in caught.value.message


def test_a_name_spelled_wrongly_within_a_library() -> None:
    with pytest.raises(ConfigError, match=r"torch\.nn has no 'Lineer'\n.*did you mean 'Linear'") as caught:
        resolve("model", "torch.nn.Lineer")
    assert caught.value.hint == "did you mean 'Linear'?"


OWN = (
    "import os, functools, lightning, torch\nfrom os import system as run\nfrom torch.nn import ReLU\n"
    "from torchvision.models import resnet18\nfrom torch.optim import SGD as Step\nfrom pathlib import Path\n"
    "shell = functools.partial(os.system)\n"
    "def build(): ...\n"
    "class Net(torch.nn.Module):\n    @classmethod\n    def small(cls): return cls()\n"
    "class Gan(lightning.LightningModule): ...\n"
)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_{tmp_path.name.replace('-', '_').strip('_')}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(OWN, encoding="utf-8")
    (tmp_path / name / "inner.py").write_text("from . import Net\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


@pytest.mark.parametrize("path", ["Net", "Net.small", "build", "inner.Net", "ReLU", "resnet18", "Step"])
def test_of_ones_own(own: str, path: str) -> None:
    assert callable(resolve("model", f"{own}.{path}", [own]))


def test_a_lightning_module_is_no_model(own: str) -> None:
    assert callable(resolve("module", f"{own}.Gan", [own]))
    with pytest.raises(ConfigError, match="is a LightningModule") as caught:
        resolve("model", f"{own}.Gan", [own])
    assert "module=NAME" in str(caught.value.hint)


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "run",
        "shell",
        "functools.partial",
        "torch.load",
        "Path",
        "inner",
        "nowhere",
        "Gan.load_from_checkpoint",
    ],
)
def test_what_it_only_passes_on(own: str, path: str) -> None:
    with pytest.raises(ConfigError, match=own):
        resolve("model", f"{own}.{path}", [own])


def test_not_imported_without_trust_or_after_something_refused(own: str) -> None:
    with pytest.raises(ConfigError, match="trusted_packages"):
        resolve_targets(job({"model": {"_target_": f"{own}.Net"}}))
    mixed = {"a": {"_target_": f"{own}.Net"}, "b": {"_target_": "torchvision.datasets.utils.os.system"}}
    with pytest.raises(ConfigError, match="is the module os"):
        resolve_targets(job(mixed, own))
    with pytest.raises(ConfigError, match=r"posix\.system"):
        resolve_targets(job({**mixed, "b": {"_target_": "posix.system"}}, own))
    assert own not in sys.modules
    resolve_targets(job({"model": {"_target_": f"{own}.Net"}}, own))
    assert own in sys.modules


# -- right before the call ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "late",
    [
        "${oc.create:{_target_: os.system, _args_: [x]}}",
        "${oc.select:spec.nothing,${oc.create:{_target_: os.system}}}",
        "${spec.class_names}",
        "\\${oc.create:{_target_: os.system}}",
        "\\${oc.env:HOME}",
    ],
)
def test_what_the_data_brings_is_judged_right_before_the_call(late: str) -> None:
    config = job({"model": {"_target_": "torch.nn.Sequential", "_args_": [late]}})
    config.spec = {"class_names": ["${oc.create:{_target_: os.system, _args_: [x]}}"]}
    with pytest.raises(ConfigError) as caught:
        ready(config, "model", config.model)
    assert caught.value.key.startswith("model._args_[0]")


def test_another_run_is_judged_with_the_trust_of_this_job() -> None:
    config = job({"augment": {"_target_": "assay.load", "run": "x"}}, "my_project")
    assert ready(config, "augment", config.augment)["trusted_packages"] == ["my_project"]
    assert "trusted_packages" not in config.augment


def test_the_config_itself_is_left_as_it_is() -> None:
    config = job({"model": {"_target_": "torch.nn.Linear", "in_features": "${n}"}, "n": 3})
    copied = ready(config, "model", config.model)
    assert copied == {"_target_": "torch.nn.Linear", "in_features": 3}
    assert OmegaConf.is_interpolation(config.model, "in_features")
