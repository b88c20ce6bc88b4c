"""Every YAML under conf/ composes, says what it is, takes what it is given, and mirrors src/ and tests/."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import pytest

from assay.check.signature import check_signatures
from assay.compose.compose import PRIMARY, compose_with, job_config, loader
from assay.paths import CONF_DIR
from assay_explain.listing import Option, list_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hydra._internal.hydra import Hydra

OPTIONS = list_options()
LISTED = ("callbacks", "logger")  # groups of which several options add up
NEEDS = {
    "digits_distillation": ["augment.model.run=somewhere"],
    "custom": ["data.source.dataset._target_=torch.utils.data.TensorDataset"],
}
WITHIN = {"hydra/sweeper/sampler": "hydra/sweeper=optuna", "hydra/sweeper/pruner": "hydra/sweeper=optuna"}
"""Groups that are there only once another option was chosen."""


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with loader() as opened:
        yield opened


@functools.cache
def groups_chosen_from(hydra: Hydra) -> frozenset[str]:
    return frozenset(str(group) for group in compose_with(hydra, []).hydra.runtime.choices)


def test_every_file_is_an_option_or_a_part_of_one() -> None:
    parts = list(CONF_DIR.rglob("_*.yaml"))
    files = list(CONF_DIR.rglob("*.yaml"))
    assert CONF_DIR / f"{PRIMARY}.yaml" in files
    whole = [path for path in files if path.parent == CONF_DIR]  # train.yaml, and what it takes for granted
    assert len(OPTIONS) + len(parts) + len(whole) == len(files), "a YAML that nobody looks at"
    assert not list(CONF_DIR.rglob("*.yml"))


ALONE = [
    option
    for option in OPTIONS
    if option.group in ("experiment", "debug", *WITHIN) or option.group.startswith("hydra")
]
"""Options that choose those of other groups: each is composed by itself."""


def together() -> list[list[Option]]:
    """All others: an option of each group in one job, until every option has been in one."""
    groups: dict[str, list[Option]] = {}
    for option in OPTIONS:
        if option not in ALONE:
            groups.setdefault(option.group, []).append(option)
    return [[*filter(None, row)] for row in itertools.zip_longest(*groups.values())]


def fits(hydra: Hydra, options: list[Option]) -> None:
    """Compose a job with some options, and judge what it gives to what it names."""
    typed = []
    for option in options:
        typed += NEEDS.get(option.name, [])
        if option.group in LISTED:
            typed.append(f"{option.group}=[{option.name}]")
        else:
            within = [WITHIN[option.group]] if option.group in WITHIN else []
            plus = "" if within or option.group in groups_chosen_from(hydra) else "+"
            typed += [*within, f"{plus}{option.group}={option.name}"]
    config = compose_with(hydra, typed)
    for option in options:
        if option.group in LISTED:
            assert len(config[option.group])
        else:
            assert config.hydra.runtime.choices[option.group] == option.name
    check_signatures(job_config(config))


@pytest.mark.always
@pytest.mark.parametrize("option", ALONE, ids=lambda option: f"{option.group}/{option.name}")
def test_composes_and_fits_what_it_names(option: Option, hydra: Hydra) -> None:
    fits(hydra, [option])


@pytest.mark.parametrize(
    "options", together(), ids=lambda options: ",".join(one.name for one in options)[:60]
)
def test_options_of_several_groups_compose_and_fit_what_they_name(
    options: list[Option], hydra: Hydra
) -> None:
    fits(hydra, options)
