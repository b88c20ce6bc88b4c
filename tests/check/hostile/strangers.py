"""Packages and run directories of somebody else's."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from tests.check.hostile.case import (
    FILE,
    IN_WORDS,
    LINEAR,
    QUICK,
    SYSTEM,
    Case,
    experiment,
    put,
    run_directory,
    yaml,
)
from tests.check.hostile.folder import EVIL
from tests.check.hostile.payloads import CODE, IMPORT_MODULE, MARKER, TOUCH, call, partial

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.check.hostile.payloads import Node

PROJECT = {
    "conf/project.yaml": "trusted_packages: [my_project]\n",
    "my_project/__init__.py": (
        "import builtins, functools, importlib, os, pathlib, pickle, subprocess, sys, torch\n"
        "import numpy as np\nfrom os import system as run\nfrom subprocess import run as start\n"
        "from pickle import loads as decode\nfrom pathlib import Path as Net2\n"
        "from builtins import exec as build\n"
        "shell = functools.partial(os.system)\nimport lightning\nclass Net(lightning.LightningModule): ...\n"
    ),
    "my_project/nets.py": (
        "import os\nfrom os import *\nfrom torch.hub import load\nfrom torch import load as read\n"
    ),
}


def re_exports() -> Iterator[Case]:
    cases: dict[str, Node] = {
        "module": call("my_project.os.system", TOUCH),
        "function": call("my_project.run", TOUCH),
        "partial-object": call("my_project.shell", TOUCH),
        "subprocess": call("my_project.subprocess.run", ["touch", MARKER]),
        "subprocess-function": call("my_project.start", ["touch", MARKER]),
        "exec": call("my_project.build", CODE),
        "exec-module": call("my_project.builtins.exec", CODE),
        "pickle": call("my_project.pickle.load", call("my_project.builtins.open", "evil.pkl", "rb")),
        "pickle-function": call("my_project.decode", "x"),
        "importlib": call("my_project.importlib.import_module", IMPORT_MODULE),
        "sys-modules": call("my_project.sys.modules.get", "os"),
        "torch": call("my_project.torch.load", "evil.pt", weights_only=False),
        "numpy": call("my_project.np.load", "evil.npy", allow_pickle=True),
        "path": call("my_project.Net2.touch", call("my_project.Net2", MARKER)),
        "path-class": call("my_project.Net2", MARKER),
        "submodule": call("my_project.nets.os.mkdir", MARKER),
        "star": call("my_project.nets.mkdir", MARKER),
        "hub": call("my_project.nets.load", "hub", "evil", source="local"),
        "read": call("my_project.nets.read", "evil.pt", weights_only=False),
        "inherited": call("my_project.Net.load_from_checkpoint", "evil.pt", weights_only=False),
        "dunder": call("my_project.Net.__init__.__globals__.get", "os"),
        "globals": call("my_project.__builtins__.get", "exec"),
        "class-of": call("my_project.Net.__subclasses__"),
        "the-module": call("my_project.nets"),
        "untrusted-first": {"_target_": "my_project.Net", "x": call(f"{IMPORT_MODULE}.Net")},
    }
    slots = itertools.cycle(("model", "loss", "callbacks.evil", "augment", "data.source", "module"))
    for name, node in cases.items():
        tree = put(next(slots), node)
        trusted = () if name in ("untrusted-first", "dunder", "globals", "class-of") else ("my_project",)
        yield experiment(f"re-export/{name}", tree, files=PROJECT, trusted=trusted)


def trust() -> Iterator[Case]:
    evil = {"evil_package/__init__.py": EVIL}
    model = {"model": {"_target_": "evil_package.Net"}}
    listed = {"trusted_packages": ["evil_package"]}
    yield experiment("trust/none", model, files=evil)
    yield experiment("trust/experiment", {**model, **listed}, files=evil)
    yield experiment("trust/experiment-and-typed", {**model, **listed}, "seed=1", files=evil)
    yield experiment(
        "trust/interpolation", {**model, "trusted_packages": "${mine}", "mine": ["evil_package"]}, files=evil
    )
    yield experiment(
        "trust/resolver",
        {**model, "trusted_packages": ["${oc.env:E}"]},
        files=evil,
        environment={"E": "evil_package"},
    )
    yield experiment("trust/text", {**model, "trusted_packages": "evil_package"}, files=evil)
    yield experiment("trust/mapping", {**model, "trusted_packages": {"0": "evil_package"}}, files=evil)
    preset = {"overrides": {"task": ["trusted_packages=[evil_package]"]}}
    yield experiment("trust/preset-overrides", {**model, **listed, "hydra": preset}, files=evil)
    yield experiment(
        "trust/preset-overrides-in-a-sweep",
        {**model, **listed, "hydra": preset},
        "-m",
        "seed=1,2",
        files=evil,
    )
    yield experiment("trust/inside-the-model", {"model": {**model["model"], **listed}}, files=evil)
    in_load = {
        "augment": call(
            "assay.augment.teacher.Teacher", model={"_target_": "assay.load", "run": "evil_run", **listed}
        )
    }
    yield experiment("trust/argument-of-load", in_load, files={**evil, **run_directory(model["model"])})
    option = {"conf/trusted_packages/x.yaml": "# @package _global_\ntrusted_packages: [evil_package]\n"}
    yield experiment("trust/group", model, "+trusted_packages=x", files={**evil, **option})
    yield experiment("trust/group-list", model, "+trusted_packages=[x]", files={**evil, **option})
    package = {"conf/debug/x.yaml": "# @package trusted_packages\n- evil_package\n"}
    yield experiment("trust/package-header", model, "debug=x", files={**evil, **package})
    for typed in (
        "[os]",
        "[torch]",
        "[builtins]",
        "[numpy]",
        "[pickle,os]",
        "[hydra]",
        "['.']",
        "[_io]",
        "['os.path']",
        "['']",
    ):
        node = call("os.system", TOUCH)
        yield experiment(f"trust/typed-{typed}", {"model": node}, f"trusted_packages={typed}")
    for name, text in {
        "other-key": "trusted_packages: [evil_package]\nmodel: {}\n",
        "no-list": "trusted_packages: evil_package\n",
        "standard-library": "trusted_packages: [os, subprocess]\n",
        "resolver": "trusted_packages: ['${oc.env:E}']\n",
        "anchor": "a: &a [evil_package]\ntrusted_packages: *a\n",
        "list": "- evil_package\n",
    }.items():
        files = {**evil, "conf/project.yaml": text}
        yield experiment(f"trust/project-{name}", model, files=files, environment={"E": "evil_package"})
    yield Case(
        "trust/project-of-a-run",
        ("evil_run",),
        {
            **evil,
            **run_directory(model["model"]),
            "evil_run/conf/project.yaml": "trusted_packages: [evil_package]\n",
        },
        verb="load",
    )


def cwd_packages() -> Iterator[Case]:
    """Modules that lie about in the current directory, some named as if they were somebody's."""
    names = (
        *(
            "torch_evil",
            "assay_evil",
            "lightning_evil",
            "torchmetric",
            "torchvison",
            "pytorch_lightning_evil",
        ),
        *("sitecustomize", "usercustomize", "conftest", "models", "evil_ns.inner", "lightningg", "torch_nn"),
    )
    slots = itertools.cycle(
        ("model", "loss", "callbacks.evil", "data", "mine", "trainer.strategy", "augment")
    )
    for name in names:
        file = f"{name.replace('.', '/')}.py"
        yield experiment(f"cwd/{name}", put(next(slots), call(f"{name}.Net")), files={file: EVIL})
    plugin = {"hydra_plugins/evil/__init__.py": EVIL, "hydra_plugins/evil_launcher.py": EVIL}
    yield experiment("cwd/hydra_plugins", {"model": SYSTEM}, files=plugin)
    yield experiment("cwd/hydra_plugins-sweep", {"model": SYSTEM}, "-m", "seed=1,2", files=plugin)
    for shadow in ("torchmetrics", "torchvision", "torch", "lightning", "assay", "yaml", "numpy"):
        files = {f"{shadow}/__init__.py": EVIL, f"{shadow}/evil.py": EVIL}
        yield experiment(f"cwd/shadow-{shadow}", put("model", call(f"{shadow}.evil.Net")), files=files)
    yield Case(
        "cwd/config-folder-is-a-package",
        (*QUICK, "model=x"),
        {"conf/__init__.py": EVIL, "conf/model/x.yaml": yaml(FILE)},
    )
    yield experiment(
        "cwd/optional-of-lightning", {"model": SYSTEM}, files={"deepspeed/__init__.py": EVIL, "apex.py": EVIL}
    )


def run_directories() -> Iterator[Case]:
    teacher = (*QUICK, "augment=teacher", "augment.model.run=evil_run")
    good = {"_target_": "torch.nn.Sequential", "_args_": LINEAR}
    evil = {"evil_package/__init__.py": EVIL}
    late = "${oc.create:" + IN_WORDS + "}"
    runs: dict[str, dict[str, str]] = {
        "model": run_directory(SYSTEM),
        "model-file": run_directory(FILE),
        "model-loader": run_directory(call("torch.load", "evil.pt", weights_only=False)),
        "model-method": run_directory(
            call("lightning.LightningModule.load_from_checkpoint", "evil.pt", weights_only=False)
        ),
        "nested": run_directory({"_target_": "torch.nn.Sequential", "_args_": [{"a": [SYSTEM]}]}),
        "partial": run_directory(
            {"_target_": "torch.nn.Sequential", "_args_": [partial("os.system", TOUCH)]}
        ),
        "not-recursive": run_directory(
            {"_target_": "torch.nn.Sequential", "_recursive_": False, "_args_": [SYSTEM]}
        ),
        "interpolated-target": run_directory({"_target_": "${evil}", "_args_": [TOUCH]}, evil="os.system"),
        "interpolated-node": run_directory("${mine}", mine=SYSTEM),
        "resolver": run_directory(late),
        "resolver-in-list": run_directory({"_target_": "torch.nn.Sequential", "_args_": [late]}),
        "resolver-escaped": run_directory({"_target_": "torch.nn.Sequential", "_args_": ["\\" + late]}),
        "resolver-target": run_directory({"_target_": "${oc.select:x,os.system}", "_args_": [TOUCH]}),
        "spec": run_directory(
            {"_target_": "torch.nn.Sequential", "_args_": ["${spec.x}"]}, spec={"x": SYSTEM}
        ),
        "elsewhere": run_directory(good, callbacks={"evil": SYSTEM}),
        "own-package": {**evil, **run_directory({"_target_": "evil_package.Net"})},
        "own-trust": {
            **evil,
            **run_directory({"_target_": "evil_package.Net"}, trusted_packages=["evil_package"]),
        },
        "standard-library-trust": run_directory(SYSTEM, trusted_packages=["os"]),
        "checkpoint": run_directory(good),
        "checkpoint-pickle": run_directory(good, "!pickle"),
        "another-run": run_directory({"_target_": "assay.load", "run": "evil_run"}),
        "another-run-with-trust": run_directory(
            {"_target_": "assay.load", "run": "r", "trusted_packages": ["evil_package"]}
        ),
        "weights": run_directory(
            {
                "_target_": "assay.model.adapted.Adapted",
                "input_shape": [1, 8, 8],
                "weights": "evil.pt",
                "network": {"_target_": "torchvision.models.resnet18", "num_classes": 10},
            }
        ),
        "hydra": run_directory(good, "!pickle", hydra={"callbacks": {"evil": SYSTEM}}),
        "list": {"evil_run/config.yaml": yaml([SYSTEM])},
        "text": {**run_directory(good), "evil_run/config.yaml": "os.system\n"},
        "root": {"evil_run/config.yaml": yaml({**SYSTEM, "model": SYSTEM})},
        "broken": {"evil_run/config.yaml": "model: [\n"},
    }
    for name, files in runs.items():
        yield Case(f"run/load-{name}", ("evil_run",), files, verb="load")
        yield Case(f"run/teacher-{name}", teacher, files)
    loads = {"loss": {"_target_": "assay.load", "run": "evil_run"}}
    yield experiment("run/load-as-loss", loads, files=run_directory(SYSTEM))
    option = {"conf/model/x.yaml": "# X.\n_target_: assay.load\nrun: evil_run\n"}
    yield Case("run/load-as-model", (*QUICK, "model=x"), {**option, **run_directory(SYSTEM)})
    loads = {"model": {"_target_": "assay.run.load.load", "run": "evil_run"}}
    yield experiment("run/load-by-another-name", loads, files=run_directory(SYSTEM))
    arrays = {"arrays/inputs.npy": "!npy", "arrays/targets.npy": "!npy"}
    yield Case("run/data-arrays", (*QUICK, "data=arrays", "data.source.root=evil.npy"), arrays)
    yield Case("run/data-arrays-folder", (*QUICK, "data=arrays", "data.source.root=arrays"), arrays)
    for name, target in {
        "lsun": "torchvision.datasets.LSUN",
        "clip": "torchmetrics.multimodal.clip_score.CLIPScore",
        "datapipe": "torch.utils.data.datapipes.iter.routeddecoder.RoutedDecoderIterDataPipe",
        "demo": "lightning.pytorch.demos.mnist_datamodule.MNISTDataModule",
    }.items():
        yield Case(f"run/data-{name}", (*QUICK, "data=custom", f"data.source.dataset._target_={target}"), {})
