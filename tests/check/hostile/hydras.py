"""Hostile `hydra` nodes: logging configs, callbacks, launchers, search paths, environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.check.hostile.case import FILE, QUICK, SYSTEM, Case, experiment, yaml
from tests.check.hostile.payloads import CODE, IMPORT_MODULE, MARKER, TOUCH, call

if TYPE_CHECKING:
    from collections.abc import Iterator


def hydra_node() -> Iterator[Case]:
    handler = {"class": "logging.FileHandler", "filename": MARKER}
    logs: dict[str, dict[str, Any]] = {
        "factory": {"handlers": {"x": {"()": "os.mkdir", "path": MARKER}}},
        "formatter": {"formatters": {"x": {"()": "os.mkdir", "path": MARKER}}},
        "filter": {"filters": {"x": {"()": f"{IMPORT_MODULE}.Net"}}},
        "class": {"handlers": {"x": {"class": f"{IMPORT_MODULE}.Net"}}},
        "ext": {"handlers": {"x": {"class": "logging.StreamHandler", "stream": f"ext://{IMPORT_MODULE}.x"}}},
        "cfg": {"mine": {"()": "os.mkdir", "path": MARKER}, "handlers": {"x": "cfg://mine"}},
        "file-outside": {
            "handlers": {"x": {**handler, "filename": f"../{MARKER}"}},
            "root": {"handlers": ["x"]},
        },
        "file-absolute": {"handlers": {"x": {**handler, "filename": f"/tmp/{MARKER}"}}},  # noqa: S108 - never written
        "socket": {"handlers": {"x": {"class": "logging.handlers.SocketHandler", "host": "x", "port": 1}}},
        "attributes": {"handlers": {"x": {"class": "logging.StreamHandler", ".": {"x": 1}}}},
        "interpolated": {"handlers": {"x": {"class": "${evil}"}}},
    }
    for name, node in logs.items():
        for part in ("job_logging", "hydra_logging"):
            tree = {"evil": f"{IMPORT_MODULE}.Net", "hydra": {part: {"version": 1, **node}}}
            sweep = ("-m", "seed=1,2") if part == "job_logging" else ()
            yield experiment(f"hydra/{part}-{name}", tree, *sweep)
    nodes: dict[str, dict[str, Any]] = {
        "callback": {"callbacks": {"evil": SYSTEM}},
        "callback-file": {"callbacks": {"evil": FILE}},
        "callback-import": {"callbacks": {"evil": call(f"{IMPORT_MODULE}.Net")}},
        "callback-interpolated": {"callbacks": "${mine}"},
        "callback-target-interpolated": {"callbacks": {"evil": {"_target_": "${evil}"}}},
        "callback-nested": {
            "callbacks": {"e": {"_target_": "hydra.experimental.callbacks.LogJobReturnCallback", "x": FILE}}
        },
        "launcher": {"launcher": {"_target_": f"{IMPORT_MODULE}.Net"}},
        "launcher-nested": {"launcher": {"evil": FILE}},
        "launcher-plugin": {"launcher": {"_target_": "hydra_plugins_evil.Launcher"}},
        "sweeper": {"sweeper": {"_target_": "os.system"}},
        "sweeper-nested": {"sweeper": {"params": {"a": FILE}}},
        "sweeper-sampler": {
            "sweeper": {"sampler": {"_target_": "optuna.samplers.os.system", "_args_": [TOUCH]}}
        },
        "env-preload": {"job": {"env_set": {"LD_PRELOAD": "evil.so"}}},
        "env-pythonpath": {"job": {"env_set": {"PYTHONPATH": "."}}},
        "env-pythonstartup": {"job": {"env_set": {"PYTHONSTARTUP": "evil.py"}}},
        "env-path": {"job": {"env_set": {"PATH": "."}}},
        "env-git": {"job": {"env_set": {"GIT_SSH_COMMAND": TOUCH}}},
        "env-hydra": {"job": {"env_set": {"HYDRA_INSTANTIATE_ALLOWLIST_OVERRIDE": "os.system"}}},
        "env-compiler": {"job": {"env_set": {"CXX": "./evil"}}},
        "env-torch-home": {"job": {"env_set": {"TORCH_HOME": "."}}},
    }
    for name, tree in nodes.items():
        top = {"mine": {"evil": SYSTEM}, "evil": "os.system"}
        yield experiment(f"hydra/{name}", {**top, "hydra": tree}, "-m", "seed=1,2")
    package = {"evil_configs/__init__.py": CODE, "evil_configs/model/x.yaml": f"# X.\n{yaml(SYSTEM)}\n"}
    for place in (
        "pkg://evil_configs",
        "structured://evil_configs",
        "pkg://evil_configs/model",
        "${oc.env:EVIL}",
    ):
        yield Case(
            f"hydra/searchpath-{place}",
            (*QUICK, f"hydra.searchpath=['{place}']"),
            package,
            environment={"EVIL": "pkg://evil_configs"},
        )
    yield Case(
        "hydra/searchpath-file", (*QUICK, "hydra.searchpath=[file://evil_configs]", "model=x"), package
    )
    yield experiment(
        "hydra/searchpath-in-option", {"hydra": {"searchpath": ["pkg://evil_configs"]}}, files=package
    )
    options = {
        "launcher": f"# @package hydra.launcher\n{yaml(call(f'{IMPORT_MODULE}.Net'))}\n",
        "sweeper": f"# @package hydra.sweeper\n{yaml(call(f'{IMPORT_MODULE}.Net'))}\n",
    }
    for group, text in options.items():
        yield Case(
            f"hydra/option-{group}",
            (*QUICK, "-m", "seed=1,2", f"hydra/{group}=evil"),
            {f"conf/hydra/{group}/evil.yaml": text},
        )
    yield Case(
        "hydra/option-callbacks",
        (*QUICK, "-m", "seed=1,2", "+hydra/callbacks=evil"),
        {"conf/hydra/callbacks/evil.yaml": f"# @package hydra.callbacks.evil\n{yaml(FILE)}\n"},
    )
