"""The definition of a sweep in its config: launcher, search and objectives."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import msgspec
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, open_dict, read_write

from assay.compose.compose import JobComposer, compose_raw, job_config, translate_errors
from assay.compose.recipe import task_defaults
from assay.config.did_you_mean import did_you_mean
from assay.config.serialize import to_raw_dict
from assay.errors import ConfigError
from assay.rooms import entries, name_source
from assay.targets.annotation import accepts, check_value, resolve_annotation
from assay.targets.resolve import call, custom_class
from assay.targets.trust import Trust, check_place, is_within, trust_for
from assay_analysis.objective import check_scores_exist, read_objectives
from assay_analysis.run import find_unlike_losses, loss_terms
from assay_sweep.hydra_node import HYDRAS_OWN, SWEEP_PARTS
from assay_sweep.launcher.launcher import Launcher
from assay_sweep.search.search import Search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.check.report import Report
    from assay.compose.compose import Job
    from assay.config.hydra_internals import Hydra
    from assay.record.run_record import Outcome
    from assay_analysis.objective import Objective

_AboveZero = Annotated[float, msgspec.Meta(gt=0)]
_UNUSED = ("_target_", "max_batch_size")


def make_part(
    kind: type[Any],
    node: Mapping[str, Any],
    key: str,
    /,
    *,
    ignored: Sequence[str] = (),
    **arguments: Any,
) -> Any:
    """Call a class with the values of a node after checking each, apart from `ignored`."""
    values = {name: value for name, value in node.items() if name not in (*_UNUSED, *ignored)}
    parameters = inspect.signature(kind).parameters
    names = [name for name in parameters if name not in arguments]
    for name, value in values.items():
        full = f"{key}.{name}"
        if name not in names:
            raise ConfigError(
                f"this key has no effect{did_you_mean(name, [*names, *ignored], '; ')}",
                key=full,
                hint=f"available: {', '.join([*names, *ignored])}",
            )
        annotation = resolve_annotation(kind, name, parameters[name].annotation, {})
        if not accepts(annotation, value):
            check_value(full, value, annotation)
    return call(key, kind, **values, **arguments)


def find_class(node: Mapping[str, Any], key: str, base: type, packages: Sequence[str]) -> Any:
    """Find the class that a node names."""
    name = str(node.get("_target_"))
    name = HYDRAS_OWN.get(name, name)
    packages = [*packages, SWEEP_PARTS[key]]
    if not is_within(name, packages):
        raise ConfigError(
            f"{name!r} is neither part of assay nor in a trusted package",
            key=f"{key}._target_",
            hint=f"assay configs {key.replace('.', '/')}",
        )
    return custom_class(f"{key}._target_", name, packages, base)


@final
@dataclass(frozen=True)
class Policy:
    """What to do after a job failed; keys of `hydra.launcher` beside those of the launcher itself."""

    on_failure: Literal["continue", "stop", "retry"] = "continue"
    max_retries: Annotated[int, msgspec.Meta(ge=0)] = 2
    timeout_min: _AboveZero | None = None
    memory_gb: _AboveZero | None = None

    def should_retry(self, outcome: Outcome, failures: int) -> bool:
        """Whether to retry a failed job."""
        return self.on_failure == "retry" and outcome.transient and failures < self.max_retries


_POLICY = tuple(field.name for field in fields(Policy))


@final
@dataclass(frozen=True)
class SweepDefinition:
    """What the config says of a sweep."""

    overrides: list[str]
    config_dir: Path | None
    directory: Path
    launcher: dict[str, Any]
    launcher_class: type[Launcher]
    objectives: list[Objective]
    needed: dict[str, str]
    policy: Policy
    search: Search
    composer: JobComposer
    reuse: bool
    deadline: float = math.inf
    """A time of `time.monotonic` at which it is stopped."""

    def make_launcher(self) -> Launcher:
        """Make the launcher."""
        arguments = {}
        if self.launcher_class.keeps_files:
            arguments = {"sweep_dir": self.directory}
        launcher: Launcher = make_part(
            self.launcher_class, self.launcher, "hydra.launcher", ignored=_POLICY, **arguments
        )
        return launcher

    def check_scores(self, report: Report) -> None:
        """Refuse a job that lacks a requested score, and a direction that contradicts its metric."""
        with name_source(self.overrides, self.config_dir):
            check_scores_exist(report.scores, self.needed)
            for aim in self.objectives:
                aim.check(report.directions, self.objectives)


def read_definition(
    hydra: Hydra,
    overrides: Sequence[str],
    config_dir: Path | None,
    typed: Sequence[str] | None = None,
) -> SweepDefinition:
    """What the config says of a sweep."""
    trusted = trust_for(hydra, overrides if typed is None else typed)
    composed = compose_sweep(hydra, overrides, trusted)
    launcher, sweeper = (to_raw_dict(composed.hydra[name]) for name in ("launcher", "sweeper"))
    directory = Path(str(composed.hydra.sweep.dir))
    reuse = sweeper.get("reuse", True)
    check_value("hydra.sweeper.reuse", reuse, bool)
    has_objective = sweeper.get("objective") is not None
    aims = read_objectives(sweeper, to_raw_dict(job_config(composed)))
    arguments = {"overrides": list(overrides), "config_loader": hydra.config_loader}
    search = _make_search(sweeper, aims, directory, trusted.packages, **arguments)
    policy: Policy = make_part(
        Policy, {name: launcher[name] for name in _POLICY if name in launcher}, "hydra.launcher"
    )
    return SweepDefinition(
        overrides=list(overrides),
        config_dir=config_dir,
        directory=directory,
        launcher=launcher,
        launcher_class=find_class(launcher, "hydra.launcher", Launcher, trusted.packages),
        objectives=aims,
        needed={
            aim.name: "hydra.sweeper.objective" for aim in aims if has_objective or search.learns
        },
        policy=policy,
        search=search,
        composer=JobComposer(hydra, trusted, directory),
        reuse=reuse,
    )


def _make_search(
    node: dict[str, Any],
    aims: Sequence[Objective],
    directory: Path,
    packages: Sequence[str],
    **kwargs: Any,
) -> Search:
    kind = find_class(node, "hydra.sweeper", Search, packages)
    if is_within(sampler := str((node.get("sampler") or {}).get("_target_")), packages):
        import optuna

        # Once it is imported, `build_part` knows it.
        base: Any = optuna.samplers.BaseSampler
        custom_class("hydra.sweeper.sampler._target_", sampler, packages, base)
    ignored = ["reuse"]
    if kind.learns:
        node["objective"] = [aim.name for aim in aims]
        node["direction"] = [aim.direction for aim in aims]
        kwargs["sweep_dir"] = directory
    else:
        ignored += ["objective", "direction"]
    search: Search = make_part(kind, node, "hydra.sweeper", ignored=ignored, **kwargs)
    return search


def check_same_loss(
    sweep: SweepDefinition, jobs: Mapping[int, Job], reports: Mapping[int, Report]
) -> None:
    """Refuse to compare jobs by losses that measure different quantities."""
    name = next((aim.name for aim in sweep.objectives if aim.name.endswith("loss")), "")
    of_data: dict[str, list[tuple[Any, Mapping[str, str]]]] = {}
    for job in jobs.values():
        losses = of_data.setdefault(str(job.choices.get("data")), [])
        config = job.config
        # a search would follow them; a table is ordered by another metric
        if not sweep.search.learns:
            config = config | {"data": config["data"] | {"balance": "none"}}
        losses.append((job.choices.get("loss"), loss_terms(config)))
    differing = next(filter(None, map(find_unlike_losses, of_data.values())), {})
    if not name or not differing:
        return
    scores = next(iter(reports.values())).scores
    others = (
        score for score in scores if score.startswith("val/") and not score.endswith("loss")
    )
    key, values = next(iter(differing.items()))
    raise ConfigError(
        f"jobs cannot be compared by {name}: it is not the same quantity under {key}={', '.join(values)}",
        key="hydra.sweeper.objective",
        hint=f"hydra.sweeper.objective={next(others, 'METRIC')}",
    )


def compose_sweep(hydra: Hydra, overrides: Sequence[str], trusted: Trust) -> DictConfig:
    """A whole sweep: its `hydra` node says which launcher and sweeper it has, and where it is written."""
    with translate_errors(hydra, overrides):
        first = _first_options(hydra, overrides)
        with translate_errors(hydra, first):
            composed = compose_raw(hydra, [*first, *task_defaults(overrides)], RunMode.MULTIRUN)
        for check_hydra in entries("hydra_node"):
            check_hydra(composed.hydra, trusted)
        HydraConfig.instance().set_config(composed)
        directory = str(composed.hydra.sweep.dir)
        check_place("hydra.sweep.dir", directory, trusted)
        with read_write(composed.hydra), open_dict(composed.hydra):
            composed.hydra.sweep.dir = directory  # the clock is asked once
    return composed


def _first_options(hydra: Hydra, overrides: Sequence[str]) -> list[str]:
    """A sweep's overrides with the first of each group's swept options, which Hydra would leave out."""
    loader = hydra.config_loader
    first = []
    for text in overrides:
        (override,) = OverridesParser.create(loader).parse_overrides([text])
        swept = override.is_sweep_override() and loader.get_group_options(override.key_or_group)
        if swept and (option := next(override.sweep_string_iterator(), "")):
            first.append(f"{override.get_key_element()}={option}")
        else:
            first.append(text)
    return first
