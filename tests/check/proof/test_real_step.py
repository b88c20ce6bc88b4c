"""Steps that fake tensors cannot follow are tried for real."""

from __future__ import annotations

import pytest
from tests.check.own_models import own_models, prove

from assay.errors import ConfigError

__all__ = ["own_models"]


def test_a_model_that_decides_by_values_is_unproven_and_not_refused() -> None:
    report = prove(model="DataDependent")
    assert report.step is None
    assert "depends on the data" in report.unproven
    assert report.parameters == 4 * 3 + 3


def test_a_model_that_fake_tensors_cannot_follow_is_tried_for_real() -> None:
    report = prove(model="ByWayOfNumpy")
    assert report.step is None
    assert "fake tensors cannot follow it" in report.unproven


def test_frozen_weights_are_said_to_be_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"model|optimizer"):
        prove(model="Frozen")
