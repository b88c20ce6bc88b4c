"""Check the `hydra` node of a config, which may choose a launcher and a searcher, and nothing else."""

from __future__ import annotations

import re
from types import NoneType
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from assay.config.omegaconf_internals import CONTAINERS
from assay.config.tree import follow, split_key
from assay.errors import ConfigError
from assay.paths import CONF_DIR
from assay.quoting import format_override, is_dotted_path
from assay.targets.trust import CONTROL, KEY, is_library, is_within, refuse_untyped
from assay_explain.composition_error import instead_of_plugin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.config.tree import Entry
    from assay.targets.trust import Trust

HYDRAS_OWN = {
    "hydra._internal.core_plugins.basic_launcher.BasicLauncher": "assay_sweep.launcher.serial.SerialLauncher",
    "hydra._internal.core_plugins.basic_sweeper.BasicSweeper": "assay_sweep.search.grid.GridSearch",
}
"""Hydra's own options, called `basic`, and what does the same here."""
SWEEP_PARTS = {"hydra.launcher": "assay_sweep.launcher", "hydra.sweeper": "assay_sweep.search"}
"""Where assay's launchers and sweepers lie; what else lies there is none, and refused before it is called."""
_CAN_BE_CUSTOM = (
    "hydra.launcher._target_",
    "hydra.sweeper._target_",
    "hydra.sweeper.sampler._target_",
)
_SEARCH = re.compile(r"optuna\.(samplers|pruners)\.[A-Z]\w*", re.ASCII)
_NO_LOGGING = {"version": 1, "root": None, "disable_existing_loggers": False}
_NOT_READ: Mapping[str, Any] = {
    "callbacks": {},
    "job.env_set": {},
    "sweep.subdir": None,
    "job_logging": _NO_LOGGING,
    "hydra_logging": _NO_LOGGING,
}
"""What Hydra's own command line would act on, and assay does not."""
_RUNS = {
    "hydra.launcher.setup": "a shell runs these lines",
    "hydra.launcher.additional_parameters": "Slurm runs them",
    "hydra.launcher.address": "this is another machine",
}
"""Keys whose values a config may not choose, and why."""


def check_hydra(node: DictConfig, person: Trust) -> None:
    """Refuse a `hydra` node with other classes, keys without effect, or commands that were not typed."""
    for part, default in _NOT_READ.items():
        if OmegaConf.select(node, part) not in (None, default):
            raise ConfigError(
                "this key has no effect: assay starts jobs and writes logs itself",
                key=f"hydra.{part}",
                hint="leave it out; every run writes its log.txt",
            )
    for part in ("launcher", "sweeper"):
        inner = OmegaConf.select(node, part)
        if not isinstance(inner, DictConfig):
            continue
        is_own = is_within(str(inner.get("_target_")), person.packages)
        for entry in follow(inner, f"hydra.{part}"):
            if entry.name == "_target_":
                _check_target(entry, f"hydra.{part}", person.packages)
            elif part == "launcher" and not isinstance(
                entry.value, (*CONTAINERS, dict, list, NoneType)
            ):
                _check_launcher(entry, is_own, person)


def _check_launcher(entry: Entry, is_own: bool, person: Trust) -> None:
    """Refuse shell lines and addresses that the user has not typed, and lines that break out of a script."""
    key = entry.key
    value = entry.value
    text = str(value)
    top_key = ".".join(split_key(key)[:3])
    if top_key in _RUNS and top_key not in person.keys:  # typed in one piece or in several
        typed = ""
        if "[" in key:
            typed = format_override(top_key, list(map(str, entry.parent)))
        refuse_untyped(key, text, _RUNS[top_key], person, typed)
    if (
        is_own
        and isinstance(value, str)
        and value != "auto"
        and not key.startswith("hydra.launcher.on_")
    ):
        refuse_untyped(key, text, "a custom launcher may run it", person)
    if CONTROL.search(text) and top_key != "hydra.launcher.setup":
        raise ConfigError(f"{text!r} contains a line break or another control character", key=key)


def _check_target(entry: Entry, part: str, packages: Sequence[str]) -> None:
    text = ""
    if isinstance(entry.raw, str):
        text = entry.raw
    if entry.key == f"{part}._target_":
        fine = text in HYDRAS_OWN or is_within(text, [SWEEP_PARTS[part]])
    else:
        fine = entry.raw is None or _SEARCH.fullmatch(text) is not None
    can_be_custom = entry.key in _CAN_BE_CUSTOM and is_dotted_path(text)
    if fine or (can_be_custom and is_within(text, packages)):
        return
    if can_be_custom and not is_library(text):
        hint = f"if it is your own: {KEY}=[{text.partition('.')[0]}], or put that into conf/project.yaml"
        raise ConfigError(
            f"{text!r} is in a package that is not trusted", key=entry.key, hint=hint
        )
    group = entry.key.removesuffix("._target_").replace(".", "/")
    names = sorted(path.stem for path in CONF_DIR.joinpath(group).glob("[!_]*.yaml"))
    hint = instead_of_plugin(text) or (
        f"{group}={' or '.join(names)}" if names else f"~{entry.key}"
    )
    raise ConfigError(
        f"{entry.raw!r} is not a launcher or sweeper of assay", key=entry.key, hint=hint
    )
