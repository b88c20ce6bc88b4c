"""From command-line overrides to composed jobs, through Hydra's own loader."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import OverrideType
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from assay.compose.recipe import (
    DECIDE,
    RECIPE,
    is_of_task,
    keeps_parts,
    settle_fused,
    settle_network,
    settle_recipe,
    task_defaults,
    task_to_choose,
)
from assay.config.hydra_internals import (
    apply_overrides,
    create_config_search_path,
    note_overrides,
    open_hydra,
    parse_overrides,
    strip_plus,
)
from assay.config.omegaconf_internals import (
    child_node,
    is_untyped,
    raw_value,
    register_resolver,
    thaw,
)
from assay.config.serialize import exact_json, fingerprint_of, to_raw_dict
from assay.config.tree import places, split_key, walk
from assay.config.unread_keys import (
    MODULE_GROUPS,
    OUR_DATA,
    OUR_MODULE,
    TOP,
    check_single_run,
    check_unread_keys,
    interpolated_keys,
    is_read,
)
from assay.errors import ConfigError, first_line
from assay.paths import COMMAND_LINE, CONF_DIR, PROJECT, config_folders
from assay.quoting import command
from assay.rooms import entries
from assay.targets.objects import TARGET, name_of
from assay.targets.trust import (
    KEY,
    Trust,
    check_external_values,
    check_name,
    check_place,
    may_reach_out,
    settle_trust,
    trust_for,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from hydra.core.override_parser.types import Override

    from assay.config.hydra_internals import Hydra
    from assay.config.tree import Entry

PRIMARY = "train"
_CALL = re.compile(r"\$\{[\w.]+:")
_NAME = re.compile(r"\w+(\.\w+)+", re.ASCII)


@contextmanager
def loader(config_dir: Path | None = None) -> Iterator[Hydra]:
    """Hydra over assay's configs, and over the user's own folders after them.

    Hydra keeps its state in a process-wide singleton; whatever was there before is put back at the end, so
    that this works inside another Hydra app and in a notebook.
    """
    if config_dir is not None and not config_dir.is_dir():
        raise ConfigError(
            f"--config-dir {config_dir} is not a folder",
            hint="give a folder that holds config groups",
        )
    register_resolvers()
    before = GlobalHydra.instance().hydra, HydraConfig.instance().cfg
    try:
        GlobalHydra.instance().clear()
        search_path = create_config_search_path(str(CONF_DIR))
        for folder in config_folders(config_dir):
            # Before the schema, which must stay the last.
            origin = PROJECT
            if folder == config_dir:
                origin = COMMAND_LINE
            search_path.prepend(
                origin,
                f"file://{folder.resolve()}",
                anchor=SearchPathQuery(provider="schema"),
            )
        yield open_hydra("assay", search_path)
    finally:
        GlobalHydra.instance().hydra, HydraConfig.instance().cfg = before


def compose_raw(
    hydra: Hydra, overrides: Sequence[str], mode: RunMode = RunMode.RUN
) -> DictConfig:
    """Compose with Hydra alone; nothing is filled in or checked."""
    config: DictConfig = hydra.compose_config(
        config_name=PRIMARY,
        overrides=strip_plus(overrides),
        run_mode=mode,
        with_log_configuration=False,
    )
    return config


def check_replaced(hydra: Hydra, config: DictConfig, overrides: Sequence[str]) -> None:
    """Refuse options of trainer, device and precision that set the same key to different values."""
    typed = {override.lstrip("+~").partition("=")[0] for override in overrides}
    settings: dict[str, tuple[str, Any]] = {}
    implementation: Any = hydra.config_loader
    for group in ("trainer", "device", "precision"):
        option = f"{group}={config.hydra.runtime.choices.get(group)}"
        loaded = implementation.repository.load_config(option.replace("=", "/"))
        if loaded is None or option == "trainer=default":
            continue
        for name in map(str, loaded.config):
            value = child_node(loaded.config, name)
            other, before = settings.setdefault(name, (option, value))
            if before != value and f"trainer.{name}" not in typed:
                raise ConfigError(
                    f"{other} sets {before}, but {option} sets {value}",
                    key=f"trainer.{name}",
                    hint=f"trainer.{name}={before}, or remove it from one of the two files",
                )


@contextmanager
def translate_errors(hydra: Hydra, overrides: Sequence[str]) -> Iterator[None]:
    """Turn what Hydra or OmegaConf raises in the block into one `ConfigError`."""
    try:
        yield
    except (
        HydraException,
        OmegaConfBaseException,
        YAMLError,
        TypeError,
        ValueError,
        OSError,
    ) as error:
        explained = [
            explain(error, overrides, hydra.config_loader)
            for explain in entries("composition_help")
        ]
        raise (explained or [ConfigError(first_line(error))])[0] from error


def complete(
    config: DictConfig,
    hydra_node: DictConfig,
    typed: Sequence[Override],
    trusted: Trust,
    run_dir: Path | None = None,
) -> None:
    """Fill in `run_dir` and what only Hydra can resolve: a job depends neither on Hydra nor the clock."""
    settle_trust(config, trusted)
    settle_custom_parts(config, hydra_node, typed)
    for check_hydra in entries("hydra_node"):
        check_hydra(hydra_node, trusted)
    if "run_dir" in config:
        raise ConfigError(
            "is set by assay", key="run_dir", hint="the run directory is hydra.run.dir=…"
        )
    with open_dict(config):
        if OmegaConf.is_interpolation(config, "name"):
            raw = str(raw_value(child_node(config, "name")))
            config.name = OmegaConf.create({"hydra": hydra_node, "name": raw}).name
        config.run_dir = str(run_dir or hydra_node.run.dir)
    OmegaConf.set_readonly(config, True)  # all of these look at the same places
    check_unread_keys(config, typed)
    check_name(config)
    if run_dir is None:
        check_place("hydra.run.dir", config.run_dir, trusted)
    check_external_values(config, trusted)
    found_places = places(config)
    thaw(config)
    _resolve_calls(found_places)


def settle_custom_parts(
    config: DictConfig, hydra_node: DictConfig, overrides: Sequence[Override]
) -> None:
    """Keep only the own keys of custom parts, and name them by their option or class."""
    typed = [override.key_or_group for override in overrides]
    data, module, model = (
        OmegaConf.select(config, f"{node}._target_") for node in ("data", "module", "model")
    )
    names: dict[str, str] = {}
    chosen = hydra_node.runtime.choices
    with read_write(hydra_node), open_dict(hydra_node), open_dict(config):
        if "data._target_" in typed and data != OUR_DATA:
            _keep_typed_keys(config, "data", typed)
            if _is_class(data):
                names["data"] = name_of(config.data)
        if model == TARGET:
            _keep_typed_keys(config, "model", typed)
            names["model"] = name_of(config.model)
        if _is_class(module) and module != OUR_MODULE:
            names["model"] = chosen.get("module", "default")
            if names["model"] == "default":
                names["model"] = name_of(config.module)
            _drop_unread_parts(config, chosen)
        for group in names.keys() & chosen.keys():
            chosen[group] = names[group]


def _is_class(target: Any) -> bool:
    return isinstance(target, str) and _NAME.fullmatch(target) is not None


def _keep_typed_keys(config: DictConfig, node: str, typed: Sequence[str]) -> None:
    """Remove what the option in whose place a custom class stands says."""
    own = {split_key(key)[1] for key in typed if key.startswith(f"{node}.")}
    for key in {*map(str, config[node])} - own:
        del config[node][key]


def _drop_unread_parts(config: DictConfig, chosen: DictConfig) -> None:
    """Remove the parts of assay's own module of which a custom one reads nothing."""
    entries = list(walk(config))
    unread = list(MODULE_GROUPS)
    for _ in MODULE_GROUPS:  # what is read may read another
        read = interpolated_keys(entries, without=unread)
        unread = [name for name in unread if not is_read(name, read)]
    for name in unread:
        if name in config:
            del config[name]
            chosen[name] = None


def _resolve_calls(entries: Iterable[Entry]) -> None:
    """Replace every `${resolver:…}` by its value: later on, the clock and Hydra's state are others."""
    for entry in entries:
        if entry.is_followed or entry.key.startswith("hydra.") or entry.name == "_target_":
            continue
        if entry.is_interpolation:
            text = str(entry.raw)
            # what asks for the spec waits for the data
            if _CALL.search(text) and "spec." not in text:
                entry.parent[entry.name] = entry.parent[entry.name]


def job_config(config: DictConfig) -> DictConfig:
    """A copy without the `hydra` node, in which `auto` is what it stands for, or refers to the `spec`."""
    job = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    settle_fused(job)
    settle_network(job)
    settle_recipe(job)
    OmegaConf.set_struct(job, True)
    return job


def select_parts(config: DictConfig, kind: Sequence[str], package: str) -> DictConfig:
    """The job or, for `hydra`, Hydra's node, or both for `all`; of it a node alone where one is named."""
    parts = job_config(config)
    if kind == ["hydra"]:
        parts = OmegaConf.masked_copy(config, "hydra")
    elif kind == ["all"]:
        with open_dict(parts):
            parts.hydra = config.hydra
    if not package:
        return parts
    node = OmegaConf.select(parts, package)
    if not isinstance(node, DictConfig):
        raise ConfigError(
            "expected the key of a node", key=package, hint="assay train --cfg shows them all"
        )
    return node


def choices(hydra_node: DictConfig) -> dict[str, Any]:
    """Which option of each group a composed config uses."""
    chosen = hydra_node.runtime.choices.items()
    return {str(group): option for group, option in chosen if not str(group).startswith("hydra/")}


def register_resolvers() -> None:
    """Register `${short_id:}`: six random hexadecimal digits, the same wherever one config uses it."""
    register_resolver("short_id", lambda: secrets.token_hex(3), use_cache=True)


_SAME_FOR_ALL = re.compile(r"\$\{(now:|hydra[.:](runtime|job)\.(choices|name)\b)", re.ASCII)
"""Resolvers whose value no plain override and no number of a job changes."""
_CALL_OR_HYDRA = re.compile(r"\$\{([\w.]+:|hydra\.)", re.ASCII)


@final
class SweepRequested(ConfigError):  # noqa: N818 - it asks for another way
    """A single run was to be composed, and its config asks for a sweep."""


@final
@dataclass(frozen=True)
class Job:
    """A composed job, as plain data."""

    overrides: tuple[str, ...]
    config: dict[str, Any]
    choices: dict[str, Any]
    fingerprint: str
    shared: str
    config_dir: str = ""
    """Where its groups lie beside assay's own; empty for the one of the project."""
    tree: DictConfig | None = None
    """What `view` returns; None for a job of a sweep, which holds too many, and for a typed config."""

    def view(self) -> DictConfig:
        """The job as a config that refuses changes."""
        if self.tree is not None:
            return self.tree
        return OmegaConf.create(self.config, flags={"struct": True, "readonly": True})

    def to_config(self) -> DictConfig:
        """The job as a config to fill in, which refuses unknown keys."""
        config = copy.deepcopy(self.view())
        OmegaConf.set_readonly(config, False)
        return config


@dataclass(frozen=True)
class _Template:
    """A job without the overrides that are mere values."""

    name: str
    composed: DictConfig
    """Not completed yet."""
    text: str
    """JSON of the completed job; empty where its values decide about more than themselves."""
    choices: dict[str, Any]


@final
class JobComposer:
    """Composes one job after another: those of a sweep in a directory, or the one of a run."""

    def __init__(self, hydra: Hydra, trusted: Trust, directory: Path | None = None) -> None:
        self._hydra = hydra
        self._trusted = trusted
        self._directory = directory
        self._templates: dict[tuple[str, ...], _Template] = {}
        self._groups: dict[str, bool] = {}

    def job(self, overrides: Sequence[str], number: int = 0) -> Job:
        """Compose one, as plain data."""
        with translate_errors(self._hydra, overrides):
            parsed, template = self._choose_task(overrides)
            if self._directory is None and is_multirun(template.composed):
                hint = command("train", "-m", *overrides)
                message = "asks for a sweep, but this is a single run"
                raise SweepRequested(message, key="hydra.mode", hint=hint)
            config = _apply_plain_values(template, self._values(parsed))
            chosen = template.choices
            tree = None
            if config is None:
                completed = self._complete(parsed, template, number)
                settled = job_config(completed)
                config = to_raw_dict(settled)
                chosen = choices(completed.hydra)
                if self._directory is None and all(
                    is_untyped(entry.node) for entry in walk(settled)
                ):
                    OmegaConf.set_readonly(settled, True)
                    tree = settled
            else:
                config["run_dir"] = f"{self._directory}/{number}"
        typed = tuple(
            str(one.input_line) for one in parsed[: len(overrides)] if not one.is_hydra_override()
        )
        return Job(typed, config, chosen, fingerprint_of(config), template.name, tree=tree)

    def compose(self, overrides: Sequence[str], number: int = 0) -> DictConfig:
        """Compose one with its `hydra` node."""
        with translate_errors(self._hydra, overrides):
            return self._complete(*self._choose_task(overrides), number)

    def _choose_task(self, overrides: Sequence[str]) -> tuple[list[Override], _Template]:
        """Parse a job's overrides, with those that the task of its data adds, and get its template."""
        overrides = [*overrides, *task_defaults(overrides)]
        parsed, template = self._parse(overrides)
        composed = template.composed
        values = self._values(parsed)
        if any(item.key_or_group.startswith("data.") for item in values):
            composed = copy.deepcopy(composed)
            apply_overrides(
                [item for item in values if not is_of_task(item.key_or_group)], composed
            )
        options = self._hydra.config_loader.get_group_options("task")
        task = task_to_choose(composed, overrides, options, self._trusted)
        if not task:
            return parsed, template
        chosen = self._parse([*overrides, *task])
        if keeps_parts(task, template.choices, chosen[1].choices):
            chosen = self._parse(
                [*overrides, *(word for word in task if not word.startswith("task="))]
            )
        return chosen

    def _parse(self, overrides: Sequence[str]) -> tuple[list[Override], _Template]:
        parsed = parse_overrides(overrides)
        options = [override for override in parsed if not self._is_plain_value(override)]
        key = tuple(str(override.input_line) for override in options)
        if key not in self._templates:
            self._templates[key] = self._template(key, options, overrides)
        return parsed, self._templates[key]

    def _values(self, parsed: Sequence[Override]) -> list[Override]:
        return [override for override in parsed if self._is_plain_value(override)]

    def _is_plain_value(self, override: Override) -> bool:
        """Whether an override leaves the choice of options, and Hydra's own node, alone."""
        key = override.key_or_group
        if key not in self._groups:
            self._groups[key] = bool(self._hydra.config_loader.get_group_options(key))
        first = key.partition(".")[0]
        plain = override.package is None and not override.is_sweep_override()
        return plain and first not in ("hydra", KEY) and not self._groups[key]

    def _template(
        self, key: tuple[str, ...], options: Sequence[Override], typed: Sequence[str]
    ) -> _Template:
        swept = any(option.is_sweep_override() for option in options)
        mode = RunMode.RUN
        if swept:
            mode = RunMode.MULTIRUN
        composed = compose_raw(self._hydra, key, mode)
        if swept and not is_multirun(composed):
            compose_raw(self._hydra, key)  # raises what Hydra says of several values
        name = hashlib.sha256("\n".join(key).encode()).hexdigest()
        check_replaced(self._hydra, composed, typed)
        bare = _Template(name, composed, "", choices(composed.hydra))
        if self._directory is None or not all(
            _SAME_FOR_ALL.match(call) for call in _calls(composed)
        ):
            return bare
        plain = to_raw_dict(job_config(self._complete(options, bare, 0)))
        return replace(bare, text=exact_json(plain))

    def _complete(
        self, parsed: Sequence[Override], template: _Template, number: int
    ) -> DictConfig:
        config: DictConfig = copy.deepcopy(template.composed)
        OmegaConf.clear_cache(config)  # each job has a short id of its own
        apply_overrides(self._values(parsed), config)
        note_overrides(config, parsed)
        if self._directory is not None:
            with open_dict(config.hydra):
                config.hydra.job.num = number
                config.hydra.job.id = str(number)
                config.hydra.sweep.dir = str(self._directory)
        HydraConfig.instance().set_config(config)
        run_dir = None
        if self._directory:
            run_dir = self._directory / str(number)
        complete(config, config.hydra, parsed, self._trusted, run_dir)
        return config


def compose(overrides: Sequence[str] = (), config_dir: Path | None = None) -> DictConfig:
    """Compose one job."""
    with loader(config_dir) as hydra:
        return compose_with(hydra, overrides)


def compose_with(hydra: Hydra, overrides: Sequence[str]) -> DictConfig:
    """Compose with a loader that is already open; see `compose`."""
    return JobComposer(hydra, trust_for(hydra, overrides)).compose(overrides)


def compose_job(overrides: Sequence[str], config_dir: Path | None = None) -> Job:
    """Compose the one job of a run."""
    with loader(config_dir) as hydra:
        job = JobComposer(hydra, trust_for(hydra, overrides)).job(overrides)
        check_single_run(overrides)
    folder = ""
    if config_dir:
        folder = str(config_dir.absolute())
    return replace(job, overrides=tuple(overrides), config_dir=folder)


def is_multirun(config: DictConfig) -> bool:
    """Whether a config asks for a sweep by `hydra.mode: MULTIRUN`; none of assay's own does."""
    return bool(config.hydra.mode == RunMode.MULTIRUN)


def _calls(composed: DictConfig) -> Iterator[str]:
    """Each place in the job's interpolations that asks a resolver or Hydra."""
    for entry in walk(composed):
        if entry.key.partition(".")[0] != "hydra" and entry.is_interpolation:
            text = str(entry.raw)
            yield from (text[match.start() :] for match in _CALL_OR_HYDRA.finditer(text))
            # resolved at once, so what it takes from the job must not change
            if entry.key == "name":
                yield from (text for match in re.finditer(r"\$\{(?!hydra[.:])", text))


def _apply_plain_values(template: _Template, values: Sequence[Override]) -> dict[str, Any] | None:
    """Set plain values in a template's job; None if other values may depend on them."""
    if not template.text:
        return None
    config: dict[str, Any] = json.loads(template.text)
    ours = (config.get("module") or {}).get("_target_") == OUR_MODULE
    for override in values:
        value = override.value()
        parts = split_key(override.key_or_group)
        inner: Any = config
        for part in parts[:-1]:
            if isinstance(inner, dict):
                inner = inner.get(part)
            else:
                inner = None
        if (
            override.type is not OverrideType.CHANGE
            or not isinstance(inner, dict)
            or parts[-1] not in inner
            or isinstance(inner[parts[-1]], dict | list)
            or parts[-1] in ("_target_", "trusted_packages", "name", "sparse")
            or override.key_or_group in DECIDE
            or parts[0] not in TOP
            or not ours  # whether anything reads the value is asked of the whole job
            or not (value is None or type(value) in (bool, int, float, str))
            or (isinstance(value, str) and ("${" in value or value == "???"))
            or (value == "auto" and override.key_or_group in RECIPE)
            or may_reach_out(override.key_or_group, value)
        ):
            return None
        inner[parts[-1]] = value
    return config


def print_info(words: Sequence[str], config_dir: Path | None) -> None:
    """Print what Hydra's `--info` prints of how a config is composed."""
    kinds = [word for word in words if "=" not in word and not word.startswith("~")]
    typed = [word for word in words if word not in kinds]
    kind = "all"
    if kinds:
        kind = kinds[-1]
    root = logging.getLogger()
    handlers = list(root.handlers)  # Hydra sets them, and the level, for a command of its own
    level = root.level
    with loader(config_dir) as hydra:
        trust_for(hydra, typed)
        try:
            with translate_errors(hydra, typed):
                hydra.show_info(kind, PRIMARY, strip_plus(typed))
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
