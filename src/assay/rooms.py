"""The rooms beside the core, and the entries by which they, and packages of others, add to it.

The core imports no room. It asks for an entry by its kind, and does without what is not installed.
"""

from __future__ import annotations

import functools
import sys
from contextlib import contextmanager
from importlib.metadata import entry_points
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import ConfigError, describe_error
from assay.terminal import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Kind = Literal[
    "verbs",
    "after_test",
    "callbacks",
    "completion",
    "composition_help",
    "draw",
    "ensemble",
    "error_help",
    "hydra_node",
    "multirun",
    "predictions",
    "processes",
    "prove",
    "reuse",
    "shards",
    "world",
]
"""What is added; `docs/plugins.md` says what each kind is that a package of others may add."""

BUILT_IN: dict[Kind, tuple[str, ...]] = {
    "verbs": (
        "assay_prove.verbs:VERBS",
        "assay_report.verbs:VERBS",
        "assay_explain.verbs:VERBS",
        "assay_lab.verbs:VERBS",
        "assay_serve.verbs:VERBS",
        "assay_project.verbs:VERBS",
    ),
    "after_test": (
        "assay_serve.threshold:choose_threshold",
        "assay_lab.baseline:score_baseline",
        "assay_lab.importances:measure_importances",
        "assay_serve.kept_predictions:warn_of_useless_model",
        "assay_serve.kept_predictions:log_results",
    ),
    "callbacks": ("assay_sweep.pruning:make_pruning",),
    "completion": ("assay_explain.listing:shell_completion",),
    "composition_help": ("assay_explain.composition_error:composition_error",),
    "draw": ("assay_report.draw:to_png",),
    "ensemble": ("assay_serve.ensemble:read",),
    "error_help": ("assay_explain.origin:locate",),
    "hydra_node": ("assay_sweep.hydra_node:check_hydra",),
    "multirun": ("assay_sweep.multirun:",),
    "predictions": ("assay_serve.kept_predictions:",),
    "prove": ("assay_prove.prove:Prover",),
    "processes": ("assay_cluster.processes:",),
    "reuse": ("assay_sweep.reuse:offer",),
    "shards": ("assay_cluster.shards:",),
    "world": ("assay_cluster.world:take_world",),
}
"""A module ends with a colon: without one, what fails in it would be told as a missing attribute."""
ROOMS = (
    "assay_analysis",
    "assay_cluster",
    "assay_explain",
    "assay_lab",
    "assay_project",
    "assay_prove",
    "assay_report",
    "assay_serve",
    "assay_sweep",
)
"""Packages of the built-in rooms."""


@functools.cache
def entries(kind: Kind) -> list[Any]:
    """Every object of a kind: of the installed rooms, then of the entry points `assay.KIND`.

    A room that needs one which is not installed counts as not installed.
    """
    found = []
    for name in BUILT_IN[kind]:
        try:
            found.append(resolve_name(name))
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] not in ROOMS:
                raise
    for point in _entry_points().select(group=f"assay.{kind}"):
        try:
            found.append(point.load())
        except Exception as error:  # whatever importing the code of others raises
            who = f"{point.dist.name} {point.dist.version} adds no {point.group}"
            sys.stderr.write(printable(f"warning: {who}: {describe_error(error)}\n"))
    return found


@functools.cache
def _entry_points() -> Any:
    """Those of all installed packages, whose files are looked through once for every kind."""
    return entry_points()


def entry(kind: Kind, key: str, what: str) -> Any:
    """The last object of a kind.

    Raises:
        ConfigError: There is none; `what` needs it.
    """
    found = entries(kind)
    if not found:
        room = BUILT_IN[kind][0].partition(".")[0]
        raise ConfigError(
            f"{what} needs {room}, which is not installed", key=key, hint="pip install assay"
        )
    return found[-1]


@contextmanager
def name_source(overrides: Sequence[str], config_dir: Path | None = None) -> Iterator[None]:
    """Add to each `ConfigError` that leaves this block what rooms know of it, such as its file."""
    try:
        yield
    except ConfigError as error:
        for add_help in entries("error_help"):
            add_help(error, overrides, config_dir)
        raise
