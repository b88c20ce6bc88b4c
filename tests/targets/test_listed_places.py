"""The table of what a config may name, against everything that is shipped and all that the libraries hold."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from typing import Any

import pytest
from omegaconf import OmegaConf
from torchvision.models import list_models  # type: ignore[import-untyped]  # torchvision ships no types

from assay.config.tree import walk
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.targets.allowed_targets import FUNCTIONS, REFUSED, slot_of
from assay.targets.resolve import resolve
from assay.targets.trust import within


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


def test_slots() -> None:
    assert slot_of("metrics.train")[0] == "metrics"
    assert slot_of("metrics.train.metrics.accuracy")[0] == ""
    assert not within("torch.nnx.Linear", ["torch.nn"])
