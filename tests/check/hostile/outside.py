"""Where to write, whom to contact, what to execute: said by a config, a run or a sweep of somebody else's."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import msgspec
from tests.check.hostile.case import LINEAR, QUICK, Case, experiment, put, run_directory, yaml
from tests.check.hostile.folder import EVIL
from tests.check.hostile.payloads import MARKER, TOUCH, call

from assay.files.checksum import seal_json, seal_yaml
from assay.record.journal import VERSION
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

UP = f"../{MARKER}"
PROFILER = "lightning.pytorch.profilers.SimpleProfiler"
PLACES: dict[str, Any] = {
    "logger.csv.path": UP,
    "logger.x": call("lightning.pytorch.loggers.CSVLogger", save_dir="..", name=MARKER),
    "logger.y": call("lightning.pytorch.loggers.CSVLogger", save_dir="${run_dir}", version=f"../../{MARKER}"),
    "logger.z": call("lightning.pytorch.loggers.TensorBoardLogger", save_dir=f"$PWD/{UP}"),
    "callbacks.x": call("lightning.pytorch.callbacks.ModelCheckpoint", dirpath=UP),
    "callbacks.y": call(
        "lightning.pytorch.callbacks.ModelCheckpoint", dirpath="${run_dir}", filename=f"../{UP}"
    ),
    "callbacks.z": call("lightning.pytorch.callbacks.OnExceptionCheckpoint", dirpath=f"~/{MARKER}"),
    "trainer.default_root_dir": UP,
    "trainer.profiler": call(PROFILER, dirpath="..", filename=MARKER),
    "hydra.run.dir": UP,
    "name": f"../../../{MARKER}",
}
"""Files outside of the run directory."""
ADDRESSES: dict[str, Any] = {
    "logger.x": call(
        "lightning.pytorch.loggers.MLFlowLogger", tracking_uri="http://127.0.0.1:9/${oc.env:HOME}"
    ),
    "logger.y": call("lightning.pytorch.loggers.WandbLogger", settings={"base_url": "http://127.0.0.1:9"}),
    "logger.z": call("lightning.pytorch.loggers.WandbLogger", entity="evil", save_dir="${run_dir}"),
    "callbacks.x": call(
        "lightning.pytorch.callbacks.ModelCheckpoint", dirpath="http://127.0.0.1:9/${oc.env:HOME}"
    ),
    "callbacks.y": call("lightning.pytorch.callbacks.ModelCheckpoint", dirpath="memory://x"),
    "trainer.strategy": call("lightning.pytorch.strategies.DDPStrategy", init_method="tcp://127.0.0.1:9"),
    "data.source.root": "http://127.0.0.1:9/rows.csv",
}
LAUNCHERS: dict[str, Any] = {
    "setup": {"launcher": {"setup": [TOUCH]}},
    "sbatch": {"launcher": {"additional_parameters": {"wrap": TOUCH}}},
    "line-break": {"launcher": {"partition": f"x\n{TOUCH}"}},
    "address": {"launcher": {"address": "ray://127.0.0.1:9"}},
    "address-auto": {"launcher": {"address": "auto"}},
    "storage": {"sweeper": {"storage": f"sqlite:///{UP}"}},
    "storage-file": {"sweeper": {"storage": f"{UP}.journal"}},
    "sweep-dir": {"sweep": {"dir": UP}},
    "subdir": {"sweep": {"subdir": f"../../{MARKER}"}},
    "guard": {"launcher": {"_target_": "assay.process.orphans.guard", "mark": "x", "folder": MARKER}},
    "start": {"launcher": {"_target_": "assay.sweep.session.start", "overrides": ["trusted_packages=[os]"]}},
    "orphans": {"launcher": {"_target_": "assay.process.orphans.kill_marked", "mark": "x"}},
    "plugin": {"launcher": {"_target_": "hydra_plugins.evil.Launcher"}},
    "sweeper": {"sweeper": {"_target_": "assay.sweep.session.plan", "overrides": []}},
    "keeper": {"launcher": {"_target_": "assay.sweep.launcher.cluster.ClusterWorker"}},
}
OPTIONS = {
    "setup": "slurm",
    "sbatch": "slurm",
    "line-break": "slurm",
    "address": "ray",
    "address-auto": "ray",
}
GOOD = {"_target_": "torch.nn.Sequential", "_args_": LINEAR}
PACKAGE = {"evil_package/__init__.py": EVIL}


def outside_configs() -> Iterator[Case]:
    for kind, nodes in (("place", PLACES), ("address", ADDRESSES)):
        for key, node in nodes.items():
            typed = ("hydra.run.dir=run",) if key != "hydra.run.dir" else ()
            quick = tuple(word for word in QUICK if not word.startswith("hydra.run.dir"))
            text = f"# @package _global_\n{yaml(put(key, node))}\n"
            files = {"conf/experiment/evil.yaml": text}
            words = (*quick, *typed, "logger=[csv]", "experiment=evil")
            yield Case(f"outside/{kind}-{key}", words, files)
            if "." in key and not key.startswith("hydra") and isinstance(node, str):
                indirect = {"conf/experiment/evil.yaml": f"# @package _global_\n{yaml({'mine': node})}\n"}
                yield Case(f"outside/typed-{kind}-{key}", (*words, f"{key}=${{mine}}"), indirect)
    for name, node in LAUNCHERS.items():
        option = (f"hydra/launcher={OPTIONS[name]}",) if name in OPTIONS else ()
        option = ("hydra/sweeper=optuna",) if name.startswith("storage") else option
        typed = () if name == "sweep-dir" else ("hydra.sweep.dir=sweep",)
        case = experiment(f"outside/launcher-{name}", {"hydra": node}, *option, "-m", "seed=1,2", *typed)
        words = (*case.typed, "optimizer.lr=interval(0.1,1)") if option else case.typed
        yield Case(case.name, words, case.files)
    params = {"hydra": {"sweeper": {"params": {"logger.csv.path": f"choice({UP},x)"}}}}
    yield experiment("outside/search-space", params, "-m", "logger=[csv]")
    folder = {"theirs/project.yaml": "trusted_packages: [evil_package]\n", **PACKAGE}
    folder["theirs/model/x.yaml"] = "# X.\n_target_: evil_package.Net\n"
    yield Case("outside/config-dir", (*QUICK, "--config-dir", "theirs", "model=x"), folder)
    yield Case("outside/config-dir-sweep", (*QUICK, "-m", "-cd", "theirs", "model=x", "seed=1,2"), folder)


def _record(**fields: Any) -> str:
    record = RunRecord(
        "evil_run", "x", "interrupted", "2026-01-01T00:00:00+00:00", 0, "0" * 64, "0" * 64, **fields
    )
    return seal_json(json.dumps(msgspec.to_builtins(record), indent=2))


def _run(config: dict[str, Any], **fields: Any) -> dict[str, str]:
    files = run_directory(GOOD, "!torch")
    tree = {
        "seed": 0,
        "name": "x",
        "tags": [],
        "model": GOOD,
        "module": call("assay.module.Module"),
        "trainer": {"_target_": "lightning.Trainer", "max_epochs": 1},
        "trusted_packages": [],
        **config,
    }
    return {**files, "evil_run/config.yaml": seal_yaml(yaml(tree)), "evil_run/record.json": _record(**fields)}


def hostile_runs() -> Iterator[Case]:
    resume = ("evil_run",)
    evil = {"evil_package/__init__.py": EVIL, "conf/project.yaml": "trusted_packages: [harmless]\n"}
    named = {"model": {"_target_": "evil_package.Net"}, "mine": ["evil_package"]}
    trusts = {
        "list": {"trusted_packages": "${mine}"},
        "item": {"trusted_packages[0]": "${mine[0]}", "trusted_packages.0": "evil_package"},
        "text": {"trusted_packages": "evil_package"},
        "later": {"model._target_": "${mine[0]}.Net", "model": "${other}"},
    }
    for name, written in trusts.items():
        other = {"other": {"_target_": "evil_package.Net"}} if name == "later" else named
        files = {**evil, **_run({**other, "trusted_packages": ["harmless"]}, interpolations=written)}
        yield Case(f"resume/interpolated-trust-{name}", resume, files, verb="resume")
    late = {"model": {"_target_": "${x}"}, "x": "torch.nn.Identity", "y": "evil_package.Net"}
    written = {"x": "${y}", "trusted_packages": "${mine}"}
    files = {**evil, **_run({**late, "mine": ["evil_package"]}, interpolations=written)}
    yield Case("resume/interpolated-trust-and-target", resume, files, verb="resume")
    for kind, nodes in (("place", PLACES), ("address", ADDRESSES)):
        for key, node in nodes.items():
            if not key.startswith("hydra"):
                yield Case(f"resume/{kind}-{key}", resume, _run(put(key, node)), verb="resume")
    hidden = {"logger": {"x": call("assay.logger.run_csv.RunCSV", path="${run_dir}/metrics.csv")}, "mine": UP}
    files = _run(hidden, interpolations={"logger.x.path": "${mine}"})
    yield Case("resume/interpolated-path", resume, files, verb="resume")
    for name in (
        "log.txt",
        "metrics.csv",
        "checkpoints/last.ckpt.sha256",
        "overrides.yaml",
        "config.yaml.tmp",
    ):
        link = {f"evil_run/{name}": f"!link:{'../' * (name.count('/') + 2)}{MARKER}"}
        yield Case(f"resume/link-{name}", resume, {**_run({}), **link}, verb="resume")
    yield Case("resume/link-logs", resume, {**_run({}), "evil_run/logs": "!link:../.."}, verb="resume")


def _journal(*events: dict[str, Any]) -> str:
    lines = []
    for event in events:
        text = json.dumps(event, separators=(",", ":"))[:-1]
        lines.append(f'{text},"crc":"{zlib.crc32(text.encode()):08x}"}}\n')
    return "".join(lines)


def _sweep(*typed: str, jobs: tuple[dict[str, Any], ...] = (), **header: Any) -> dict[str, str]:
    begin = {"event": "sweep", "version": VERSION, "overrides": ["seed=1,2", *QUICK[:3], *typed]}
    known = {"config_dir": "", "cwd": "/nowhere", "started": ""}
    return {"evil_sweep/journal.jsonl": _journal({**begin, **known, **header}, *jobs)}


def hostile_sweeps() -> Iterator[Case]:
    theirs = {
        **PACKAGE,
        "evil_sweep/project/conf/project.yaml": "trusted_packages: [evil_package]\n",
        "evil_sweep/project/conf/model/x.yaml": "# X.\n_target_: evil_package.Net\n",
        "evil_sweep/project/evil_package/__init__.py": EVIL,
    }
    job = {"event": "job", "number": 0, "fingerprint": "x", "overrides": ["seed=1"], "token": "0", "seed": 1}
    sweeps: dict[str, dict[str, str]] = {
        "trust": _sweep("trusted_packages=[evil_package]", "model._target_=evil_package.Net"),
        "trust-again": _sweep("++trusted_packages=[evil_package]", "model._target_=evil_package.Net"),
        "trust-in-a-job": _sweep(
            "hydra/sweeper=optuna",
            "optimizer.lr=interval(0.1,1)",
            jobs=(
                {**job, "overrides": ["trusted_packages=[evil_package]", "model._target_=evil_package.Net"]},
            ),
        ),
        "cwd": _sweep("model=x", cwd="evil_sweep/project"),
        "config-dir": _sweep("model=x", config_dir="evil_sweep/project/conf"),
        "search-path": _sweep("hydra.searchpath=[file://evil_sweep/project/conf]", "model=x"),
        "search-path-package": _sweep("hydra.searchpath=[pkg://evil_package]"),
        "setup": _sweep(
            "hydra/launcher=slurm", "hydra.launcher.cluster=local", f"hydra.launcher.setup=[{TOUCH}]"
        ),
        "address": _sweep("hydra/launcher=ray", "hydra.launcher.address=auto"),
        "launcher": _sweep("hydra.launcher._target_=assay.process.orphans.guard"),
        "path": _sweep(f"logger.csv.path={UP}", "logger=[csv]"),
        "subdir": _sweep(f"hydra.sweep.subdir=../../{MARKER}"),
        "name": _sweep(f"name=../../{MARKER}"),
        "number": _sweep(jobs=({**job, "number": f"../../{MARKER}"},)),
        "number-below-zero": _sweep(jobs=({**job, "number": -1},)),
        "no-job": _sweep(jobs=({"event": "end", "number": 3, "final": True, "metrics": {}, "best": {}},)),
        "no-kind": _sweep(jobs=({"evil": 1},)),
        "overrides": _sweep(jobs=({**job, "overrides": [["x"]]},)),
        "header": {"evil_sweep/journal.jsonl": _journal({"event": "sweep", "version": VERSION})},
        "header-types": _sweep(cwd=["x"], config_dir={"x": 1}),
        "link-log": {**_sweep(), "evil_sweep/log.txt": f"!link:../../{MARKER}"},
        "link-job": {**_sweep(), "evil_sweep/0": "!link:../.."},
        "link-logs": {**_sweep(), "evil_sweep/logs": "!link:../.."},
        "link-results": {**_sweep(), "evil_sweep/attempts": "!link:../.."},
        "link-study": {**_sweep(), "evil_sweep/study.db": f"!link:../../{MARKER}"},
    }
    for name, files in sweeps.items():
        yield Case(f"sweep/{name}", ("evil_sweep",), {**theirs, **files}, verb="resume")
