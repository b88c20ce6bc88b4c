"""What fits together passes: every pair of options of two groups that are compatible.

One job chooses an option of each group, so it tries some ninety pairs at once; jobs are added until every
compatible pair has been in one.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

import pytest
from tests.check.generated import OPTIONS, named
from tests.check.jobs import PROVER
from tests.suited_losses import SUITED_LOSSES

from assay.check.checker import check_job
from assay.compose.compose import compose_with, job_config, loader
from assay_explain.listing import list_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hydra._internal.hydra import Hydra

Choice = dict[str, str]

# -- what fits together ----------------------------------------------------------------------------

IMAGES = ("synthetic", "mnist", "fashion_mnist", "cifar10", "cifar100", "image_folder", "custom")
DATA: dict[str, tuple[str, bool]] = {
    "digits": ("multiclass", True),
    **dict.fromkeys(("wine", "iris"), ("multiclass", False)),
    "breast_cancer": ("binary", False),
    "diabetes": ("regression", False),
    "arrays": ("multilabel", False),
    **dict.fromkeys(IMAGES, ("multiclass", True)),
    **dict.fromkeys(("table", "table_shards"), ("multiclass", False)),
}
"""The task of a data set, and whether its samples are images."""
ANY_SHAPE = ("linear", "mlp", "table_mlp")
WEIGHTED = ("ldam", "cross_entropy", "focal")
"""Losses with class weights, which deferred re-weighting changes."""
APART = [{tuple(one.split("=")) for one in pair} for pair in OPTIONS["apart"]]
ELSEWHERE = named("elsewhere", "without_targets")
GIVEN = OPTIONS["asked"]
NAMES = {"timm": "test_efficientnet", "torchvision": "resnet18"}
IN_COLOUR = ("synthetic", "cifar10", "cifar100", "image_folder", "custom")
OF_8_PIXELS = ("digits", "image_folder", "custom")
LISTED = ("callbacks", "logger")


def completed(choice: Choice) -> Choice | None:
    """The choice with data, model, loss and metrics that suit it; None where nothing does."""
    if any(pair <= set(choice.items()) for pair in APART):
        return None
    for data, (task, images) in DATA.items():
        if choice.get("data", data) != data:
            continue
        suited = "small_cnn" if images and choice.get("finetune") != "lora" else "mlp"
        if choice.get("callbacks") == "whitening":
            suited = "fast_cnn"
        model = choice.get("model", suited)
        if choice.get("callbacks") == "whitening" and (model != "fast_cnn" or not images):
            continue
        if {("model", model), ("finetune", choice.get("finetune", "none"))} in APART:
            continue
        if not images and (model not in ANY_SHAPE or _needs_images(choice)):
            continue
        if choice.get("data/transform") == "imagenet" and data not in IN_COLOUR:
            continue  # its statistics are those of three channels
        for loss, metrics in SUITED_LOSSES[task].items():
            if choice.get("loss", loss) != loss or choice.get("metrics", metrics) != metrics:
                continue
            if choice.get("callbacks") == "drw" and loss not in WEIGHTED:
                continue
            if loss == "triplet" and choice.get("augment", "none") not in ("none", "flip_crop"):
                continue  # it needs hard classes
            return {**choice, "data": data, "model": model, "loss": loss, "metrics": metrics}
    return None


def _needs_images(choice: Choice) -> bool:
    return choice.get("augment", "none") != "none" or choice.get("data/transform", "none") != "none"


def options() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for option in list_options():
        known = option.group not in ("experiment", "trainer") and not option.group.startswith("hydra")
        if known and (option.group, option.name) not in ELSEWHERE:
            found.setdefault(option.group, []).append(option.name)
    return found


def pairs_of(choice: Choice) -> set[frozenset[tuple[str, str]]]:
    return {frozenset(pair) for pair in itertools.combinations(choice.items(), 2)}


@functools.cache
def jobs() -> list[Choice]:
    """Few jobs that have every compatible pair in one of them."""
    known = options()
    left: dict[frozenset[tuple[str, str]], None] = {}
    for one, other in itertools.combinations(known, 2):
        for pair in itertools.product(known[one], known[other]):
            if completed(dict(zip((one, other), pair, strict=True))) is not None:
                left[frozenset(zip((one, other), pair, strict=True))] = None
    chosen = []
    while left:
        choice: Choice = dict(next(iter(left)))
        for group in known:
            if group not in choice:
                ways = [{**choice, group: name} for name in known[group]]
                fine = [way for way in ways if completed(way) is not None]
                choice = max(fine, key=lambda way: len(pairs_of(way) & left.keys())) if fine else choice
        full = completed(choice)
        assert full is not None
        for pair_of in pairs_of(full):
            left.pop(pair_of, None)
        chosen.append(full)
    return chosen


def overrides(choice: Choice) -> list[str]:
    typed = []
    for group, name in choice.items():
        value = f"[default,{name}]" if group == "callbacks" and name != "default" else name
        value = f"[{name}]" if group in LISTED and not value.startswith("[") else value
        typed.append(f"{group}={value}")
    if choice.get("loss") == "triplet" and "num_outputs" in MODELS_WITH.get(choice["model"], ""):
        typed.append("model.num_outputs=32")
    if choice.get("data/transform") == "crop_flip" and choice["data"] in OF_8_PIXELS:
        typed.append("data.transform.crop_size=8")
    if choice.get("data/transform") == "crop_flip" and choice["data"] in ("mnist", "fashion_mnist"):
        typed.append("data.transform.crop_size=28")  # as they are evaluated
    if choice["model"] == "fast_cnn" and choice["data"] in OF_8_PIXELS:
        typed.append("model.widths=[16,32]")
    if choice["model"] in NAMES:
        typed.append(f"model.name={NAMES[choice['model']]}")
    return [*typed, *GIVEN.get(choice.get("data", ""), "").split()]


MODELS_WITH = dict.fromkeys(("mlp", "table_mlp", "small_cnn"), "num_outputs")


# -- and it does -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hydra(project: Path) -> Iterator[Hydra]:
    """In a folder with a little data of each kind."""
    assert project.is_dir()
    with loader() as opened:
        yield opened


def prove_typed(hydra: Hydra, typed: Sequence[str]) -> None:
    config = job_config(compose_with(hydra, typed))
    try:
        check_job(config)
        report = PROVER.prove(config).report
    except Exception as error:
        raise AssertionError(f"assay check {' '.join(typed)}: {error}") from error
    assert bool(report.unproven) is config.optimizer._target_.endswith("LBFGS"), report.unproven


def test_every_option_is_known_here() -> None:
    assert set(options()["data"]) == set(DATA)
    assert set(options()["loss"]) == {loss for suits in SUITED_LOSSES.values() for loss in suits}
    assert set(options()["metrics"]) == {m for suits in SUITED_LOSSES.values() for m in suits.values()}


@pytest.mark.long
@pytest.mark.parametrize("part", range(40))
def test_compatible_options(hydra: Hydra, part: int) -> None:
    for choice in jobs()[part::40]:
        prove_typed(hydra, overrides(choice))
