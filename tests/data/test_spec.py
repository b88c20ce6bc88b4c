from __future__ import annotations

import pytest

from assay.data.spec import Spec


def test_as_config_holds_plain_containers() -> None:
    spec = Spec(task="multiclass", input_shape=(3, 4, 5), num_classes=2, class_names=("a", "b"), mean=(0.5,))
    config = spec.as_config()
    assert (config["input_shape"], config["num_features"], config["class_names"]) == (
        [3, 4, 5],
        60,
        ["a", "b"],
    )
    assert {type(value) for value in config.values()} <= {int, str, list, type(None)}


def test_a_task_that_is_none() -> None:
    with pytest.raises(ValueError, match="task='clustering': one of multiclass, binary"):
        Spec(task="clustering", input_shape=(1,))
