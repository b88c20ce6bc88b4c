"""Which sampler proposes the n-th trial."""

from __future__ import annotations

import itertools
from typing import Any

import optuna
import pytest

from assay.errors import ConfigError
from assay.sweep.search.space import Choice, Numbers, Space
from assay.sweep.search.study import Samplers, distribution

GRID = {"_target_": "optuna.samplers.GridSampler"}
RANDOM = {"_target_": "optuna.samplers.RandomSampler"}
SPACE = Space((Choice("optimizer", ("sgd", "adamw")), Numbers("width", 8, 24, 8, integer=True), "seed=1"))


def asked(samplers: Samplers, space: Space, indices: range) -> list[dict[str, Any]]:
    """What the sampler of each index proposes in a study of its own."""
    found = []
    for index in indices:
        study = optuna.create_study(sampler=samplers.sampler(index))
        found.append(study.ask({one.key: distribution(one) for one in space.dimensions}).params)
    return found


def test_a_grid_has_each_point_once_in_an_order_of_the_seed() -> None:
    samplers = Samplers(GRID, SPACE, 3, constrained=False)
    assert samplers.most == 6
    points = [tuple(point.values()) for point in asked(samplers, SPACE, range(6))]
    assert sorted(points) == sorted(itertools.product(("sgd", "adamw"), (8, 16, 24)))
    again = asked(Samplers(GRID, SPACE, 3, constrained=False), SPACE, range(6))
    assert [tuple(point.values()) for point in again] == points
    other = asked(Samplers(GRID, SPACE, 4, constrained=False), SPACE, range(6))
    assert [tuple(point.values()) for point in other] != points


def test_a_trial_draws_what_its_number_says_and_not_what_its_place_says() -> None:
    """A study that is resumed makes its sampler anew."""
    whole = asked(Samplers(RANDOM, SPACE, 1, constrained=False), SPACE, range(12))
    later = asked(Samplers(RANDOM, SPACE, 1, constrained=False), SPACE, range(6, 12))
    assert whole[6:] == later
    assert len({tuple(point.values()) for point in whole}) > 1


def test_without_a_seed_two_searches_differ() -> None:
    space = Space((Numbers("lr", 1e-5, 1.0, log=True),))
    one, other = (asked(Samplers(RANDOM, space, None, constrained=False), space, range(1)) for _ in range(2))
    assert one != other


def test_a_grid_of_any_number_and_a_grid_without_an_end_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot list every number") as error:
        Samplers(GRID, Space((Numbers("lr", 0.1, 1.0),)), 1, constrained=False)
    assert error.value.key == "lr"
    large = Space(tuple(Numbers(f"x{n}", 0, 999, integer=True) for n in range(3)))
    with pytest.raises(ConfigError, match="points"):
        Samplers(GRID, large, 1, constrained=False)


def test_what_a_sampler_does_not_take_is_said_with_its_key() -> None:
    with pytest.raises(ConfigError, match="takes no 'startup'") as error:
        Samplers({**RANDOM, "startup": 3}, SPACE, 1, constrained=False)
    assert error.value.key == "hydra.sweeper.sampler"
