"""Launchers and searches from their nodes."""

from __future__ import annotations

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.sweep.definition import arguments, made, target
from assay.sweep.launcher.launcher import Launcher
from assay.sweep.launcher.serial import SerialLauncher
from assay.sweep.search.search import Search

LAUNCHER, SEARCH = "hydra.launcher", "hydra.sweeper"


class Small:
    """Takes a few values."""

    def __init__(self, count: int, name: str = "x", *, given: object = None) -> None:
        if count < 0:
            raise ValueError("count=-1: at least 0 was expected")
        if name == "broken":
            raise KeyError(name)
        self.values = (count, name, given)


def test_hydras_own_name_is_assays_class_in_order() -> None:
    """A node that Hydra's users know means what it says."""
    node = {"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}
    assert target(node, LAUNCHER, Launcher, []) is SerialLauncher


@pytest.mark.parametrize(
    ("key", "base"), [(LAUNCHER, Launcher), (SEARCH, Search)], ids=["launcher", "sweeper"]
)
@pytest.mark.parametrize("name", ["os.system", "assay.module.Module", "subprocess.Popen", ""])
def test_anything_else_is_refused_before_it_is_imported(key: str, base: type, name: str) -> None:
    with pytest.raises(ConfigError, match="is not one of assay's") as error:
        target({"_target_": name}, key, base, [])
    assert error.value.key == f"{key}._target_"
    assert "trusted_packages" in error.value.hint


def test_what_a_class_takes_and_what_is_given() -> None:
    values = arguments({"_target_": "x", "max_batch_size": None, "count": 2})
    assert made(Small, values, LAUNCHER, given=3).values == (2, "x", 3)


@pytest.mark.parametrize(
    ("values", "key", "message"),
    [
        ({"count": "two"}, "hydra.launcher.count", "a whole number was expected, not 'two'"),
        ({"coutn": 2}, "hydra.launcher.coutn", "nothing reads this key; did you mean 'count'"),
        ({"count": 1, "given": 2}, "hydra.launcher.given", "nothing reads this key"),
        ({"count": -1}, "hydra.launcher.count", "at least 0 was expected"),
        ({"count": 1, "name": "broken"}, "hydra.launcher", "Small cannot be made: KeyError"),
    ],
)
def test_a_value_that_does_not_fit(values: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        made(Small, values, LAUNCHER, given=None)
    assert error.value.key == key


def test_keys_that_others_read_are_offered_for_a_misspelt_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'retries'"):
        made(Small, {"count": 1, "retires": 2}, LAUNCHER, others=["retries"])
