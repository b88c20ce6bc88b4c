"""Names that are refused before anything is imported."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from tests.targets.jobs import job, refused

from assay.compose.compose import compose, job_config
from assay.targets.allowed_targets import check_targets
from assay.targets.resolve import resolve_targets


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
