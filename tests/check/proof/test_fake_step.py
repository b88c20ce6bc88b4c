"""Two steps on fake tensors: what they find wrong, and what they count."""

from __future__ import annotations

import pytest
from tests.check.own_models import own_models, prove

from assay.errors import ConfigError

__all__ = ["own_models"]


def test_tied_weights_are_one() -> None:
    report = prove("optimizer=adam", model="Tied")
    weights = 4 * 4 + 4 + 4 + 4 * 3 + 3
    assert report.parameters == weights
    assert report.step is not None
    assert report.step.memory.gradients == 4 * weights
    assert report.step.memory.weights == 4 * (weights + 3), "with the class weights of the loss"


def test_a_wrong_type_names_the_layer() -> None:
    with pytest.raises(
        ConfigError, match=r"model: .*layer 'linear', Linear\(.*float64: both must have the same type"
    ):
        prove(model="DoublesInside")


def test_a_pair_of_outputs_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model: .*gives a tuple; a tensor was expected"):
        prove(model="GivesAPair")


def test_a_large_model_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it refused where there is enough; elsewhere it is."""
    words = ("data=synthetic", "model=mlp", "model.hidden=[60000,60000]")
    monkeypatch.setattr("assay.check.fake_step.device_memory", lambda _: 24 << 30)
    with pytest.raises(ConfigError, match=r"^model: a step takes about .* GiB, and this machine has 24 GiB"):
        prove(*words)
    monkeypatch.setattr("assay.check.fake_step.device_memory", lambda _: 70 << 30)
    report = prove(*words)
    assert any("it may not fit" in warning for warning in report.warnings)
    monkeypatch.setattr("assay.check.fake_step.device_memory", lambda _: 1 << 40)
    report = prove(*words)
    assert not report.warnings
    assert report.parameters is not None
    assert report.parameters > 3_000_000_000
    assert report.step is not None
    assert report.step.memory.peak > 50e9
