"""Composing the jobs of a sweep: those that choose the same options share nearly all of the work."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from assay.compose.compose import (
    check_replaced,
    choices,
    complete,
    compose_raw,
    compose_with,
    explained,
    job_config,
    loader,
)
from assay.compose.hydra_node import check_hydra
from assay.compose.recipe import DECIDE, RECIPE
from assay.compose.task_choice import DECIDE as DECIDE_NETWORK
from assay.compose.task_choice import is_of_task, suited, task_to_choose
from assay.config.hydra_internals import apply_overrides, get_overrides_dirname
from assay.config.serialize import fingerprint_of, written
from assay.config.tree import split, walk
from assay.config.unread_keys import OUR_MODULE, TOP, check_single
from assay.targets.external_values import check_hydra_outside, check_place, may_reach_out
from assay.targets.trust import KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hydra.core.override_parser.types import Override

    from assay.config.hydra_internals import Hydra
    from assay.targets.trust import Trust

_SAME_FOR_ALL = re.compile(r"\$\{(now:|hydra[.:](runtime|job)\.(choices|name)\b)", re.ASCII)
"""Resolvers whose value no plain override and no number of a job changes."""
_CALL_OR_HYDRA = re.compile(r"\$\{([\w.]+:|hydra\.)", re.ASCII)


@final
@dataclass(frozen=True)
class Job:
    """A composed job, as plain data."""

    overrides: tuple[str, ...]
    config: dict[str, Any]
    choices: dict[str, Any]
    fingerprint: str
    shared: str

    def to_config(self) -> DictConfig:
        """The same to build from; it refuses keys that are not there."""
        config: DictConfig = OmegaConf.create(self.config)
        OmegaConf.set_struct(config, True)
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


@dataclass(frozen=True)
class _Request:
    """A job that is asked for: what it is made from, all its overrides, and those that are mere values."""

    template: _Template
    parsed: Sequence[Override]
    values: Sequence[Override]


@final
class JobComposer:
    """Composes one job after another."""

    def __init__(self, hydra: Hydra, trusted: Trust, directory: Path) -> None:
        self._hydra, self._trusted, self._directory = hydra, trusted, directory
        self._templates: dict[tuple[str, ...], _Template] = {}
        self._parsed: dict[str, tuple[Override, bool]] = {}
        self._parser = OverridesParser.create()
        self._groups: dict[str, bool] = {}

    def job(self, overrides: Sequence[str], number: int) -> Job:
        """Compose one, as plain data."""
        with explained(self._hydra, overrides):
            request = self._with_task(overrides)
            config = _with_values(request.template, request.values)
            chosen = request.template.choices
            if config is None:
                completed = self._completed(request, number)
                config, chosen = written(job_config(completed)), choices(completed.hydra)
            else:
                config["run_dir"] = str(self._directory / str(number))
        typed = request.parsed[: len(overrides)]
        own = tuple(str(one.input_line) for one in typed if not one.is_hydra_override())
        return Job(own, config, chosen, fingerprint_of(config), request.template.name)

    def composed(self, overrides: Sequence[str], number: int) -> DictConfig:
        """Compose one with its `hydra` node, as `assay.compose.compose.compose` does."""
        with explained(self._hydra, overrides):
            return self._completed(self._with_task(overrides), number)

    def _with_task(self, overrides: Sequence[str]) -> _Request:
        """A job, with the loss and metrics of what its data has to be predicted."""
        overrides = [*overrides, *suited(overrides)]
        request = self._request(overrides)
        composed = request.template.composed
        if request.values and OmegaConf.select(composed, "data.source.task") is not None:
            composed = copy.deepcopy(composed)
            apply_overrides([one for one in request.values if not is_of_task(one.key_or_group)], composed)
        options = self._hydra.config_loader.get_group_options("task")
        task = task_to_choose(composed, overrides, options)
        return self._request([*overrides, *task]) if task else request

    def _request(self, overrides: Sequence[str]) -> _Request:
        parsed = [self._parse(text) for text in overrides]
        options = [one for one, is_value in parsed if not is_value]
        key = tuple(str(one.input_line) for one in options)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = self._template(key, options, overrides)
        return _Request(template, [one for one, _ in parsed], [one for one, is_value in parsed if is_value])

    def _parse(self, text: str) -> tuple[Override, bool]:
        known = self._parsed.get(text)
        if known is None:
            (override,) = self._parser.parse_overrides([text])
            known = self._parsed[text] = override, self._is_plain_value(override)
        return known

    def _is_plain_value(self, override: Override) -> bool:
        """Whether an override leaves the choice of options, and Hydra's own node, alone."""
        key = override.key_or_group
        if key not in self._groups:
            self._groups[key] = bool(self._hydra.config_loader.get_group_options(key))
        first = key.partition(".")[0]
        return override.package is None and first not in ("hydra", KEY) and not self._groups[key]

    def _template(self, key: tuple[str, ...], options: Sequence[Override], typed: Sequence[str]) -> _Template:
        composed = compose_raw(self._hydra, key)
        name = hashlib.sha256("\n".join(key).encode()).hexdigest()
        check_replaced(self._hydra, composed, typed)
        bare = _Template(name, composed, "", choices(composed.hydra))
        if not all(_SAME_FOR_ALL.match(call) for call in _calls(composed)):
            return bare
        plain = written(job_config(self._completed(_Request(bare, options, ()), 0)))
        text = json.dumps(plain)
        return replace(bare, text=text) if json.loads(text) == plain else bare

    def _completed(self, request: _Request, number: int) -> DictConfig:
        config: DictConfig = copy.deepcopy(request.template.composed)
        OmegaConf.clear_cache(config)  # each job has a short id of its own
        apply_overrides(request.values, config)
        _note_overrides(config, request.parsed)
        with open_dict(config.hydra):
            config.hydra.job.num, config.hydra.job.id = number, str(number)
            config.hydra.sweep.dir = str(self._directory)
        HydraConfig.instance().set_config(config)
        complete(config, config.hydra, self._trusted, self._directory / str(number))
        return config


def compose_job(overrides: Sequence[str], config_dir: Path | None = None) -> Job:
    """Compose the one job of a run."""
    with loader(config_dir) as hydra:
        composed = compose_with(hydra, overrides)
        check_single(overrides)
    config = written(job_config(composed))
    return Job(tuple(overrides), config, choices(composed.hydra), fingerprint_of(config), shared="")


def compose_whole(hydra: Hydra, overrides: Sequence[str], trusted: Trust) -> DictConfig:
    """A whole sweep: its `hydra` node says which launcher and sweeper it has, and where it is written."""
    with explained(hydra, overrides):
        composed = compose_raw(hydra, [*overrides, *suited(overrides)], RunMode.MULTIRUN)
        check_hydra(composed.hydra, trusted.packages)
        check_hydra_outside(composed.hydra, trusted)
        HydraConfig.instance().set_config(composed)
        directory = str(composed.hydra.sweep.dir)
        check_place("hydra.sweep.dir", directory, trusted)
        with read_write(composed.hydra), open_dict(composed.hydra):
            composed.hydra.sweep.dir = directory  # the clock is asked once
    return composed


def _note_overrides(config: DictConfig, parsed: Sequence[Override]) -> None:
    """What Hydra writes about the overrides while it composes."""
    job = config.hydra.job.config.override_dirname
    own = [one for one in parsed if not one.is_hydra_override()]
    config.hydra.overrides.task = [one.input_line for one in own]
    config.hydra.job.override_dirname = get_overrides_dirname(
        overrides=own, kv_sep=job.kv_sep, item_sep=job.item_sep, exclude_keys=job.exclude_keys
    )


def _calls(composed: DictConfig) -> Iterator[str]:
    """Each place in the job's interpolations that asks a resolver or Hydra."""
    for entry in walk(composed):
        if entry.key.partition(".")[0] != "hydra" and entry.is_interpolation:
            text = str(entry.raw)
            yield from (text[found.start() :] for found in _CALL_OR_HYDRA.finditer(text))
            if entry.key == "name":  # resolved at once, so what it takes from the job must not change
                yield from (text for found in re.finditer(r"\$\{(?!hydra[.:])", text))


def _with_values(template: _Template, values: Sequence[Override]) -> dict[str, Any] | None:
    """The job where its values only take the place of others; None where more may follow from them."""
    if not template.text:
        return None
    config: dict[str, Any] = json.loads(template.text)
    ours = config["module"].get("_target_") == OUR_MODULE
    for override in values:
        value = override.value()
        parts = split(override.key_or_group)
        inner: Any = config
        for part in parts[:-1]:
            inner = inner.get(part) if isinstance(inner, dict) else None
        if (
            override.type is not OverrideType.CHANGE
            or not isinstance(inner, dict)
            or parts[-1] not in inner
            or isinstance(inner[parts[-1]], dict | list)
            or parts[-1] in ("_target_", "trusted_packages", "name", "sparse")
            or override.key_or_group in (*DECIDE, *DECIDE_NETWORK)
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
