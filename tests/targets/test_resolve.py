"""Names that are refused before anything is imported."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torchmetrics
from omegaconf import DictConfig, OmegaConf
from torchvision.models import list_models  # type: ignore[import-untyped]  # torchvision ships no types

from assay.compose.compose import compose, job_config
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.targets.allowed_targets import FUNCTIONS, check_targets
from assay.targets.resolve import resolve, resolve_node, resolve_targets

if TYPE_CHECKING:
    from pathlib import Path


def job(tree: dict[str, Any], *trusted: str) -> DictConfig:
    return OmegaConf.create({**tree, "trusted_packages": list(trusted)})


def refused(tree: dict[str, Any], *trusted: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_targets(job(tree, *trusted))
    return caught.value


def nested(key: str, target: Any) -> Any:
    tree = {"_target_": target}
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return tree


@pytest.mark.parametrize(
    "target",
    [
        *("os.system", "posix.system", "builtins.eval", "pickle.loads", "importlib.import_module"),
        *("torch.load", "torch.hub.load", "torch.os.system", "torch.nn", "torch", "numpy.load"),
        *("joblib.load", "pandas.read_pickle", "hydra.utils.get_method"),
        *("lightning.pytorch.cli.LightningCLI", "lightning.fabric.utilities.cloud_io._load"),
        *("assay.run.train.train", "assay.run.predictor.load", "assay.cli.app.main"),
        *("assay.files.atomic.write_text", "torch.nn.modules._functions.x"),
        *("torch.nn.Linear.__init__", "torch.nn..Linear", ".torch.nn.Linear", "torch.nn.Linear()"),
        *("torch.nn.Lıneаr", "torch/nn/Linear", "Net", "my_project.Net"),
    ],
)
def test_refused_by_name(target: str) -> None:
    for slot in ("model", "model.deep.inside"):
        error = refused(nested(slot, target))
        assert error.key == f"{slot}._target_"
        assert error.hint


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"a": [1, [{"b": {"_target_": "os.system"}}]]}, "a[1][0].b._target_"),
        (
            {"model": {"_target_": "torch.nn.Linear", "_args_": [{"_target_": "os.system"}]}},
            "model._args_[0]._target_",
        ),
        (
            {"model": {"_target_": "torch.nn.Linear", "_recursive_": False, "x": {"_target_": "os.system"}}},
            "model.x._target_",
        ),
        ({"model": {"_target_": 3}}, "model._target_"),
        ({"model": {"_target_": "${oc.env:HOME}"}}, "model._target_"),
        ({"model": {"_target_": "${spec.name}"}, "spec": {"name": "torch.nn.ReLU"}}, "model._target_"),
        ({"model": {"_target_": "${a}"}, "a": "os.system"}, "model._target_"),
        ({"model": "${oc.create:{_target_: os.system}}"}, "model._target_"),
        ({"a": "${b}", "b": "${oc.create:{x: [{_target_: os.system}]}}"}, "a.x[0]._target_"),
        ({"augment": {"_target_": "assay.load", "trusted_packages": ["x"]}}, "augment.trusted_packages"),
    ],
    ids=str,
)
def test_the_whole_tree_is_looked_at(tree: dict[str, Any], key: str) -> None:
    assert refused(tree).key == key


@pytest.mark.parametrize(
    ("key", "target", "says"),
    [
        ("optimizer", "torch.optm.AdamW", "did you mean 'torch.optim.AdamW'?"),
        ("model", "torchvison.models.resnet18", "did you mean 'torchvision.models.resnet18'?"),
        ("loss", "assay.losses.ldam.LDAM", "did you mean 'assay.loss.ldam.LDAM'?"),
        ("optimizer", "torch.load", "optimizer must be a torch.optim.Optimizer"),
        ("model", "unknown.Net", "'unknown' is neither a known package nor one that you trust"),
    ],
)
def test_what_was_meant(key: str, target: str, says: str) -> None:
    assert says in refused(nested(key, target)).message


def test_what_to_type_for_a_custom_package() -> None:
    tree = {"model": {"_target_": "my_project.nets.Net"}}
    error = refused(tree)
    assert "trusted_packages=[my_project]" in error.hint
    assert "conf/project.yaml" in error.hint
    check_targets(job(tree, "my_project"))
    check_targets(job(tree, "my_project.nets"))
    refused(tree, "my_project.net")
    refused(tree, "my")


def test_names_are_judged_without_an_import_and_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = job_config(compose())
    resolve_targets(config)
    imported: list[object] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    check_targets(config)
    resolve_targets(config)
    assert not imported, "a sweep does not look for the same target again"


@pytest.mark.parametrize(
    ("key", "target", "says"),
    [
        ("model", "torch.optim.AdamW", "model must be a torch.nn.Module"),
        ("optimizer", "torch.nn.Linear", "optimizer must be a torch.optim.Optimizer"),
        ("callbacks.x", "torch.nn.Linear", "callbacks must be a Lightning callback"),
        ("metrics.train", "torch.nn.Linear", "metrics must be a torchmetrics metric"),
        ("module", "torch.nn.Linear", "module must be a LightningModule"),
        ("model", "torch.nn.init.normal_", "it is not a class"),
        ("model", "torch.nn.Embedding.from_pretrained", "what belongs to a class is not one"),
        ("module", "lightning.LightningModule.load_from_checkpoint", "not allowed"),
        ("x", "torch.nn.modules.module.OrderedDict", "it is collections.OrderedDict"),
        ("x", "torchvision.datasets.utils.os.system", "is the module os"),
        ("x", "torch.utils.data.datapipes.utils.decoder.basichandlers", "it is not a class"),
        ("x", "torch.utils.data.datapipes.iter.FileOpener", "not allowed"),
        ("loss", "assay.load", "loss must be a torch.nn.Module"),
        ("x", "assay.model.pretrained_weights.load_pretrained_weights", "it is not a class"),
        ("x", "torchvision.datasets.LSUN", "unpickles it"),
        ("x", "torchmetrics.multimodal.clip_score.CLIPScore", "model repository"),
        ("model", "torch.nn.Lineer", "torch.nn has no 'Lineer'"),
    ],
)
def test_refused_as_an_object(key: str, target: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(key, target)
    assert caught.value.key == f"{key}._target_"
    assert says in caught.value.message


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


def test_of_a_trusted_package_what_it_defines_is_taken_and_what_it_only_passes_on_is_judged(own: str) -> None:
    for path in ("Net", "Net.small", "build", "inner.Net", "ReLU", "resnet18", "Step"):
        assert callable(resolve("model", f"{own}.{path}", [own]))
    assert callable(resolve("module", f"{own}.Gan", [own]))
    with pytest.raises(ConfigError, match="is a LightningModule") as caught:
        resolve("model", f"{own}.Gan", [own])
    assert "module=NAME" in str(caught.value.hint)
    for path in ("os.system", "run", "shell", "functools.partial", "torch.load", "Path", "inner", "nowhere"):
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
        "${spec.class_names}",
        "\\${oc.create:{_target_: os.system}}",
    ],
)
def test_what_the_data_brings_is_judged_right_before_the_call(late: str) -> None:
    config = job({"model": {"_target_": "torch.nn.Sequential", "_args_": [late]}})
    config.spec = {"class_names": ["${oc.create:{_target_: os.system, _args_: [x]}}"]}
    with pytest.raises(ConfigError) as caught:
        resolve_node(config, "model", config.model)
    assert caught.value.key.startswith("model._args_[0]")


def test_another_run_is_judged_with_the_trust_of_this_job() -> None:
    config = job({"augment": {"_target_": "assay.load", "run": "x"}}, "my_project")
    assert resolve_node(config, "augment", config.augment)["trusted_packages"] == ["my_project"]
    assert "trusted_packages" not in config.augment


def shipped() -> list[tuple[str, str]]:
    """Every target of every shipped option, with the key that it composes to."""
    found = []
    for path in sorted(CONF_DIR.glob("*/**/*.yaml")):
        text = path.read_text(encoding="utf-8")
        header = re.match(r"# @package (\S+)", text)
        group = path.relative_to(CONF_DIR).parts[0]
        if group == "hydra":  # no part of a job; `assay.compose.hydra_node` judges these
            continue
        prefix = group if header is None else "" if header[1] == "_global_" else header[1]
        for entry in walk(OmegaConf.create(text), prefix):
            target = entry.node._value() if entry.name == "_target_" else None
            if isinstance(target, str) and target != "???":
                found.append((entry.key.removesuffix("._target_"), target))
    return sorted(set(found))


def test_what_is_shipped_or_listed_is_allowed() -> None:
    for key, target in shipped():
        assert callable(resolve(key, target))
    for name, slots in FUNCTIONS.items():
        for slot in ("inside.of.something", *slots):
            assert callable(resolve(slot, name))
    for name in list_models():
        found: Any = importlib.import_module("torchvision.models").get_model_builder(name)
        package = found.__module__.rpartition(".")[0]  # the module may have the function's own name
        assert resolve("model.network", f"{package}.{found.__name__}") is found


_LOADS = re.compile(
    r"pickle\.load|torch\.load\((?!.*weights_only=True)|from_pretrained\(|trust_remote_code|load_state_dict_from_url|"
    r"import_module\(|\bexec\(|(?<!\.)\beval\(|allow_pickle=True|hub\.load|yaml\.(unsafe_)?load\(|__import__\("
)
_LOOKED_AT = {
    "torchvision.datasets.cifar": "each file's MD5 is checked before it is unpickled",
    "torch.nn.modules.module": "in a docstring",
    "torch.nn.modules.sparse": "from_pretrained() takes a tensor",
    "lightning.pytorch.strategies.fsdp": "with the weights_only that the caller gives",
    "lightning.pytorch.strategies.xla": "what its own ranks sent",
}


def classes() -> list[type]:
    """Every public class that a config may name, of the modules that are there."""
    modules = ["torch.nn", "torch.optim"]
    modules += [f"torchvision.{name}" for name in ("datasets", "transforms.v2", "ops")]
    modules += [
        info.name
        for info in pkgutil.iter_modules(torchmetrics.__path__, "torchmetrics.")
        if info.ispkg and not info.name.endswith(("functional", "utilities"))
    ]
    parts = ("callbacks", "loggers", "strategies", "profilers", "accelerators", "plugins")
    modules += [f"lightning.pytorch.{part}" for part in parts]
    found = [one for name in modules for one in vars(importlib.import_module(name)).values()]
    return sorted({*filter(inspect.isclass, found)}, key=lambda one: f"{one.__module__}.{one.__name__}")


def test_no_allowed_class_loads_code() -> None:
    """By their source: what reads a pickle, a repository or a module by name is refused, or looked at."""
    suspicious = []
    for one in classes():
        try:
            allowed = resolve("inside.of.something", f"{one.__module__}.{one.__qualname__}") is one
            source = inspect.getsource(one)
        except (ConfigError, OSError, TypeError):
            continue
        code = "\n".join(line for line in source.splitlines() if ">>>" not in line)
        if allowed and _LOADS.search(code) and one.__module__ not in _LOOKED_AT:
            suspicious.append(f"{one.__module__}.{one.__name__}: {_LOADS.findall(code)}")
    assert not suspicious
