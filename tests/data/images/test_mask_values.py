"""Which value is which class: given, or found and said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.data.segmentation_folder import ClassValues
from assay.errors import DataError
from assay.task.segmentation import IGNORED


def counts(*values: int) -> Any:
    table = np.zeros((1, 256), np.int32)
    table[0, list(values)] = 5
    return table


@pytest.mark.parametrize(
    ("given", "there", "names", "classes"),
    [
        ({}, [0, 1, 2, 255], ("0", "1", "2"), {0: 0, 2: 2, 255: IGNORED, 3: -1}),
        ({}, [0, 255], ("0", "1"), {0: 0, 255: 1}),
        ({"class_names": ["sky", "sea"]}, [0, 255], ("sky", "sea"), {255: 1}),
        ({"class_names": ["sky", "sea", "sand"]}, [0, 2, 255], ("sky", "sea", "sand"), {1: 1, 255: IGNORED}),
        ({"values": [7, 0]}, [0, 7], ("0", "1"), {7: 0, 0: 1, 255: IGNORED}),
        ({"ignore_value": 0}, [0, 1, 2], (), {}),
        ({"ignore_value": 0, "values": [1, 2]}, [0, 1, 2], ("0", "1"), {0: IGNORED, 1: 0, 2: 1, 255: -1}),
        ({"ignore_value": None}, [0, 1], ("0", "1"), {255: -1}),
        ({}, [0, 128], (), {}),
    ],
)
def test_classes(given: dict[str, Any], there: list[int], names: Any, classes: dict[int, int]) -> None:
    options = {"class_names": None, "values": None, "ignore_value": 255} | given
    if not names:
        with pytest.raises(DataError, match="do not number classes from 0") as caught:
            ClassValues(**options).found(counts(*there))
        assert caught.value.hint.startswith("data.source.values=[")
        return
    found, table, note = ClassValues(**options).found(counts(*there))
    assert found == names
    assert {value: int(table[value]) for value in classes} == classes
    assert bool(note) == (there == [0, 255])


@pytest.mark.parametrize(
    "given",
    [
        {"class_names": ["a"]},
        {"class_names": ["a", "a"]},
        {"values": [0]},
        {"values": [0, 300]},
        {"values": [0, 1.5]},
        {"values": [0, 1], "class_names": ["a", "b", "c"]},
        {"ignore_value": -1},
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|class_names for"):
        ClassValues(**{"class_names": None, "values": None, "ignore_value": 255} | given)
