"""What a check proves of a job, and what it admits it cannot."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from omegaconf import open_dict
from tests.check.own_models import own_models, prove

from assay.check.fake_step import take_step
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.errors import AssayError, ConfigError
from assay.sweep.session import check as check_sweep

if TYPE_CHECKING:
    from assay.check.report import Report

__all__ = ["own_models"]

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "check_prediction.py"


def test_nothing_random_is_drawn_and_nothing_is_written(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    prove("data=digits", "augment=mixup", f"hydra.run.dir={tmp_path}/run")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not list(tmp_path.iterdir())


def test_a_model_that_takes_its_shape_from_the_batch_is_unproven() -> None:
    report = prove(model="Lazy", num_outputs="${spec.num_outputs}")
    assert report.parameters is None
    assert "first batch" in report.unproven


def test_outputs_that_would_be_broadcast_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"model\.num_outputs: gives \[2\] values a sample; MSELoss needs \[1\]"
    ):
        prove("data=diabetes", "model.num_outputs=2")


def test_distinct_steps_are_proven_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counted(*args: Any) -> Any:
        taken.append(1)
        return take_step(*args)

    monkeypatch.setattr("assay.check.prove.take_step", counted)
    reports = check_sweep(["data=iris", "model.hidden=[8],[16]", "optimizer.lr=0.1,0.2,0.3", "seed=1,2"])
    assert len(reports) == 12
    assert len(taken) == 2
    assert {report.parameters for report in reports} == {4 * 8 + 8 + 8 * 3 + 3, 4 * 16 + 16 + 16 * 3 + 3}


def alone_and_together(typed: list[list[str]], **models: dict[str, Any]) -> list[tuple[Report, Report]]:
    """Each job as one prover sees it that has seen the jobs before it, and as a new one does."""
    shared = Prover()
    reports = []
    for words in typed:
        config = job_config(compose(["device=cpu", "data=digits", *words]))
        if words[0].partition("=")[2] in models:
            with open_dict(config):
                config.model = models[words[0].partition("=")[2]]
        reports.append((shared.prove(config).report, Prover().prove(config).report))
    return reports


def said_of(report: Report) -> tuple[Any, ...]:
    step = report.step
    return report.parameters, report.unproven, step and (step.flops, step.memory.peak)


def test_a_number_that_is_not_whole_may_change_the_shapes_of_a_model() -> None:
    blocks = [[1, 16, 1, 1], [6, 24, 1, 2]]  # two of its seventeen
    node = {
        "_target_": "torchvision.models.MobileNetV2",
        "num_classes": "${spec.num_outputs}",
        "inverted_residual_setting": blocks,
    }
    models = {name: {**node, "width_mult": value} for name, value in (("half", 0.5), ("more", 1.4))}
    models = {
        name: {
            "_target_": "assay.model.adapted.Adapted",
            "network": one,
            "input_shape": "${spec.input_shape}",
        }
        for name, one in models.items()
    }
    (half, half_alone), (more, more_alone) = alone_and_together([["name=half"], ["name=more"]], **models)
    assert said_of(half) == said_of(half_alone)
    assert said_of(more) == said_of(more_alone)
    assert more.step is not None
    assert half.step is not None
    assert more.step.flops > 2 * half.step.flops


def test_a_name_makes_no_other_values_equal() -> None:
    with pytest.raises(ConfigError, match="max_epochs"):
        alone_and_together([["name=1", "trainer.max_epochs=-1"], ["name=1", "trainer.max_epochs=-11"]])


def test_each_value_of_a_sweep_is_checked_though_its_step_is_known() -> None:
    with pytest.raises(AssayError) as caught:
        check_sweep(["data=iris", "optimizer.lr=0.1,0.2,-0.3,0.4", "model.dropout=0.1,1.5"])
    text = str(caught.value)
    assert "5 of 8 jobs cannot run" in text
    assert "optimizer.lr: -0.3 was given" in text
    assert "model.dropout" in text
    assert "job 4 (data=iris optimizer.lr=-0.3 model.dropout=0.1)" in text


PREDICTED = (
    (),
    ("model=mlp", "optimizer=sgd"),
    ("data=diabetes", "optimizer=muon"),
    ("loss=ldam", "augment=mixup", "optimizer=rmsprop"),
    ("precision=bf16",),
    ("precision=fp64", "data=breast_cancer"),
    ("data=synthetic", "data.source.num_samples=1000", "data.batch_size=100"),
)


@pytest.mark.always("data=diabetes optimizer=muon", "loss=ldam augment=mixup optimizer=rmsprop")
@pytest.mark.parametrize("typed", PREDICTED, ids=lambda typed: " ".join(typed) or "default")
def test_the_run_takes_what_the_check_said(typed: tuple[str, ...]) -> None:
    benchmark = runpy.run_path(str(BENCHMARK))
    said, took = benchmark["predict"](typed), benchmark["run"](typed)
    assert said.parameters == took.parameters
    assert said.flops == took.flops
    assert said.steps == took.steps
    assert 1 / 1.25 <= said.memory / took.memory <= 1.25
