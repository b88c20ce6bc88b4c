"""What users see of typical commands is what they saw before; see update.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import typer
from tests.goldens import golden
from tests.goldens.observe import Observed, observe, read_scenarios

from assay.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Callable

SCENARIOS = read_scenarios()
WEIGHTS = golden.read_weights()
SAME_MACHINE = WEIGHTS["machine"] == golden.describe_machine()


def parameters(names: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in names])


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Observed]:
    """What comes of a scenario, which is typed once."""
    done: dict[str, Observed] = {}

    def observe_once(name: str) -> Observed:
        if name not in done:
            folder = tmp_path_factory.mktemp("golden") / "folder"
            folder.mkdir()
            done[name] = observe(SCENARIOS[name], folder)
        return done[name]

    return observe_once


@parameters([*SCENARIOS])
def test_users_see_the_same(name: str, observed: Callable[[str], Observed]) -> None:
    scenario = SCENARIOS[name]
    expected = golden.read_family(scenario.family).get(scenario.name, "")
    golden.check(expected, observed(name).page, name)


@parameters([name for name in SCENARIOS if name in WEIGHTS])
def test_the_weights_are_the_same(name: str, observed: Callable[[str], Observed]) -> None:
    if not SAME_MACHINE:
        pytest.skip(f"the weights were hashed on another machine, {WEIGHTS['machine']}")
    assert observed(name).weights == WEIGHTS[name]


def test_every_verb_is_there() -> None:
    typed = [step for one in SCENARIOS.values() for step in one.steps]
    measuring = {"cache", "convert", "info", "profile", "try", "tune"}  # of this machine, or tested elsewhere
    measuring |= {"new", "add", "schema"}  # they make no run: tests/project
    for verb in set(typer.main.get_group(app).commands) - measuring:
        assert any(step.startswith(f"{verb} ") and "--help" not in step for step in typed)
