"""Every hostile case: configs, packages, run directories and sweeps that somebody else has written."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import msgspec
from tests.check.hostile.cases import (
    CODE,
    EVIL,
    FILE,
    GOOD,
    IMPORTED,
    IN_WORDS,
    LATER,
    LINEAR,
    MARKER,
    NODES,
    QUICK,
    SEQUENTIAL,
    SYSTEM,
    TOUCH,
    Case,
    call,
    experiment,
    put,
    run_directory,
    yaml,
)

from assay.files.checksum import seal_json, seal_yaml
from assay.record.run_record import RunRecord
from assay_analysis.journal import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator


PACKAGE = {"evil_package/__init__.py": EVIL}
EVIL_MODEL = {"model": {"_target_": "evil_package.Net"}}
UP = f"../{MARKER}"
SWEEP = ("-m", "seed=1,2")

# -- configs

SLOTS = [
    *("model", "loss", "optimizer", "scheduler", "param_groups", "metrics.train", "augment"),
    *("callbacks.evil", "logger.evil", "data", "data.source", "data.transform", "trainer"),
    *("trainer.profiler", "module", "mine", "spec", "tags", "model.widths", "data.split.val"),
]


def payloads_in_slots() -> Iterator[Case]:
    """Each payload somewhere, every slot in turn; as it is, partial, in a list, deep inside."""
    slots = itertools.cycle(SLOTS)
    for number, (name, node) in enumerate(NODES["payloads"].items()):
        slot = next(slots)
        shapes: tuple[Any, ...] = (
            node,
            {**node, "_partial_": True},
            call(SEQUENTIAL, *LINEAR, node),
            call(SEQUENTIAL, {"a": [[{"b": node}]]}, _recursive_=False),
            {"x": {"y": [1, {"z": {"deep": [{"deeper": node}]}}]}},
        )
        shape = shapes[number % len(shapes)]
        held = [shape] if slot in ("tags", "model.widths") else shape
        yield experiment(f"payload/{name}@{slot}", put(slot, held))


def command_line() -> Iterator[Case]:
    args = f"+{{}}._args_=['{TOUCH}']"
    for slot in ("model", "trainer", "module", "data.source", "metrics.train"):
        yield Case(f"typed/{slot}", (*QUICK, f"{slot}._target_=os.system", args.format(slot)))
    for slot in ("callbacks.evil", "augment", "mine", "model.x.y"):
        yield Case(f"typed/new-{slot}", (*QUICK, f"++{slot}={IN_WORDS}"))
    swept = ("loss._target_=torch.nn.MSELoss,os.system", f"+loss._args_=['{TOUCH}']")
    yield Case("typed/sweep", (*QUICK, "-m", *swept))
    yield Case("typed/sweep-last-job", (*QUICK, "-m", "seed=1,2,3", f"model.widths=[1,{IN_WORDS}]"))
    yield Case("typed/cwd-package", (*QUICK, f"model._target_={IMPORTED}.Net"))
    yield Case("typed/no-dot", (*QUICK, f"model._target_={IMPORTED}"))
    for odd in (
        "os:system",
        "os..system",
        ".os.system",
        "os.system ",
        "ｏｓ.system",
        "/etc/x.Net",
        "__main__.run",
    ):
        yield Case(f"typed/odd-{odd}", (*QUICK, f"model._target_='{odd}'", args.format("model")))


def option_files() -> Iterator[Case]:
    node = f"# Evil.\n{yaml(SYSTEM)}\n"
    everywhere = f"# @package _global_\n{yaml(put('model', SYSTEM))}\n"
    defaults = "# @package _global_\ndefaults:\n  - {}\n"
    chain = {f"debug/d{n}.yaml": defaults.format(f"d{n + 1}") for n in range(3)}
    cases: dict[str, tuple[str, dict[str, str]]] = {
        **{
            f"group-{group}": (f"{group}=evil", {f"{group}/evil.yaml": node})
            for group in ("model", "augment")
        },
        "new-group": ("+module=evil", {"module/evil.yaml": node}),
        "list": ("callbacks=[evil]", {"callbacks/evil.yaml": f"# @package callbacks.evil\n{yaml(SYSTEM)}\n"}),
        "package": ("+optimizer@loss=evil", {"optimizer/evil.yaml": f"# @package loss\n{yaml(SYSTEM)}\n"}),
        "package-global": ("augment=evil", {"augment/evil.yaml": everywhere}),
        "package-in-metrics": ("+model@metrics.train.metrics.evil=evil", {"model/evil.yaml": node}),
        "anything": ("+anything=evil", {"anything/evil.yaml": node}),
        "defaults": (
            "experiment=a",
            {"experiment/a.yaml": defaults.format("/augment@loss: evil"), "augment/evil.yaml": node},
        ),
        "defaults-override": (
            "experiment=a",
            {"experiment/a.yaml": defaults.format("override /model: evil"), "model/evil.yaml": node},
        ),
        "defaults-chain": ("debug=d0", {**chain, "debug/d3.yaml": everywhere}),
        "traversal": ("experiment=../../evil", {"../evil.yaml": everywhere}),
        "fragment-of-trainer": (
            "device=evil",
            {"device/evil.yaml": f"# @package trainer\nprofiler: {yaml(SYSTEM)}\n"},
        ),
    }
    for name, (typed, files) in cases.items():
        yield Case(f"option/{name}", (*QUICK, typed), {f"conf/{at}": text for at, text in files.items()})


def interpolations() -> Iterator[Case]:
    created = "${oc.create:" + IN_WORDS + "}"
    environment = {"EVIL": "os.system", "NODE": IN_WORDS, "W": "a"}
    for name, tree in NODES["interpolations"].items():
        yield experiment(f"interpolation/{name}", tree, environment=environment)
    images = {f"{folder}/{n}.png": "!png" for folder in (f"photos/{created}", "photos/b") for n in range(20)}
    typed = ("data=image_folder", "data.source.root=photos", "data.num_workers=0", "data.batch_size=4")
    for where, name in {"list": "${spec.class_names}", "item": "${spec.class_names.0}"}.items():
        option = {"conf/model/x.yaml": f"# X.\n{yaml(call(SEQUENTIAL, *LINEAR, name))}\n"}
        yield Case(
            f"interpolation/name-of-a-class-{where}", (*QUICK, *typed, "model=x"), {**images, **option}
        )


def tags() -> Iterator[Case]:
    texts = {
        "apply": f"!!python/object/apply:os.system ['{TOUCH}']",
        "name": "!!python/name:os.system",
        "module": f"!!python/module:{IMPORTED}",
        "object": f"!!python/object:{IMPORTED}.Net {{}}",
    }
    for name, text in texts.items():
        yield experiment(f"tag/experiment-{name}", f"mine: {text}")
        yield Case(f"tag/project-{name}", QUICK, {"conf/project.yaml": f"trusted_packages: {text}\n"})
        yield Case(f"tag/run-{name}", ("evil_run",), {"evil_run/config.yaml": f"model: {text}\n"}, "load")


# -- Hydra's own nodes


def hydra_node() -> Iterator[Case]:
    for (name, node), part in zip(
        NODES["logging"].items(), itertools.cycle(("job_logging", "hydra_logging"))
    ):
        tree = {"evil": f"{IMPORTED}.Net", "hydra": {part: {"version": 1, **node}}}
        yield experiment(f"hydra/{part}-{name}", tree, *(SWEEP if part == "job_logging" else ()))
    for name, tree in NODES["hydra"].items():
        top = {"mine": {"evil": SYSTEM}, "evil": "os.system"}
        yield experiment(f"hydra/{name}", {**top, "hydra": tree}, *SWEEP)
    package = {"evil_configs/__init__.py": CODE, "evil_configs/model/x.yaml": f"# X.\n{yaml(SYSTEM)}\n"}
    searched = {"EVIL": "pkg://evil_configs"}
    for place in ("pkg://evil_configs", "structured://evil_configs", "${oc.env:EVIL}", "file://evil_configs"):
        typed = (*QUICK, f"hydra.searchpath=['{place}']", "model=x")
        yield Case(f"hydra/searchpath-{place}", typed, package, environment=searched)
    inside = {"hydra": {"searchpath": ["pkg://evil_configs"]}}
    yield experiment("hydra/searchpath-in-option", inside, files=package)
    for group in ("launcher", "sweeper", "callbacks"):
        text = f"# @package hydra.{group}\n{yaml(call(f'{IMPORTED}.Net'))}\n"
        plus = "+" if group == "callbacks" else ""
        words = (*QUICK, *SWEEP, f"{plus}hydra/{group}=evil")
        yield Case(f"hydra/option-{group}", words, {f"conf/hydra/{group}/evil.yaml": text})


# -- packages

PROJECT = {
    "conf/project.yaml": "trusted_packages: [my_project]\n",
    "my_project/__init__.py": (
        "import builtins, functools, os, pathlib, pickle, sys, torch\n"
        "from os import system as run\nfrom pickle import loads as decode\nfrom pathlib import Path as Net2\n"
        "shell = functools.partial(os.system)\nimport lightning\nclass Net(lightning.LightningModule): ...\n"
    ),
    "my_project/nets.py": "import os\nfrom os import *\nfrom torch import load as read\n",
}


def re_exports() -> Iterator[Case]:
    """What a trusted package imports is not its own."""
    slots = itertools.cycle(("model", "loss", "callbacks.evil", "augment", "data.source", "module"))
    for name, node in NODES["re_exports"].items():
        trusted = () if name in ("untrusted-first", "dunder", "globals", "class-of") else ("my_project",)
        yield experiment(f"re-export/{name}", put(next(slots), node), files=PROJECT, trusted=trusted)


def trust() -> Iterator[Case]:
    """Only who types, and `conf/project.yaml`, say whom to trust."""
    files, environment = {**PACKAGE, **run_directory(EVIL_MODEL["model"])}, {"E": "evil_package"}
    for name, tree in NODES["trust"].items():
        yield experiment(f"trust/{name}", tree, files=files, environment=environment)
    yield experiment("trust/sweep", NODES["trust"]["preset-overrides"], *SWEEP, files=files)
    option = {"conf/trusted_packages/x.yaml": "# @package _global_\ntrusted_packages: [evil_package]\n"}
    for typed in ("x", "[x]"):
        words = f"+trusted_packages={typed}"
        yield experiment(f"trust/group-{typed}", EVIL_MODEL, words, files={**PACKAGE, **option})
    header = {"conf/debug/x.yaml": "# @package trusted_packages\n- evil_package\n"}
    yield experiment("trust/package-header", EVIL_MODEL, "debug=x", files={**PACKAGE, **header})
    for typed in ("[os]", "[torch]", "[builtins]", "[hydra]", "['.']", "[_io]", "['os.path']", "['']"):
        yield experiment(f"trust/typed-{typed}", {"model": SYSTEM}, f"trusted_packages={typed}")
    for name, text in {
        "other-key": "trusted_packages: [evil_package]\nmodel: {}\n",
        "no-list": "trusted_packages: evil_package\n",
        "standard-library": "trusted_packages: [os, subprocess]\n",
        "resolver": "trusted_packages: ['${oc.env:E}']\n",
        "anchor": "a: &a [evil_package]\ntrusted_packages: *a\n",
    }.items():
        project = {**PACKAGE, "conf/project.yaml": text}
        yield experiment(f"trust/project-{name}", EVIL_MODEL, files=project, environment=environment)
    own = {"evil_run/conf/project.yaml": "trusted_packages: [evil_package]\n"}
    yield Case("trust/project-of-a-run", ("evil_run",), {**files, **own}, "load")


def cwd_packages() -> Iterator[Case]:
    """Modules that lie about in the current directory, some named as if they were somebody's."""
    slots = itertools.cycle(("model", "callbacks.evil", "data", "mine", "trainer.strategy", "augment"))
    for name in ("torch_evil", "assay_evil", "torchmetric", "sitecustomize", "conftest", "evil_ns.inner"):
        file = {f"{name.replace('.', '/')}.py": EVIL}
        yield experiment(f"cwd/{name}", put(next(slots), call(f"{name}.Net")), files=file)
    plugin = {"hydra_plugins/evil/__init__.py": EVIL, "hydra_plugins/evil_launcher.py": EVIL}
    yield experiment("cwd/hydra_plugins", {"model": SYSTEM}, *SWEEP, files=plugin)
    for shadow in ("torchmetrics", "torch", "lightning", "assay", "yaml", "numpy"):
        files = {f"{shadow}/__init__.py": EVIL, f"{shadow}/evil.py": EVIL}
        yield experiment(f"cwd/shadow-{shadow}", put("model", call(f"{shadow}.evil.Net")), files=files)
    package = {"conf/__init__.py": EVIL, "conf/model/x.yaml": yaml(FILE)}
    yield Case("cwd/config-folder-is-a-package", (*QUICK, "model=x"), package)
    optional = {"deepspeed/__init__.py": EVIL, "apex.py": EVIL}
    yield experiment("cwd/optional-of-lightning", {"model": SYSTEM}, files=optional)


# -- run directories


def run_directories() -> Iterator[Case]:
    late = "${oc.create:" + IN_WORDS + "}"
    evil = EVIL_MODEL["model"]
    weights = call(
        "assay.model.torchvision.Torchvision", "resnet18", [1, 8, 8], num_outputs=10, weights="evil.pt"
    )
    by_method = call("lightning.LightningModule.load_from_checkpoint", "evil.pt", weights_only=False)
    load = {"_target_": "assay.load", "run": "evil_run"}
    runs: dict[str, dict[str, str]] = {
        "model": run_directory(SYSTEM),
        "model-method": run_directory(by_method),
        "nested": run_directory(call(SEQUENTIAL, {"a": [SYSTEM]})),
        "partial": run_directory(call(SEQUENTIAL, LATER)),
        "not-recursive": run_directory(call(SEQUENTIAL, SYSTEM, _recursive_=False)),
        "interpolated-target": run_directory(call("${evil}", TOUCH), evil="os.system"),
        "interpolated-node": run_directory("${mine}", mine=SYSTEM),
        "resolver": run_directory(late),
        "resolver-in-list": run_directory(call(SEQUENTIAL, late)),
        "resolver-target": run_directory(call("${oc.select:x,os.system}", TOUCH)),
        "spec": run_directory(call(SEQUENTIAL, "${spec.x}"), spec={"x": SYSTEM}),
        "elsewhere": run_directory(GOOD, callbacks={"evil": SYSTEM}),
        "own-package": {**PACKAGE, **run_directory(evil)},
        "own-trust": {**PACKAGE, **run_directory(evil, trusted_packages=["evil_package"])},
        "checkpoint": run_directory(GOOD),
        "checkpoint-pickle": run_directory(GOOD, "!pickle"),
        "another-run": run_directory(load),
        "weights": run_directory(weights),
        "list": {"evil_run/config.yaml": yaml([SYSTEM])},
        "root": {"evil_run/config.yaml": yaml({**SYSTEM, "model": SYSTEM})},
    }
    teacher = (*QUICK, "augment=teacher", "augment.model.run=evil_run")
    for name, files in runs.items():
        yield Case(f"run/load-{name}", ("evil_run",), files, "load")
        yield Case(f"run/teacher-{name}", teacher, files)
    yield experiment("run/load-as-loss", {"loss": load}, files=run_directory(SYSTEM))
    other = {"model": {**load, "_target_": "assay.run.predictor.load"}}
    yield experiment("run/load-by-another-name", other, files=run_directory(SYSTEM))
    arrays = {"arrays/inputs.npy": "!npy", "arrays/targets.npy": "!npy"}
    for root in ("evil.npy", "arrays"):
        yield Case(f"run/data-{root}", (*QUICK, "data=arrays", f"data.source.root={root}"), arrays)
    for target in ("torchvision.datasets.LSUN", "lightning.pytorch.demos.mnist_datamodule.MNISTDataModule"):
        yield Case(f"run/{target}", (*QUICK, "data=custom", f"data.source.dataset._target_={target}"))


# -- where to write, whom to contact, what to execute


def outside_configs() -> Iterator[Case]:
    for kind, nodes in (("place", NODES["places"]), ("address", NODES["addresses"])):
        for key, node in nodes.items():
            typed = () if key == "hydra.run.dir" else QUICK[-1:]
            words = (*QUICK[:-1], *typed, "logger=[csv]", "experiment=evil")
            case = experiment("", put(key, node))
            yield Case(f"outside/{kind}-{key}", words, case.files)
            if "." in key and not key.startswith("hydra") and isinstance(node, str):
                indirect = experiment("", {"mine": node}).files
                yield Case(f"outside/typed-{kind}-{key}", (*words, f"{key}=${{mine}}"), indirect)
    for name, launcher in NODES["launchers"].items():
        option, node = launcher["option"], launcher["node"]
        typed = () if name == "sweep-dir" else ("hydra.sweep.dir=sweep",)
        more = (option, "optimizer.lr=interval(0.1,1)") if option else ()
        yield experiment(f"outside/launcher-{name}", {"hydra": node}, *SWEEP, *typed, *more)
    params = {"hydra": {"sweeper": {"params": {"logger.csv.path": f"choice({UP},x)"}}}}
    yield experiment("outside/search-space", params, "-m", "logger=[csv]")
    folder = {"theirs/project.yaml": "trusted_packages: [evil_package]\n", **PACKAGE}
    folder["theirs/model/x.yaml"] = "# X.\n_target_: evil_package.Net\n"
    yield Case("outside/config-dir", (*QUICK, "--config-dir", "theirs", "model=x"), folder)
    yield Case("outside/config-dir-sweep", (*QUICK, "-cd", "theirs", "model=x", *SWEEP), folder)


def _run(config: dict[str, Any], **fields: Any) -> dict[str, str]:
    module = call("assay.module.Module")
    tree = {"seed": 0, "name": "x", "tags": [], "model": GOOD, "module": module, "trusted_packages": []}
    tree |= {"trainer": call("lightning.Trainer", max_epochs=1), **config}
    begun = "2026-01-01T00:00:00+00:00"
    record = RunRecord("evil_run", "x", "interrupted", begun, 0, "0" * 64, "0" * 64, **fields)
    files = run_directory(GOOD)
    files["evil_run/config.yaml"] = seal_yaml(yaml(tree))
    files["evil_run/record.json"] = seal_json(json.dumps(msgspec.to_builtins(record), indent=2))
    return files


def hostile_runs() -> Iterator[Case]:
    trusted = {**PACKAGE, "conf/project.yaml": "trusted_packages: [harmless]\n", "harmless.py": ""}
    mine = {**EVIL_MODEL, "mine": ["evil_package"], "trusted_packages": ["harmless"]}
    late = {"model": {"_target_": "${x}"}, "x": "torch.nn.Identity", "y": "evil_package.Net"}
    interpolated: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
        "list": (mine, {"trusted_packages": "${mine}"}),
        "item": (mine, {"trusted_packages[0]": "${mine[0]}", "trusted_packages.0": "evil_package"}),
        "text": (mine, {"trusted_packages": "evil_package"}),
        "and-target": ({**mine, **late}, {"x": "${y}", "trusted_packages": "${mine}"}),
    }
    for name, (config, written) in interpolated.items():
        files = {**trusted, **_run(config, interpolations=written)}
        yield Case(f"resume/interpolated-trust-{name}", ("evil_run",), files, "resume")
    for kind, nodes in (("place", NODES["places"]), ("address", NODES["addresses"])):
        for key, node in nodes.items():
            if not key.startswith("hydra"):
                yield Case(f"resume/{kind}-{key}", ("evil_run",), _run(put(key, node)), "resume")
    csv = {"logger": {"x": call("assay.logger.run_csv.RunCSV", path="${run_dir}/metrics.csv")}, "mine": UP}
    files = _run(csv, interpolations={"logger.x.path": "${mine}"})
    yield Case("resume/interpolated-path", ("evil_run",), files, "resume")
    for name in ("log.txt", "metrics.csv", "checkpoints/last.ckpt.sha256", "overrides.yaml", "logs"):
        link = {f"evil_run/{name}": f"!link:{'../' * (name.count('/') + 2)}{MARKER}"}
        yield Case(f"resume/link-{name}", ("evil_run",), {**_run({}), **link}, "resume")


def _sweep(*typed: str, jobs: tuple[dict[str, Any], ...] = (), **header: Any) -> dict[str, str]:
    begin = {"event": "sweep", "version": VERSION, "overrides": ["seed=1,2", *QUICK[:3], *typed]}
    events = ({**begin, "config_dir": "", "cwd": "/nowhere", "started": "", **header}, *jobs)
    return {"evil_sweep/journal.jsonl": "".join(f"{json.dumps(event)}\n" for event in events)}


def hostile_sweeps() -> Iterator[Case]:
    theirs = {
        **PACKAGE,
        "evil_sweep/project/conf/project.yaml": "trusted_packages: [evil_package]\n",
        "evil_sweep/project/conf/model/x.yaml": "# X.\n_target_: evil_package.Net\n",
        "evil_sweep/project/evil_package/__init__.py": EVIL,
    }
    trusting = ("trusted_packages=[evil_package]", "model._target_=evil_package.Net")
    job = {"event": "job", "number": 0, "fingerprint": "x", "overrides": ["seed=1"], "token": "0", "seed": 1}
    found = {**job, "overrides": list(trusting)}
    slurm = ("hydra/launcher=slurm", f"hydra.launcher.setup=[{TOUCH}]")
    links = {"log": "log.txt", "job": "0", "logs": "logs", "study": "study.log"}
    sweeps: dict[str, dict[str, str]] = {
        "trust": _sweep(*trusting),
        "trust-in-a-job": _sweep("hydra/sweeper=optuna", "optimizer.lr=interval(0.1,1)", jobs=(found,)),
        "cwd": _sweep("model=x", cwd="evil_sweep/project"),
        "config-dir": _sweep("model=x", config_dir="evil_sweep/project/conf"),
        "search-path": _sweep("hydra.searchpath=[file://evil_sweep/project/conf]", "model=x"),
        "search-path-package": _sweep("hydra.searchpath=[pkg://evil_package]"),
        "setup": _sweep(*slurm),
        "address": _sweep("hydra/launcher=ray", "hydra.launcher.address=auto"),
        "launcher": _sweep("hydra.launcher._target_=assay_cluster.children.start"),
        "path": _sweep(f"logger.csv.path={UP}", "logger=[csv]"),
        "subdir": _sweep(f"hydra.sweep.subdir=../../{MARKER}"),
        "number": _sweep(jobs=({**job, "number": f"../../{MARKER}"},)),
        **{
            f"link-{name}": {**_sweep(), f"evil_sweep/{path}": f"!link:../../{MARKER}"}
            for name, path in links.items()
        },
    }
    for name, files in sweeps.items():
        yield Case(f"sweep/{name}", ("evil_sweep",), {**theirs, **files}, "resume")


CASES: tuple[Case, ...] = (
    *payloads_in_slots(),
    *command_line(),
    *option_files(),
    *interpolations(),
    *tags(),
    *hydra_node(),
    *re_exports(),
    *trust(),
    *cwd_packages(),
    *run_directories(),
    *outside_configs(),
    *hostile_runs(),
    *hostile_sweeps(),
)
