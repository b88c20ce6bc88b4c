"""What holds for every task."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.multiclass import type_of_target  # type: ignore[import-untyped]  # scikit-learn ships no types

from assay.compose.listing import list_options
from assay.data.spec import Spec
from assay.errors import DataError
from assay.task.task import LOSS_KINDS
from assay.task.task_of import TASKS

SIZES = {
    "multiclass": 5,
    "binary": 2,
    "multilabel": 4,
    "regression": 3,
    "segmentation": 6,
    "language_modelling": 6,
    "multitask": 2,
}
FORMS = {
    "multiclass": "multiclass",
    "binary": "binary",
    "multilabel": "multilabel-indicator",
    "regression": "continuous-multioutput",
    "language_modelling": "multiclass-multioutput",
    "multitask": "multilabel-indicator",
    "segmentation": "unknown",  # it knows no targets of three dimensions
}
"""As scikit-learn calls them."""

WITH_TARGETS = [name for name, task in TASKS.items() if not task.learns_from_inputs]
"""Of the others, see `test_from_inputs.py`."""
of_targets = pytest.mark.parametrize("name", WITH_TARGETS)
each = pytest.mark.parametrize("name", TASKS)


def names_of(name: str) -> list[str]:
    if TASKS[name].has_heads:
        return ["kind=a", "kind=b", "size"]
    nameless = TASKS[name].has_real_targets or TASKS[name].size_key == "vocab_size"
    return [] if nameless else [f"class {i}" for i in range(SIZES[name])]


@of_targets
def test_fake_targets_are_targets(name: str) -> None:
    task, size = TASKS[name], SIZES[name]
    targets = task.fake_targets(60, size)
    assert type_of_target(targets.numpy()) == FORMS[name]
    task.check("train", targets, names_of(name))
    task.check_subsets({"train": targets, "val": targets[:7], "test": targets[:0]}, names_of(name))
    assert torch.equal(task.as_targets(targets), targets)
    assert torch.equal(task.batch_targets(targets, torch.float32), targets)
    assert torch.equal(task.hard_targets(targets), targets)


@of_targets
def test_sizes_are_those_of_a_spec(name: str) -> None:
    task, size = TASKS[name], SIZES[name]
    tokens: dict[str, Any] = {"vocab_size": size} if task.size_key == "vocab_size" else {}
    spec = Spec(
        task.name, (2,), **tokens, **task.sizes(task.fake_targets(60, size), names_of(name))
    ).as_config()
    spec["class_names"] = names_of(name)
    assert spec[task.size_key] == size
    assert task.num_outputs(spec) == (3 if task.has_heads else size)
    assert task.in_words(spec).startswith(f"{size} ")
    assert len(spec["class_counts"]) == (0 if task.has_heads else len(names_of(name)))


@of_targets
def test_only_the_own_form_passes(name: str) -> None:
    every = {other: TASKS[other].fake_targets(60, SIZES[other]) for other in WITH_TARGETS}
    forms = {other: (targets.ndim, targets.is_floating_point()) for other, targets in every.items()}
    for other, targets in every.items():
        if forms[other] == forms[name]:
            continue
        if name == "multilabel" and other in ("regression", "multitask"):
            continue  # labels may come as floats from 0 to 1
        with pytest.raises(DataError, match=f"a {name} task has") as caught:
            TASKS[name].check("val", targets, names_of(name))
        assert "the val subset's targets have shape" in caught.value.message


@each
def test_what_suits_it_can_be_chosen(name: str) -> None:
    for choice in TASKS[name].suits.split():
        group, option = choice.split("=")
        assert option in [one.name for one in list_options(group)]


@each
def test_names_and_kinds(name: str) -> None:
    assert TASKS[name].loss_kinds <= LOSS_KINDS


@each
def test_a_data_set_without_samples_has_targets(name: str) -> None:
    assert len(TASKS[name].as_targets(torch.from_numpy(np.zeros((0, 2), np.float32)))) == 0
