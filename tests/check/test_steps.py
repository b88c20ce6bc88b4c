"""Steps on fake tensors, and for real where these cannot follow: what they refuse and what they count."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
from omegaconf import OmegaConf, open_dict
from tests.check.jobs import IRIS, prove, prove_model

from assay.check.prove import Prover
from assay.check.step import Memory, batch_sizes, check_capacity
from assay.compose.compose import compose, job_config
from assay.data.batch_order import BatchOrder
from assay.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from assay.check.report import Report

GIB = 1 << 30
SIZES = ("data.batch_size=21", "data.eval_batch_size=30")
"""Five whole batches of 21; 15 samples to validate, 30 to test."""
pytestmark = pytest.mark.usefixtures("project_code")


# -- the step of a job


def test_tied_weights_are_counted_once() -> None:
    report = prove_model("Tied", "optimizer=adam")
    weights = 4 * 4 + 4 + 4 + 4 * 3 + 3
    assert report.parameters == weights
    assert report.step is not None
    assert report.step.memory.gradients == 4 * weights
    assert report.step.memory.weights == 4 * (weights + 3), "with the class weights of the loss"


def test_a_constructor_that_computes_is_run_for_real() -> None:
    report = prove_model("ComputesWhileMade")
    assert report.step is not None
    assert report.parameters == (4 * 2 + 2) + (2 * 3 + 3)


@pytest.mark.parametrize(
    ("model", "arguments", "says"),
    [
        ("DoublesInside", {}, r"layer 'linear', Linear\(.*float64: both must have the same type"),
        ("GivesAPair", {}, "expected a tensor from the model, got a tuple"),
        ("Frozen", {}, "has no trainable parameter"),
        *(
            ("FailsInEvaluation", {"by": by}, r"in evaluation.*no such branch.*check_models\.py")
            for by in ("", "data", "numpy", "lazy")
        ),
        *(
            ("ForOneBatch", {"size": 21, "by": by}, r"with a batch of (15|30) in evaluation")
            for by in ("", "data", "numpy")
        ),
    ],
)
def test_models_that_cannot_be_trained(model: str, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^model: .*{says}"):
        prove_model(model, *SIZES, **arguments)


@pytest.mark.parametrize(
    ("model", "arguments", "says"),
    [
        ("Lazy", {}, "first batch"),
        ("DataDependent", {}, "depends on the data"),
        ("NeedsPositiveValues", {}, "depends on the data"),
        ("ByWayOfNumpy", {}, "fake tensors do not support it"),
        ("ForOneBatch", {"size": 15, "by": "numpy"}, "fake tensors do not support it"),
    ],
)
def test_models_that_are_unproven_and_not_refused(model: str, arguments: dict[str, Any], says: str) -> None:
    report = prove_model(model, "data.batch_size=15", "data.eval_batch_size=15", **arguments)
    assert report.step is None
    assert says in report.unproven


def prove_module(**arguments: Any) -> Report:
    words = ("callbacks.checkpoint=null", "module._target_=check_modules.Own", *SIZES)
    config = job_config(compose([*IRIS[:2], "trusted_packages=[check_modules]", *words]))
    with open_dict(config):
        config.module.update(arguments)
    return Prover().prove(config).report


def test_custom_modules() -> None:
    for fails in ("", "logger", "trainer"):  # what needs its run is not refused
        assert "custom LightningModule" in prove_module(fails=fails).unproven


@pytest.mark.parametrize(
    ("source", "says"), [("custom", "from the data set"), ("arrays", "data.source.dtype=float32")]
)
def test_integers_as_inputs(source: str, says: str, tmp_path: Path) -> None:
    inputs = np.arange(240, dtype=np.uint16).reshape(60, 4)
    np.savez(tmp_path / "a.npz", inputs=inputs, targets=np.arange(60) % 3)
    words = {
        "custom": ("trusted_packages=[check_data]", "data.source.dataset._target_=check_data.Counts"),
        "arrays": (f"data.source.root='{tmp_path}/a.npz'",),
    }
    with pytest.raises(ConfigError) as refused:
        prove("model=linear", f"data={source}", "data.num_workers=0", *words[source])
    assert says in refused.value.hint


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("loss.class_weight=balanced", "CrossEntropy is not known to be a mean over samples"),
        ("loss=ldam callbacks=[drw] callbacks.drw.start_fraction=0.5", "LDAM with DeferredReweighting"),
        ("loss=triplet metrics=retrieval model.num_outputs=8", "Triplet is not known to be a mean"),
        ("data=diabetes loss=mse metrics=regression +loss.reduction=sum", "MSELoss"),
        ("device=ddp_cpu", "one process"),
    ],
)
def test_batches_that_cannot_be_cut(typed: str, says: str) -> None:
    with pytest.raises(ConfigError, match=rf"^trainer\.micro_batch: .*{says}"):
        prove("data=digits", "model=mlp", "trainer.micro_batch=auto", *typed.split())


# -- memory


def test_a_large_model_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("data=synthetic", "model=mlp", "model.hidden=[60000,60000]")
    monkeypatch.setattr("assay.check.step.device_memory", lambda _: 24 * GIB)
    with pytest.raises(ConfigError, match=r"^model: a step takes about .* GiB, and this machine has 24 GiB"):
        prove(*words)
    monkeypatch.setattr("assay.check.step.device_memory", lambda _: 1 << 40)
    report = prove(*words)
    assert report.parameters is not None
    assert report.parameters > 3_000_000_000
    assert report.step is not None
    assert report.step.memory.peak > 50e9


@pytest.mark.parametrize(
    ("gib", "memory", "key", "says"),
    [
        (10, Memory(2 * GIB, 2 * GIB, 0, 4 * GIB), "", ""),
        (0, Memory(GIB << 10, 0, 0, 0), "", ""),  # the device does not say
        (10, Memory(2 * GIB, 2 * GIB, 4 * GIB, 6 * GIB), "", "about 14 GiB, and this machine has 10 GiB"),
        (10, Memory(GIB, GIB, 0, 18 * GIB), "data.batch_size", "this machine has 10 GiB"),
        (10, Memory(5 * GIB, 5 * GIB, 10 * GIB, GIB), "model", "this machine has 10 GiB"),
        (10, Memory(GIB, GIB, 0, 64 * 30 * GIB), "model", "this machine has 10 GiB"),  # no single sample fits
    ],
)
def test_capacity(monkeypatch: pytest.MonkeyPatch, gib: int, memory: Memory, key: str, says: str) -> None:
    monkeypatch.setattr("assay.check.step.device_memory", lambda _: gib * GIB)
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, barebones=False)
    if key:
        with pytest.raises(ConfigError, match=f"^{key}: .*{says}"):
            check_capacity(memory, trainer, 64)
        return
    warned = check_capacity(memory, trainer, 64)
    assert len(warned) == bool(says)
    assert says in "".join(warned)


# -- as torch does it for real


@pytest.mark.parametrize("drop_last", [True, False])
def test_batch_sizes_are_those_of_the_batch_order(monkeypatch: pytest.MonkeyPatch, drop_last: bool) -> None:
    for train, val, size, processes in itertools.product((7, 9, 40, 41), (0, 1, 5, 17), (3, 4, 8), (1, 2, 3)):
        monkeypatch.setattr("assay.check.step.world_size", lambda _, n=processes: n)
        sizes = {"batch_size": size, "eval_batch_size": size, "drop_last": drop_last}
        data = {"_target_": "assay.data.data_module.DataModule", **sizes}
        spec = {"num_train": train, "num_val": val, "num_test": 0}
        found = batch_sizes(OmegaConf.create({"data": data, "spec": spec}))

        def ordered(samples: int, **options: Any) -> set[int]:
            orders = (
                BatchOrder(samples, size, rank=rank, world_size=processes, **options)  # noqa: B023 - used at once
                for rank in range(processes)  # noqa: B023
            )
            return {len(batch) for order in orders for batch in order.batches(0)}

        if drop_last:
            assert not found[True]
        else:
            assert {*found[True], size} == {*ordered(train, even=True), size}
        assert set(found[False]) == (ordered(val) if val else set())


# -- the layer that was at work
