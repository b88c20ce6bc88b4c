"""What is true of every kind of job, from its check to its page, its predictions and its file."""

from __future__ import annotations

import json
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from tests.check.generated import as_typed
from tests.conftest import unchanged_process
from tests.experiment.small_jobs import NAMES, SMALLER, WITHOUT_EXPERIMENT
from tests.interrupting import Hook, Interrupt, outcome
from typer.testing import CliRunner

import assay
from assay.build.datamodule import open_data
from assay.cli.app import app
from assay.compose.compose import compose, job_config
from assay.compose.options import list_options
from assay.data.samples import Unfitted
from assay.record import predictions_file
from assay.run.resume import resume
from assay.task.task_of import TASKS, task_of

if TYPE_CHECKING:
    from tests.conftest import Trained
    from tests.experiment.conftest import Small

SELDOM = {
    "breast_cancer_binary",
    "diabetes_regression",
    "digits_distillation",
    "digits_embedding",
    "digits_image",
    "digits_longtail",
    "multilabel",
}
"""Jobs of whose kind many other tests are; tried with `-m long` alone."""
EACH = [pytest.param(name, marks=[pytest.mark.long] * (name in SELDOM)) for name in NAMES]
each = pytest.mark.parametrize("name", EACH)
POINTS: list[tuple[Hook, int]] = [("batch", 5), ("batch", 1), ("batch", 4), ("validation", 1), ("epoch", 1)]


def typed(*words: str) -> str:
    """What the command prints; it must end well."""
    with unchanged_process():
        done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, done.output
    return done.stdout if "--json" in words else done.output


def raw_test_samples(run: Trained) -> tuple[Any, torch.Tensor]:
    """Inputs and targets of the test part as the source has them, before anything is done to them."""
    parts = run.datamodule.source.read()
    part = parts.get("test", parts.get("all"))
    rows = torch.as_tensor(run.datamodule._parts.rows["test"])
    raw = part.raw.iloc[rows.numpy()] if isinstance(part, Unfitted) else part.inputs[rows]
    return raw, part.targets[rows]


def test_every_task_is_that_of_a_job(small: Small) -> None:
    tasks = set()
    for name in NAMES:
        config = job_config(compose([*small.words(name), "device=cpu"]))
        tasks.add(open_data(config).spec.task)  # type: ignore[attr-defined]  # ours has one
    missing = {*TASKS, *(option.name for option in list_options("task"))} - tasks
    assert not missing, f"add an experiment, or a job to WITHOUT_EXPERIMENT of small_jobs.py: {missing}"
    assert SELDOM | {*SMALLER} <= {*NAMES}, "no names of what is gone"
    assert not {*WITHOUT_EXPERIMENT} & {option.name for option in list_options("experiment")}


@pytest.mark.parametrize(
    ("hook", "count"),
    [pytest.param(*point, marks=[pytest.mark.long] * (number > 0)) for number, point in enumerate(POINTS)],
)
@each
def test_interrupted_it_ends_the_same_to_the_bit(small: Small, name: str, hook: Hook, count: int) -> None:
    run_dir = small(name, callbacks=[Interrupt(hook, count)]).run_dir
    assert json.loads((run_dir / "record.json").read_text())["status"] == "failed"
    with chdir(run_dir.parent), unchanged_process():
        assert resume(run_dir).status == "finished"
    assert outcome(run_dir) == outcome(small(name).run_dir)


@pytest.mark.filterwarnings("ignore:.*words are unknown")
@each
def test_raw_samples_are_predicted_as_in_the_test_of_the_run(small: Small, name: str) -> None:
    run = small(name)
    kept = predictions_file.read(run.run_dir / predictions_file.FILE)
    predictor, task = assay.load(run.run_dir, map_location="cpu"), task_of(kept.task)
    raw, targets = raw_test_samples(run)
    assert len(raw) == len(kept.keys)
    if predictor.generates:
        outputs = predictor.postprocess(predictor.model(raw.long()).detach()).numpy()
    else:
        found = predictor(raw)
        assert len(found) == len(found.to_frame()) == len(raw)
        outputs = found.outputs
    assert predictor.kind is not None
    right = task.batch_targets(targets, torch.float32)
    again, _ = task.kept(torch.from_numpy(outputs), right, predictor.kind)
    np.testing.assert_allclose(again.numpy(), kept.outputs, atol=1e-6, rtol=1e-6)


DECLARED = ("task", "input_shape", "vocab_size", "num_classes", "num_targets", "class_names")


def stated(run: Trained) -> str:
    """What a user would declare of the run's data."""
    spec: Any = OmegaConf.to_container(run.config.spec)
    known = {name: spec[name] for name in DECLARED if spec[name]}
    parts = {part: spec[f"num_{part}"] for part in ("train", "val", "test")}
    return as_typed({**known, "dtype": spec["input_dtype"], "num_samples": parts})


@each
def test_a_declared_job_is_proved_without_reading_its_data(
    small: Small, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small(name)
    source = type(run.datamodule.source)

    def read(*_: object) -> None:
        raise AssertionError("the data is read")

    for method in ("read", "prepare"):
        monkeypatch.setattr(source, method, read)
    declared = () if "spec" in run.config.data else (f"+data.spec={stated(run)}",)
    said = json.loads(typed("check", *small.words(name), "device=cpu", *declared, "--json"))
    assert said["step"]
    assert not said["data_read"]
