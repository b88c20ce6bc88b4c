"""From command-line overrides to a composed config, through Hydra's own loader."""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.compose.composition_error import composition_error
from assay.compose.hydra_node import check_hydra
from assay.compose.recipe import settle_fused, settle_recipe
from assay.compose.task_choice import is_of_task, settle_network, suited, task_to_choose
from assay.config.hydra_internals import create_config_search_path, open_hydra, without_plus
from assay.config.omegaconf_internals import child_node, raw_value
from assay.config.tree import walk
from assay.config.unread_keys import (
    OF_MODULE,
    OUR_DATA,
    OUR_MODULE,
    check_options,
    check_read,
    is_read,
    keys_read,
)
from assay.errors import ConfigError
from assay.paths import CONF_DIR, project_conf
from assay.targets.external_values import (
    check_hydra_outside,
    check_name,
    check_outside,
    check_place,
)
from assay.targets.objects import TARGET, name_of
from assay.targets.trust import (
    Trust,
    check_project,
    check_search_path,
    project_folder,
    settle_trust,
    trust,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from assay.config.hydra_internals import Hydra

PRIMARY = "train"
_CALL = re.compile(r"\$\{[\w.]+:")
_NAME = re.compile(r"\w+(\.\w+)+", re.ASCII)


@contextmanager
def loader(config_dir: Path | None = None) -> Iterator[Hydra]:
    """Hydra over assay's configs, and over the user's own folder after them.

    Hydra keeps its state in a process-wide singleton; whatever was there before is put back at the end, so
    that this works inside another Hydra app and in a notebook.
    """
    own = config_dir or project_conf()
    if own is not None and not own.is_dir():
        raise ConfigError(
            f"--config-dir {own} is not a folder", hint="give a folder that holds config groups"
        )
    register_resolvers()
    before = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    try:
        GlobalHydra.instance().clear()
        version.setbase("1.3")
        search_path = create_config_search_path(str(CONF_DIR))
        if own is not None:
            # Before the schema, which must stay the last.
            search_path.prepend("project", f"file://{own.resolve()}", anchor="schema")
        yield open_hydra("assay", search_path)
    finally:
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = before


def compose(overrides: Sequence[str] = (), config_dir: Path | None = None) -> DictConfig:
    """Compose one job."""
    with loader(config_dir) as hydra:
        return compose_with(hydra, overrides)


def compose_with(hydra: Hydra, overrides: Sequence[str]) -> DictConfig:
    """Compose with a loader that is already open; see `compose`."""
    trusted = trust_for(hydra, overrides)
    with explained(hydra, overrides):
        typed = [*overrides, *suited(overrides)]
        tasks = hydra.config_loader.get_group_options("task")
        try:
            config = compose_raw(hydra, typed)
            task = task_to_choose(config, typed, tasks)
        except HydraException:  # perhaps a value of what the task will choose
            others = [one for one in typed if not is_of_task(one)]
            if len(others) == len(typed):
                raise
            task = task_to_choose(compose_raw(hydra, others), typed, tasks)
            if not task:
                raise
        if task:
            config = compose_raw(hydra, [*typed, *task])
        check_replaced(hydra, config, overrides)
        HydraConfig.instance().set_config(config)
        complete(config, config.hydra, trusted)
    return config


def compose_raw(hydra: Hydra, overrides: Sequence[str], mode: RunMode = RunMode.RUN) -> DictConfig:
    """What Hydra composes; nothing is filled in or judged."""
    config: DictConfig = hydra.compose_config(
        config_name=PRIMARY, overrides=without_plus(overrides), run_mode=mode, with_log_configuration=False
    )
    return config


def check_replaced(hydra: Hydra, config: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse an option whose value an option of another group replaces; three are put into one node."""
    typed = {one.lstrip("+~").partition("=")[0] for one in overrides}
    said: dict[str, tuple[str, Any]] = {}
    implementation: Any = hydra.config_loader
    for group in ("trainer", "device", "precision"):
        option = f"{group}={config.hydra.runtime.choices.get(group)}"
        found = implementation.repository.load_config(option.replace("=", "/"))
        if found is None or option == "trainer=default":
            continue
        values: Any = OmegaConf.to_container(found.config, resolve=False)
        for name, value in values.items():
            other, before = said.setdefault(name, (option, value))
            if before != value and f"trainer.{name}" not in typed:
                raise ConfigError(
                    f"{other} says {before}, {option} {value}",
                    key=f"trainer.{name}",
                    hint=f"trainer.{name}={before}, or take it out of one of the two files",
                )


@contextmanager
def explained(hydra: Hydra, overrides: Sequence[str]) -> Iterator[None]:
    """Turn what Hydra or OmegaConf raises in the block into one `ConfigError`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError, TypeError, ValueError, OSError) as error:
        raise composition_error(error, overrides, hydra.config_loader) from error


def trust_for(hydra: Hydra, overrides: Sequence[str]) -> Trust:
    """Which packages may be imported for a command; asked before anything is composed."""
    trusted = trust(overrides)
    check_project(project_folder(hydra), overrides, trusted)
    check_search_path(overrides, trusted)
    return trusted


def complete(
    config: DictConfig, hydra_node: DictConfig, trusted: Trust, run_dir: str | Path | None = None
) -> None:
    """Fill in `run_dir` and what only Hydra can resolve: a job depends neither on Hydra nor the clock."""
    settle_trust(config, trusted)
    settle_own_parts(config, hydra_node)
    check_hydra(hydra_node, trusted.packages)
    check_hydra_outside(hydra_node, trusted)
    check_options(config)
    check_read(config)
    with open_dict(config):
        if OmegaConf.is_interpolation(config, "name"):
            raw = str(raw_value(child_node(config, "name")))
            config.name = OmegaConf.create({"hydra": hydra_node, "name": raw}).name
        config.run_dir = str(run_dir or hydra_node.run.dir)
        check_name(config)
        if run_dir is None:
            check_place("hydra.run.dir", config.run_dir, trusted)
        check_outside(config, trusted)
        _resolve_calls(config)


def settle_own_parts(config: DictConfig, hydra_node: DictConfig) -> None:
    """Leave custom parts what is theirs alone, and name them by their option or class."""
    words: Any = OmegaConf.to_container(hydra_node.overrides.task, resolve=False)  # they may hold `${…}`
    typed = [str(text).lstrip("+~").partition("=")[0].split(".") for text in words]
    data, module = (OmegaConf.select(config, f"{node}._target_") for node in ("data", "module"))
    own_data = ["data", "_target_"] in typed and data != OUR_DATA
    model = OmegaConf.select(config, "model._target_") == TARGET
    for node in [*(["data"] if own_data else []), *(["model"] if model else [])]:
        kept = {parts[1] for parts in typed if parts[0] == node and len(parts) > 1}
        with open_dict(config):
            for key in [str(key) for key in config[node] if str(key) not in kept]:
                del config[node][key]
    names: dict[str, str] = {}
    if own_data and isinstance(data, str) and _NAME.fullmatch(data):
        names["data"] = name_of(config.data)
    chosen = hydra_node.runtime.choices
    with read_write(hydra_node), open_dict(hydra_node), open_dict(config):
        if isinstance(module, str) and module != OUR_MODULE and _NAME.fullmatch(module):
            option = chosen.get("module", "default")
            names["model"] = name_of(config.module) if option == "default" else option
            entries, unread = list(walk(config)), list(OF_MODULE)
            for _ in OF_MODULE:  # what is read may read another
                read = keys_read(entries, without=unread)
                unread = [name for name in unread if not is_read(name, read)]
            for name in unread:
                if name in config:
                    del config[name]
                    chosen[name] = None
        elif model:
            names["model"] = name_of(config.model)
        for group, name in names.items():
            if group in chosen:
                chosen[group] = name


def implied_overrides(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """What was composed beside what was typed, because of what has to be predicted: `task=binary`."""
    composed: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)  # `${…}` as typed
    return [one for one in composed if one not in overrides]


def _resolve_calls(config: DictConfig) -> None:
    """Replace every `${resolver:…}` by its value: later on, the clock and Hydra's state are others."""
    for entry in list(walk(config)):
        if entry.is_interpolation and not entry.key.startswith("hydra.") and entry.name != "_target_":
            text = str(entry.raw)
            if _CALL.search(text) and "spec." not in text:  # what asks for the spec waits for the data
                entry.parent[entry.name] = entry.parent[entry.name]


def job_config(config: DictConfig) -> DictConfig:
    """A copy without the `hydra` node, in which `auto` is what it stands for, or refers to the `spec`."""
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    settle_fused(job)
    settle_network(job)
    settle_recipe(job)
    OmegaConf.set_struct(job, True)
    return job


def choices(hydra_node: DictConfig) -> dict[str, Any]:
    """Which option of each group a composed config uses."""
    chosen: Any = OmegaConf.to_container(hydra_node.runtime.choices)
    return {str(group): option for group, option in chosen.items() if not str(group).startswith("hydra/")}


def register_resolvers() -> None:
    """Register `${short_id:}`: six random hexadecimal digits, the same wherever one config uses it."""
    OmegaConf.register_new_resolver("short_id", lambda: secrets.token_hex(3), use_cache=True, replace=True)
