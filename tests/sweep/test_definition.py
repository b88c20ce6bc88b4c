"""What the config says of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.analysis.objective import Objective
from assay.check.report import Report
from assay.compose.compose import loader
from assay.errors import ConfigError
from assay.sweep.definition import (
    SweepDefinition,
    read_definition,
    refuse_shared,
    refuse_unlike_losses,
)
from assay.sweep.launcher.local import LocalLauncher
from assay.sweep.launcher.serial import SerialLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hydra._internal.hydra import Hydra

    from assay.compose.job_composer import Job


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with loader(None) as made:
        yield made


def definition(hydra: Hydra, *overrides: str) -> SweepDefinition:
    return read_definition(hydra, ["data=digits", "model=linear", "hydra.sweep.dir=sweep", *overrides], None)


def test_policy_search_and_launcher_come_from_their_nodes(hydra: Hydra) -> None:
    keys = (
        "hydra.launcher.on_failure=retry",
        "hydra.launcher.timeout_min=5",
        "hydra.launcher.jobs_at_once=3",
    )
    sweep = definition(hydra, *keys, "seed=1,2")
    assert (sweep.policy.on_failure, sweep.policy.timeout_min) == ("retry", 5)
    assert (sweep.search.total, sweep.directory) == (2, Path("sweep"))
    launcher = sweep.make_launcher()
    assert isinstance(launcher, LocalLauncher)
    assert launcher.slots == 3
    assert not sweep.is_serial
    serial = definition(hydra, "hydra/launcher=serial")
    assert isinstance(serial.make_launcher(), SerialLauncher)
    assert serial.is_serial


def test_jobs_must_have_the_score_that_is_asked_for(
    hydra: Hydra,
) -> None:
    sweep = definition(hydra, "seed=1,2")
    assert not sweep.needed, "nobody asked for a score"
    asked = ("hydra.sweeper.objective=val/accuracy", "hydra.sweeper.direction=max")
    sweep = definition(hydra, "seed=1,2", *asked)
    assert sweep.objectives == [Objective("val/accuracy", "maximize")]
    assert sweep.needed == {"val/accuracy": "hydra.sweeper.objective"}


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("hydra.launcher.on_failure=explode", "hydra.launcher.on_failure"),
        ("hydra.launcher.max_retries=-1", "hydra.launcher.max_retries"),
        ("hydra.launcher.jobs_at_once=0", "hydra.launcher.jobs_at_once"),
        ("hydra.sweeper.direction=up", "hydra.sweeper.direction"),
        ("+hydra.sweeper.trials=3", "hydra.sweeper.trials"),
    ],
)
def test_a_value_that_its_class_does_not_take_is_refused_by_its_key(
    override: str, key: str, hydra: Hydra
) -> None:
    with pytest.raises(ConfigError) as error:
        definition(hydra, override).make_launcher()
    assert error.value.key == key


def test_jobs_that_would_share_a_directory_are_refused(hydra: Hydra) -> None:
    for subdir, shared in (("'${hydra.job.num}'", False), ("same", True)):
        sweep = definition(hydra, f"hydra.sweep.subdir={subdir}", "seed=1,2")
        jobs: dict[int, Job] = {}
        while proposal := sweep.search.next():
            jobs[len(jobs)] = sweep.composer.job(proposal.overrides, len(jobs))
        if shared:
            with pytest.raises(ConfigError, match="jobs 0 and 1 would both write into"):
                refuse_shared(sweep, jobs)
        else:
            refuse_shared(sweep, jobs)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (("loss.label_smoothing=0,0.1",), "loss.label_smoothing=0, 0.1"),
        (("loss=cross_entropy,focal",), "loss=cross_entropy, focal"),
        (("loss.label_smoothing=0,0.1", "hydra.sweeper.objective=val/accuracy"), ""),
        (("optimizer.lr=1,2", "data.split.val=0.1,0.2"), ""),
        (("data=digits,breast_cancer",), ""),  # whose losses cannot be but different
    ],
)
def test_losses_that_are_not_one_quantity_are_no_objective(
    typed: tuple[str, ...], told: str, hydra: Hydra
) -> None:
    sweep = definition(hydra, *typed)
    jobs: dict[int, Job] = {}
    while proposal := sweep.search.next():
        jobs[len(jobs)] = sweep.composer.job(proposal.overrides, len(jobs))
    reports = {number: Report((), "run", scores=("val/loss", "val/accuracy")) for number in jobs}
    if not told:
        refuse_unlike_losses(sweep, jobs, reports)
        return
    with pytest.raises(ConfigError, match="cannot be compared by val/loss") as error:
        refuse_unlike_losses(sweep, jobs, reports)
    assert told in error.value.message
    assert error.value.hint == "hydra.sweeper.objective=val/accuracy"
