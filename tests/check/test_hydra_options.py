"""What a sweep answers to a broken value of every argument of every launcher and sweeper, before any job."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from omegaconf import DictConfig, OmegaConf
from tests.check.generated import as_typed, values
from tests.check.test_generated import fault_of

from assay.compose.compose import compose_sweep, loader
from assay.compose.listing import list_options
from assay.config.tree import walk
from assay.errors import AssayError, ConfigError
from assay.sweep.definition import read_definition
from assay.targets.trust import trust_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hydra._internal.hydra import Hydra

GROUPS = ("hydra/launcher", "hydra/sweeper", "hydra/sweeper/sampler", "hydra/sweeper/pruner")
SWEEP = ("data=iris", "model=linear", "device=cpu", "seed=1,2")
OPTIONS = [
    f"{one.group}={one.name}"
    for one in list_options()
    if one.group in GROUPS and not one.name.startswith("_") and one.name != "ray"  # an extra
]
ALWAYS = 20
"""One in so many cases is looked at in every run of the tests."""


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with loader() as made:
        yield made


def made(hydra: Hydra, words: list[str]) -> None:
    """All of a sweep that is made before its jobs are checked."""
    sweep = read_definition(hydra, words, None)
    sweep.make_launcher()
    if sweep.search.learns:
        next(iter(sweep.search.samples()))
    else:
        sweep.search.next()


def base(option: str) -> list[str]:
    """A sweep that the option is part of, with something to search for those that search."""
    if "sweeper" not in option or option.endswith("sweeper=grid"):
        return [*SWEEP, option]
    optuna = ["hydra/sweeper=optuna"] if option.count("/") > 1 else []
    return [*SWEEP[:-1], "optimizer.lr=interval(1e-4,1e-1)", *optuna, option]


def cases(hydra: Hydra, option: str) -> Iterator[tuple[str, str]]:
    """Key and override of each change of one place."""
    words = base(option)
    at = option.partition("=")[0].replace("/", ".")
    part = OmegaConf.select(compose_sweep(hydra, words, trust_for(hydra, words)), at)
    assert isinstance(part, DictConfig)
    yield at, f"+{at}.no_such_argument=1"
    for entry in walk(part, at):
        inside = option.count("/") == 1 and entry.key.startswith((f"{at}.sampler", f"{at}.pruner"))
        if inside or entry.name == "_target_" or not isinstance(entry.parent, DictConfig):
            continue
        present = OmegaConf.to_container(entry.node) if entry.is_container else entry.node._value()
        for _, value in values(present):
            yield entry.key, f"{entry.key}={as_typed(value)}"


def drawn(change: str, of: int) -> bool:
    return int(hashlib.sha256(change.encode()).hexdigest(), 16) % of == 0


@pytest.mark.always(
    "hydra/launcher=local-True",
    "hydra/launcher=slurm-True",
    "hydra/sweeper=optuna-True",
    "hydra/sweeper/pruner=hyperband-True",
)
@pytest.mark.filterwarnings("ignore:.*has been deprecated:FutureWarning")  # what Optuna is to drop
@pytest.mark.parametrize("always", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("option", OPTIONS)
def test_it_is_made_or_refused_by_its_key(
    hydra: Hydra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, *, always: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("submitit.SlurmExecutor.affinity", lambda *_: 2)  # as if there were one
    found = []
    for key, change in cases(hydra, option):
        if always and not drawn(change, ALWAYS):
            continue
        try:
            made(hydra, [*base(option), change])
        except AssayError as error:
            found += [f"{change}: {wrong}"] if (wrong := fault_of(error, key)) else []
    assert not found
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "change",
    [
        *("local.gpus=-1", "local.gpus=[0,0]", "local.threads_per_job=1000000"),
        *("slurm.threads_per_job=1000000", "slurm.max_num_timeout=-1"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(
    hydra: Hydra, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("submitit.SlurmExecutor.affinity", lambda *_: 2)  # as if there were one
    launcher, _, typed = change.partition(".")
    with pytest.raises(ConfigError, match=rf"^hydra\.launcher\.{typed.partition('=')[0]}: ") as refused:
        made(hydra, [*SWEEP, f"hydra/launcher={launcher}", f"hydra.launcher.{typed}"])
    assert refused.value.hint
