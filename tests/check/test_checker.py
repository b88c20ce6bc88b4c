"""Jobs are checked once, a sweep as a whole, and what a check says of a job is what its run takes."""

from __future__ import annotations

import runpy
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import open_dict
from omegaconf.errors import ReadonlyConfigError
from tests.check.jobs import prove

from assay.assemble.assembly import assemble
from assay.assemble.recipe import choose_recipe
from assay.check.checker import Checker
from assay.compose.compose import compose, compose_job, job_config
from assay.config.serialize import copy_of
from assay.errors import AssayError, ConfigError
from assay.loss.cross_entropy import CrossEntropy
from assay_prove.prove import Prover, mask_rates
from assay_prove.step import take_step
from assay_sweep.session import check_sweep

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_one_report_a_job_in_order() -> None:
    reports = check_sweep(["data=iris,wine", "device=cpu", "trainer.max_epochs=1,2"])
    shown = [(report.spec["num_classes"], report.spec["total_steps"]) for report in reports]
    assert shown == [(3, 7), (3, 14), (3, 8), (3, 16)]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a job was proved, and a step taken."""
    counted: Counter[str] = Counter()
    prove_job = Prover.prove

    def counted_prove(self: Prover, *args: Any, **kwargs: Any) -> Any:
        counted["proofs"] += 1
        return prove_job(self, *args, **kwargs)

    def counted_step(*args: Any) -> Any:
        counted["steps"] += 1
        return take_step(*args)

    monkeypatch.setattr(Prover, "prove", counted_prove)
    monkeypatch.setattr("assay_prove.step.take_step", counted_step)
    return counted


def test_jobs_that_differ_in_the_seed_alone_are_checked_once(calls: Counter[str]) -> None:
    reports = check_sweep(["data=iris", "device=cpu", "seed=1,2,3"])
    assert calls == {"proofs": 1, "steps": 1}
    assert [report.overrides[-1] for report in reports] == ["seed=1", "seed=2", "seed=3"]
    with pytest.raises(ConfigError, match=r"^1 of 2 jobs cannot run(.|\n)*seed: "):
        check_sweep(["data=iris", "device=cpu", "seed=1,-1"])
    calls.clear()
    check_sweep(["data=iris", "device=cpu", "seed=1,2", "optimizer.lr=${seed}"])
    assert calls["proofs"] == 2, "the seed decides about more"


def test_distinct_steps_are_proven_once(calls: Counter[str]) -> None:
    reports = check_sweep(["data=iris", "model.hidden=[8],[16]", "optimizer.lr=0.1,0.2,0.3", "seed=1,2"])
    assert len(reports) == 12
    assert calls["steps"] == 2
    assert {report.parameters for report in reports} == {4 * 8 + 8 + 8 * 3 + 3, 4 * 16 + 16 + 16 * 3 + 3}


def test_every_error_is_told_once_with_its_jobs() -> None:
    with pytest.raises(AssayError) as caught:
        check_sweep(["data=iris", "device=cpu", "optimizer.lr=0.1,0.2,-0.3", "model.dropout=0.1,1.5"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "4 of 6 jobs cannot run; none was started"
    assert "job 1 and 2 more (data=iris device=cpu optimizer.lr=0.1 model.dropout=1.5)" in lines
    assert any(
        "optimizer.lr: expected float > 0.0, got -0.3" in line and "(command line)" in line for line in lines
    )
    assert any("model.dropout: expected float < 1.0, got 1.5" in line for line in lines)
    assert caught.value.exit_code == 2
    with pytest.raises(AssayError, match=r"^optimizer\.lr: expected .*, got -1 \(command line\)"):
        check_sweep(["data=iris", "optimizer.lr=-1"])


def test_nothing_random_is_drawn_and_nothing_is_written(tmp_path: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    prove("data=digits", "augment=mixup", f"hydra.run.dir={tmp_path}/run")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not list(tmp_path.iterdir())


def test_a_proof_is_not_shared_by_jobs_that_differ() -> None:
    """A number that is not whole may change the shapes of a model."""
    network = {"_target_": "torchvision.models.MobileNetV2", "num_classes": "${spec.num_outputs}"}
    network["inverted_residual_setting"] = [[1, 16, 1, 1], [6, 24, 1, 2]]  # type: ignore[assignment]  # two of its seventeen
    shared, flops = Prover(), []
    for width in (0.5, 1.4):
        config = job_config(compose(["device=cpu", "data=synthetic", "data.source.num_samples=200"]))
        with open_dict(config):
            config.model = {**network, "width_mult": width}
        steps = shared.prove(config).report.step, Prover().prove(config).report.step
        assert steps[0] is not None
        assert steps[0] == steps[1]
        flops.append(steps[0].flops)
    assert flops[1] > 2 * flops[0]


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ({"lr": 0.1}, {"lr": 0.2}, True),
        ({"weight_decay": 0.0}, {"weight_decay": 0.1}, False),
        ({"betas": [0.9, 0.99]}, {"betas": [0.8, 0.9]}, True),
        ({"betas": [0.0, 0.99]}, {"betas": [0.8, 0.9]}, False),
        ({"lr": 0.1, "nesterov": True}, {"lr": 0.1, "nesterov": False}, False),
        ({"max_iter": 4}, {"max_iter": 5}, False),
        (None, {"lr": 0.1}, False),
    ],
)
def test_how_large_a_rate_is_shares_a_proof(one: Any, other: Any, share: bool) -> None:
    assert (mask_rates(one) == mask_rates(other)) is share


@pytest.mark.long
def test_a_further_job_that_differs_in_values_costs_less_than_a_third_of_one() -> None:
    benchmark = runpy.run_path(str(BENCHMARKS / "check_sweep.py"))
    seconds = benchmark["seconds"]
    seconds(benchmark["ONE"])
    _, one, _ = seconds(benchmark["ONE"])
    number, many, _ = seconds(benchmark["MANY"])
    assert number == 100
    assert many - one <= 99 * one / 3


PREDICTED = (
    *("", "model=mlp optimizer=sgd", "data=diabetes optimizer=muon"),
    *("loss=ldam augment=mixup optimizer=rmsprop", "precision=bf16", "precision=fp64 data=breast_cancer"),
    "data=synthetic data.source.num_samples=1000 data.batch_size=100",
)


@pytest.mark.always("loss=ldam augment=mixup optimizer=rmsprop")
@pytest.mark.parametrize("typed", PREDICTED)
def test_the_run_takes_what_the_check_said(typed: str) -> None:
    benchmark = runpy.run_path(str(BENCHMARKS / "check_prediction.py"))
    said, took = benchmark["predict"](tuple(typed.split())), benchmark["run"](tuple(typed.split()))
    assert (said.parameters, said.flops, said.steps) == (took.parameters, took.flops, took.steps)
    assert 1 / 1.25 <= said.memory / took.memory <= 1.25


def test_what_was_judged_trains(tmp_path: Path) -> None:
    typed = ["data=digits", "model=mlp", "device=cpu", "scheduler=cosine", "augment=mixup"]
    typed.append(f"hydra.run.dir={tmp_path}/run")
    checker = Checker()
    job = checker.job(typed)
    proof = checker.check(job)
    assert proof.parts is not None
    assert proof.trainer is not None
    made: dict[str, Any] = {"trainer": proof.trainer, "parts": proof.parts}
    assembly = assemble(job.view(), datamodule=proof.datamodule, **made)
    parts = proof.parts[0]
    module: Any = assembly.module
    assert assembly.trainer is proof.trainer[0]
    assert module._optimizer is parts["optimizer"]
    assert module._scheduler is parts["scheduler"]
    assert module.loss is parts["loss"]
    assert module._augment is parts["augment"]
    other: Any = assemble(compose_job([*typed, "optimizer.lr=0.5"]).view(), **made).module
    assert other._optimizer is not parts["optimizer"]
    assert other._optimizer.keywords["lr"] == 0.5


def test_nothing_changes_a_job_nor_what_follows_from_its_data() -> None:
    job = compose_job(["data=iris", "device=cpu"])
    with pytest.raises(ReadonlyConfigError):
        job.view().seed = 7
    job.to_config().seed = 7
    assert job.view().seed == job.config["seed"] == 0
    settled = assemble(job.view()).config
    with pytest.raises(ReadonlyConfigError):
        settled.spec.lr = 1.0
    assert "spec" not in job.view()
    before = copy_of(settled)
    recipe = asdict(choose_recipe(settled))
    assert before == settled
    assert recipe == {name: settled.spec[name] for name in recipe}


def test_trying_parts_leaves_what_they_count_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = CrossEntropy.forward

    def count(loss: Any, *batch: Any) -> Any:
        loss.calls = True
        return forward(loss, *batch)

    monkeypatch.setattr(CrossEntropy, "forward", count)
    checker = Checker()
    proof: Any = checker.check(checker.job(["data=iris", "model=linear", "device=cpu"]))
    assert not hasattr(proof.parts[0]["loss"], "calls")


def test_metrics_are_judged_as_if_they_validated_and_train_as_written() -> None:
    """torchmetrics looks at an average only where it also validates each batch."""
    wrong = ["data=iris", "device=cpu", "metrics.train.metrics.accuracy.average=mikro"]
    with pytest.raises(ConfigError, match="average") as refused:
        Prover().prove(compose_job(wrong).view())
    assert refused.value.key == "metrics.train.metrics.accuracy.average"
    typed = ["data=iris", "device=cpu", "metrics.eval.metrics.f1.validate_args=true"]
    proof = Prover().prove(compose_job(typed).view())
    assert proof.parts is not None
    metrics = proof.parts[0]["metrics"]
    assert not metrics["train"]["accuracy"].validate_args
    assert not metrics["eval"]["recall"].validate_args
    assert metrics["eval"]["f1"].validate_args


def test_weights_do_not_depend_on_what_a_loss_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose_job(["data=iris", "model=mlp", "device=cpu"]).view()
    before = assemble(config).module.state_dict()
    genuine = CrossEntropy.__init__

    def draw(self: CrossEntropy, *arguments: Any, **named: Any) -> None:
        torch.rand(3)
        genuine(self, *arguments, **named)

    monkeypatch.setattr(CrossEntropy, "__init__", draw)
    after = assemble(config).module.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
