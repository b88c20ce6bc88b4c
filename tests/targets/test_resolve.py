"""Names that are refused before anything is imported."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import shlex
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torchmetrics
from lightning.pytorch import callbacks, loggers, profilers
from omegaconf import DictConfig, OmegaConf
from torchvision.models import list_models  # type: ignore[import-untyped]  # torchvision ships no types

from assay.compose.compose import compose, job_config
from assay.config.tree import walk
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.targets.allowed_targets import FUNCTIONS, check_targets
from assay.targets.resolve import resolve, resolve_node, resolve_targets
from assay.targets.trust import (
    Trust,
    check_external_values,
    may_reach_out,
    project_packages,
    trust,
    typed_keys,
)
from assay_sweep.session import plan_sweep
from assay_sweep.worker.run_job import collect_texts

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
        ("model", "torch.nn.Embedding.from_pretrained", "a member of a class is not a class"),
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
        if group == "hydra":  # no part of a job; `assay_sweep.hydra_node` judges these
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
    looked_at = set()
    for one in classes():
        try:
            allowed = resolve("inside.of.something", f"{one.__module__}.{one.__qualname__}") is one
            source = inspect.getsource(one)
        except (ConfigError, OSError, TypeError):
            continue
        code = "\n".join(line for line in source.splitlines() if ">>>" not in line)
        if allowed and _LOADS.search(code):
            looked_at.add(one.__module__)
            if one.__module__ not in _LOOKED_AT:
                suspicious.append(f"{one.__module__}.{one.__name__}: {_LOADS.findall(code)}")
    assert not suspicious
    assert looked_at == {*_LOOKED_AT}, "what loads is found"


def project(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / "conf" / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "conf"


def test_named_by_the_project_and_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = project(tmp_path, project="trusted_packages: [my_project]\n")
    assert project_packages(conf) == ("my_project",)
    typed = ["trusted_packages=[another.part,my_project]"]
    assert compose(typed, conf).trusted_packages == ["another.part", "my_project"]
    with pytest.raises(ConfigError, match="asks to trust my_project") as caught:
        compose([], conf)
    assert "trusted_packages=[my_project]" in caught.value.hint
    assert compose(["trusted_packages=[]"], conf).trusted_packages == []
    assert [job.trusted_packages for job in plan_sweep(["seed=1,2", *typed])] == [
        ["another.part", "my_project"]
    ] * 2
    monkeypatch.chdir(tmp_path)
    assert compose().trusted_packages == ["my_project"], "./conf is found by itself"
    assert compose([], conf).trusted_packages == ["my_project"]


@pytest.mark.parametrize(
    "typed",
    [
        *("my_project", "null,a", "[os.path]", "[torch]", "[assay]", "[hydra_plugins]", "[_io]", "[a..b]"),
        *("[1]", "[[a]]", "{a: b}", "['${oc.env:HOME}']", "${seed}", "[a],[b]", "['']"),
    ],
)
def test_no_such_names(typed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_sweep([f"trusted_packages={typed}"])
    assert caught.value.key == "trusted_packages"
    assert "trusted_packages=[" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "trusted_packages: [my_project]\nseed: 1\n",
        "trusted_packages: [subprocess]\n",
        "trusted_packages: ['${oc.env:HOME}']\n",
        "- my_project\n",
        "trusted_packages: !!python/name:os.system\n",
    ],
)
def test_no_such_project_file(tmp_path: Path, text: str) -> None:
    conf = project(tmp_path, project=text)
    with pytest.raises(ConfigError, match=r"project\.yaml"):
        compose([], conf)


@pytest.mark.parametrize(
    "text",
    [
        "trusted_packages: [evil]",
        "trusted_packages: ${oc.create:[evil]}",
        "trusted_packages: [evil]\nhydra: {overrides: {task: ['trusted_packages=[evil]']}}",
    ],
)
def test_an_experiment_cannot_trust(tmp_path: Path, text: str) -> None:
    conf = project(tmp_path, experiment__evil=f"# @package _global_\n{text}\n")
    for compose_all, typed in ((compose, ["experiment=evil"]), (plan_sweep, ["experiment=evil", "seed=1,2"])):
        with pytest.raises(ConfigError, match="must not choose what is trusted"):
            compose_all(typed, conf)
    mine = "trusted_packages=[mine]"  # what is typed takes the place of what was written
    assert compose(["experiment=evil", mine], conf).trusted_packages == ["mine"]


@pytest.mark.parametrize(
    "place", ["pkg://evil", "structured://evil", "${oc.env:HOME}", "pkg://my_project_evil"]
)
def test_configs_are_not_looked_for_in_a_package_that_is_not_trusted(place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([f"hydra.searchpath=['{place}']", "trusted_packages=[my_project]"])
    assert caught.value.key == "hydra.searchpath"


def test_configs_of_a_trusted_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trusted_configs/model").mkdir(parents=True)
    (tmp_path / "trusted_configs/__init__.py").touch()
    (tmp_path / "trusted_configs/model/mine.yaml").write_text(
        "# Mine.\n_target_: torch.nn.Identity\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    typed = ["hydra.searchpath=[pkg://trusted_configs]", "model=mine"]
    assert compose([*typed, "trusted_packages=[trusted_configs]"]).model._target_ == "torch.nn.Identity"
    plain = ["hydra.searchpath=[file://trusted_configs]", "model=mine"]
    assert compose(plain).model._target_ == "torch.nn.Identity"


NOBODY = Trust()
OUTSIDE = {
    "logger.csv.path": "conf/model/mlp.yaml",
    "logger.tensorboard.version": "../../../up",
    "logger.mlflow.tracking_uri": "http://evil/x",
    "logger.wandb.api_key": "0123456789",
    "callbacks.checkpoint.dirpath": "${run_dir}/../other",
    "callbacks.checkpoint.filename": "../../best",
    "callbacks.x.deep[0].file": "/etc/x",
    "trainer.strategy.init_method": "tcp://10.0.0.1:1",
    "model.weights": "https://evil/w.safetensors",
    "model.network.weights": "DEFAULT",
    "data.source.path": "s3://evil/rows.csv",
}
INSIDE = {
    "logger.csv.path": "${run_dir}/metrics.csv",
    "logger.mlflow.tracking_uri": "sqlite:///outputs/mlflow.db",
    "logger.wandb.notes": "see https://example.org",
    "callbacks.checkpoint.dirpath": "${run_dir}/checkpoints",
    "callbacks.checkpoint.filename": "{epoch}-best",
    "callbacks.x.steps": "${spec.total_steps}",
    "data.source.root": "/datasets/mine",
    "tags": "https://example.org/ticket",
}


def job_with(key: str, value: Any) -> Any:
    config = OmegaConf.create({"name": "x", "run_dir": "outputs/run"})
    outer, is_list, inner = key.partition("[0].")
    OmegaConf.update(config, outer, [OmegaConf.create({inner: value})] if is_list else value)
    return config


@pytest.mark.parametrize(("key", "value"), OUTSIDE.items())
def test_outside_needs_a_person(key: str, value: str) -> None:
    config = job_with(key, value)
    with pytest.raises(ConfigError, match="was not given") as caught:
        check_external_values(config, NOBODY)
    assert caught.value.key == key
    typed = caught.value.hint.removeprefix("to allow it, type ").partition(", or list it under")[0]
    (word,) = shlex.split(typed)
    assert word.startswith(f"{key}=")
    assert may_reach_out(key, value)
    check_external_values(config, Trust(keys=frozenset([key])))
    check_external_values(config, Trust(said=collect_texts(config)))


@pytest.mark.parametrize(("key", "value"), INSIDE.items())
def test_what_stays_inside_needs_nobody(key: str, value: str) -> None:
    check_external_values(job_with(key, value), NOBODY)


@pytest.mark.parametrize(
    ("said", "value", "is_fine"),
    [
        ("/scratch/me", "/scratch/me/a", True),
        ("/scratch/me", "/scratch/me", True),
        ("/scratch/me", "/scratch/men", False),
        ("/scratch/me", "/scratch/me/../you", False),
        ("http://lab:5000", "http://lab:5000/x", True),
        ("http://lab", "http://lab@evil/x", False),
    ],
)
def test_trusted_values_of_the_project(said: str, value: str, *, is_fine: bool) -> None:
    config = job_with("callbacks.checkpoint.dirpath", value)
    if is_fine:
        check_external_values(config, Trust(values=(said,)))
    else:
        with pytest.raises(ConfigError):
            check_external_values(config, Trust(values=(said,)))


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("++a.b=/x", {"a.b"}),
        ("a={b: /x, c: [/y]}", {"a.b", "a.c", "a.c[0]"}),
        ("a.0=/x", {"a[0]"}),
        ("a=/x,/y", {"a"}),
        ("a=/${oc.env:HOME}/${name}", {"a"}),
        ("a={b: '${evil}'}", set()),
        ("a=/x,${evil}", set()),
        ("a=${oc.env:X,${evil}}", set()),
        ("a=[", set()),
    ],
)
def test_what_was_typed(typed: str, keys: set[str]) -> None:
    assert typed_keys([typed]) == keys


@pytest.mark.parametrize("name", ["../../up", "/var/x", ".hidden", "", "a\nb", "~", "-x"])
def test_a_name_is_made_of_words(name: str) -> None:
    config = job_with("seed", 1)
    config.name = name
    with pytest.raises(ConfigError, match="cannot be part of a path"):
        check_external_values(config, NOBODY)


def test_a_run_may_lie_above_the_current_directory_but_not_behind_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (tmp_path / "else" / "deep").mkdir(parents=True)
    here.mkdir()
    (here / "link").symlink_to(tmp_path / "else" / "deep")
    monkeypatch.chdir(here)
    for run_dir, value, allowed in (
        ("../run", "${run_dir}/checkpoints", True),
        ("../run", str(tmp_path / "run/checkpoints"), True),
        ("../here/../run", "${run_dir}/checkpoints", True),
        ("../run", "${run_dir}/../other", False),
        ("../run", str(tmp_path / "other"), False),
        ("link/../run", str(here / "run/checkpoints"), False),  # it lies in else
    ):
        config = job_with("callbacks.checkpoint.dirpath", value)
        config.run_dir = run_dir
        with nullcontext() if allowed else pytest.raises(ConfigError, match="was not given"):
            check_external_values(config, NOBODY)


def test_a_trusted_class_may_have_a_path_but_no_address() -> None:
    config = OmegaConf.create({"name": "x", "run_dir": "run", "trusted_packages": ["mine"], "callbacks": {}})
    config.callbacks.x = {"_target_": "mine.Notes", "deep": {"folder": "${run_dir}/../notes"}}
    check_external_values(config, NOBODY)
    for name, value in (("_target_", "mined.Notes"), ("folder", "http://evil")):
        tried = config.copy()
        tried.callbacks.x[name] = value
        with pytest.raises(ConfigError, match="was not given"):
            check_external_values(tried, NOBODY)


def test_an_experiment_and_the_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/experiment").mkdir(parents=True)
    evil = tmp_path / "conf/experiment/evil.yaml"

    def says(text: str, *typed: str) -> Any:
        evil.write_text(f"# @package _global_\n{text}\n", encoding="utf-8")
        return compose(["experiment=evil", *typed])

    path = "logger: {csv: {path: notes.txt}}"
    with pytest.raises(ConfigError, match=r"logger\.csv\.path: 'notes.txt' was not given"):
        says(path)
    with pytest.raises(ConfigError, match=r"logger\.csv\.path"):
        says(f"{path}\nmine: notes.txt", "logger.csv.path=${mine}")
    assert says(path, "logger.csv.path=notes.txt").logger.csv.path == "notes.txt"
    for place in ("/var/x", "../x", ".git/x", "."):
        with pytest.raises(ConfigError, match=r"hydra\.run\.dir"):
            says(f"hydra: {{run: {{dir: {place}}}}}")
    assert says("hydra: {run: {dir: runs/x}}").run_dir == "runs/x"
    with pytest.raises(ConfigError, match=r"hydra\.launcher\.setup\[0\]: 'touch x' was not given") as caught:
        says("hydra: {launcher: {setup: [touch x]}}")
    assert "'hydra.launcher.setup=[touch x]'" in caught.value.hint
    (tmp_path / "conf/project.yaml").write_text("trusted_values: [touch x, notes.txt]\n", encoding="utf-8")
    says(f"{path}\nhydra: {{launcher: {{setup: [touch x]}}}}")
    assert trust([]).values == ("touch x", "notes.txt")


def test_every_such_argument_of_lightning_is_known() -> None:
    """Whatever value it has: a plain word is taken from the current directory, a host has no scheme."""
    meant = re.compile(r"dir|path|file|folder|uri|url|host|addr|server|location|token|api_key|entity|space")
    rooms = {"callbacks": callbacks, "logger": loggers, "trainer": profilers}
    found = {
        f"{root}.{name}.{argument}"
        for root, room in rooms.items()
        for name, kind in inspect.getmembers(room, inspect.isclass)
        for argument in inspect.signature(kind.__init__).parameters
        if meant.search(argument) and argument not in ("filename", "add_file_policy", "profiler_kwargs")
    }
    assert len(found) >= 10
    for key in sorted(found):
        with pytest.raises(ConfigError, match="was not given"):
            check_external_values(job_with(key, "word"), NOBODY)
