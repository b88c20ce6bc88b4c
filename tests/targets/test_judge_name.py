from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import DictConfig, OmegaConf
from torchvision.models import list_models  # type: ignore[import-untyped]  # torchvision ships no types

from assay.compose.compose import compose, job_config
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.targets.allowlist import FUNCTIONS, REFUSED, slot_of
from assay.targets.judge_name import check_targets
from assay.targets.resolve import ready, resolve, resolve_targets
from assay.targets.trust import within

if TYPE_CHECKING:
    from pathlib import Path


def job(tree: dict[str, Any], *trusted: str) -> DictConfig:
    return OmegaConf.create({**tree, "trusted_packages": list(trusted)})


def refused(tree: dict[str, Any], *trusted: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_targets(job(tree, *trusted))
    return caught.value


# -- by name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        *(
            "os.system",
            "posix.system",
            "builtins.eval",
            "subprocess.run",
            "pickle.loads",
            "importlib.import_module",
        ),
        *(
            "torch.load",
            "torch.hub.load",
            "torch.jit.load",
            "torch.os.system",
            "torch.save",
            "torch.nn",
            "torch",
        ),
        *("numpy.load", "joblib.load", "pandas.read_pickle", "yaml.unsafe_load", "hydra.utils.get_method"),
        *(
            "lightning.pytorch.cli.LightningCLI",
            "lightning.fabric.utilities.cloud_io._load",
            "assay.run.train.train",
        ),
        *(
            "assay.run.load.load",
            "assay.cli.app.main",
            "assay.files.atomic.write_text",
            "torch.hub._load_local",
        ),
        *(
            "torch.nn.modules._functions.x",
            "torch.nn.Linear.__init__",
            "torch.nn..Linear",
            ".torch.nn.Linear",
        ),
        *(
            "torch.nn.Linear ",
            "torch.nn.Linear()",
            "torch.nn.Lıneаr",
            "torch/nn/Linear",
            "",
            "Net",
            "my_project.Net",
        ),
    ],
)
@pytest.mark.parametrize("slot", ["model", "model.deep.inside"])
def test_refused_by_name(target: str, slot: str) -> None:
    tree: dict[str, Any] = {"_target_": target}
    for part in reversed(slot.split(".")):
        tree = {part: tree}
    error = refused(tree)
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
        ({"model": {"_target_": "os.system", "_partial_": True}}, "model._target_"),
        ({"model": {"_target_": 3}}, "model._target_"),
        ({"model": {"_target_": ["os.system"]}}, "model._target_"),
        ({"model": {"_target_": "${oc.env:HOME}"}}, "model._target_"),
        ({"model": {"_target_": "${a}.system"}, "a": "os"}, "model._target_"),
        ({"model": {"_target_": "${spec.name}"}, "spec": {"name": "torch.nn.ReLU"}}, "model._target_"),
        ({"model": {"_target_": "${a}"}, "a": "os.system"}, "model._target_"),
        ({"model": {"_target_": "${nowhere}"}}, "model._target_"),
        ({"model": "${oc.create:{_target_: os.system}}"}, "model._target_"),
        ({"a": "${b}", "b": "${oc.create:{x: [{_target_: os.system}]}}"}, "a.x[0]._target_"),
        ({"augment": {"_target_": "assay.load", "trusted_packages": ["x"]}}, "augment.trusted_packages"),
    ],
    ids=str,
)
def test_the_whole_tree_is_looked_at(tree: dict[str, Any], key: str) -> None:
    assert refused(tree).key == key


@pytest.mark.parametrize(
    "tree",
    [
        {"model": {"_target_": "torch.nn.ReLU"}},
        {"model": {"_target_": "${name}"}, "name": "torch.nn.ReLU"},
        {"model": {"_target_": "${.name}", "name": "torch.nn.ReLU"}},
        {"model": {"_target_": None}},
        {"model": {"widths": "${spec.class_counts}"}},
        {"augment": {"_target_": "assay.load", "run": "x"}},
        {"x": {"_target_": "torch.tensor", "data": [1, 2]}},
    ],
    ids=str,
)
def test_fine_by_name(tree: dict[str, Any]) -> None:
    check_targets(job(tree))


@pytest.mark.parametrize(
    ("key", "target", "says"),
    [
        ("optimizer", "torch.optm.AdamW", "did you mean 'torch.optim.AdamW'?"),
        ("trainer", "lightnin.Trainer", "did you mean 'lightning.Trainer'?"),
        ("model", "tourch.nn.Linear", "did you mean 'torch.nn.Linear'?"),
        ("model", "torchvison.models.resnet18", "did you mean 'torchvision.models.resnet18'?"),
        (
            "callbacks.x",
            "lightning.callbacks.EarlyStopping",
            "did you mean 'lightning.pytorch.callbacks.EarlyStopping'?",
        ),
        ("loss", "assay.losses.ldam.LDAM", "did you mean 'assay.loss.ldam.LDAM'?"),
        ("metrics.train", "torchmetric.Accuracy", "did you mean 'torchmetrics.Accuracy'?"),
        ("optimizer", "torch.load", "optimizer holds a torch.optim.Optimizer"),
        ("model", "somebody.Net", "'somebody' is not a package that assay knows"),
    ],
)
def test_what_was_meant(key: str, target: str, says: str) -> None:
    tree: Any = {"_target_": target}
    for part in reversed(key.split(".")):
        tree = {part: tree}
    assert says in refused(tree).message


def test_what_to_type_for_a_package_of_ones_own() -> None:
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


# -- the objects -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("key", "target"), shipped())
def test_what_is_shipped_is_allowed(key: str, target: str) -> None:
    assert callable(resolve(key, target))


@pytest.mark.parametrize("name", list_models())
def test_builders_of_torchvision(name: str) -> None:
    found: Any = importlib.import_module("torchvision.models").get_model_builder(name)
    package = found.__module__.rpartition(".")[0]  # the module may have the function's own name
    assert resolve("model.network", f"{package}.{found.__name__}") is found


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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_listed_functions(name: str) -> None:
    for slot in ("inside.of.something", *FUNCTIONS[name]):
        assert callable(resolve(slot, name))


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
    found = set()
    for package in (
        "torch.nn",
        "torch.optim",
        "torchvision.datasets",
        "torchvision.transforms.v2",
        "torchvision.ops",
    ):
        found |= {one for one in vars(importlib.import_module(package)).values() if inspect.isclass(one)}
    import torchmetrics

    for info in pkgutil.iter_modules(torchmetrics.__path__, "torchmetrics."):
        if info.ispkg and not info.name.endswith(("functional", "utilities")):
            module = importlib.import_module(info.name)
            found |= {one for one in vars(module).values() if inspect.isclass(one)}
    for part in ("callbacks", "loggers", "strategies", "profilers", "accelerators", "plugins"):
        module = importlib.import_module(f"lightning.pytorch.{part}")
        found |= {one for one in vars(module).values() if inspect.isclass(one)}
    return sorted(found, key=lambda one: f"{one.__module__}.{one.__name__}")


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


def test_refused_modules_are_there() -> None:
    for name in REFUSED:
        assert importlib.util.find_spec(name) is not None


# -- packages of one's own -------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    "path", ["Net", "Net.small", "build", "Gan", "inner.Net", "ReLU", "resnet18", "Step"]
)
def test_of_ones_own(own: str, path: str) -> None:
    assert callable(resolve("model", f"{own}.{path}", [own]))


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


# -- right before the call -------------------------------------------------------------------------


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


def test_slots() -> None:
    assert slot_of("metrics.train")[0] == "metrics"
    assert slot_of("metrics.train.metrics.accuracy")[0] == ""
    assert not within("torch.nnx.Linear", ["torch.nn"])
