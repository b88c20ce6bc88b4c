"""What is true of every kind of job, from its check to its page, its predictions and its file."""

from __future__ import annotations

import html
import json
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.command import typed
from tests.conftest import unchanged_process
from tests.experiment.small_jobs import NAMES, SMALLER, WITHOUT_EXPERIMENT
from tests.interrupting import Hook, Interrupt, outcome

import assay
from assay.assemble.assembly import open_data
from assay.compose.compose import compose, job_config
from assay.run.resume import resume
from assay.task.task_of import TASKS, task_of
from assay_analysis import predictions_file
from assay_explain.listing import list_options
from assay_serve.export.export import export, open_onnx

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained
    from tests.experiment.conftest import Small

SELDOM = {
    *("breast_cancer_binary", "diabetes_regression", "digits_distillation", "digits_embedding"),
    *("digits_image", "digits_longtail", "multilabel", "cifar10_fast"),
}
"""Jobs of whose kind many other tests are; tried with `-m long` alone."""
EXPORTED_ELSEWHERE = {"stdlib_gpt", "text_topics"}
"""By tests/task/test_language_modelling.py and tests/training/test_texts.py."""
EACH = [pytest.param(name, marks=[pytest.mark.long] * (name in SELDOM)) for name in NAMES]
each = pytest.mark.parametrize("name", EACH)
ALWAYS_WHOLE = {"wine_multitask"}
"""Evaluated again and predicted from a file in every run of the tests; the other ones with `-m long`."""
each_seldom = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in ALWAYS_WHOLE)) for name in NAMES]
)
POINTS: list[tuple[Hook, int]] = [("batch", 5), ("batch", 1), ("batch", 4), ("validation", 1), ("epoch", 1)]


def raw_test_samples(run: Trained) -> tuple[Any, torch.Tensor]:
    """Inputs and targets of the test subset as the source has them, before anything is done to them."""
    parts = run.datamodule.source.read()
    part = parts.get("test", parts.get("all"))
    rows = torch.as_tensor(run.datamodule.splits.rows["test"])
    raw = part.raw.iloc[rows.numpy()] if part.encoder is not None else part.inputs[rows]
    return raw, part.targets[rows]


def test_every_task_is_that_of_a_job(small: Small) -> None:
    tasks = set()
    for name in {*NAMES} - {"digits_distillation"}:  # a student, of its teacher's task
        config = job_config(compose([*small.words(name), "device=cpu"]))
        tasks.add(open_data(config).spec.task)  # type: ignore[attr-defined]  # ours has one
    missing = {*TASKS, *(option.name for option in list_options("task"))} - tasks
    assert not missing, f"add an experiment, or a job to WITHOUT_EXPERIMENT of small_jobs.py: {missing}"
    assert SELDOM | ALWAYS_WHOLE | {*SMALLER} <= {*NAMES}, "no names of what is gone"
    assert not {*WITHOUT_EXPERIMENT} & {option.name for option in list_options("experiment")}


@pytest.mark.always("wine_multitask-batch-5")
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
    again = again[:, : kept.outputs.shape[1]]  # what is reconstructed follows, and is not kept
    np.testing.assert_allclose(again.numpy(), kept.outputs, atol=1e-6, rtol=1e-6)


@pytest.mark.always("digits_segmentation", "wine_multitask")
@each
def test_its_page_shows_scores_and_figures(small: Small, name: str) -> None:
    run = small(name)
    typed("report", run.run_dir)
    page = html.unescape((run.run_dir / "report.html").read_text(encoding="utf-8"))
    kept = predictions_file.read(run.run_dir / predictions_file.FILE)
    task = task_of(kept.task)
    scores, figures = task.scores(kept), task.figures(kept)
    assert scores
    assert figures
    named = [one.name for one in scores] + [one.title for one in figures]
    named += [key.removeprefix("test/") for key in run.record["metrics"] if key.startswith("test/")]
    assert [name for name in named if name not in page] == []


@pytest.mark.filterwarnings("ignore:.*words are unknown")
@each_seldom
def test_a_file_of_samples_is_predicted_as_the_samples_are(small: Small, name: str, tmp_path: Path) -> None:
    run = small(name)
    predictor, (raw, _) = assay.load(run.run_dir, map_location="cpu"), raw_test_samples(run)
    if predictor.generates:
        raw, path = ["def f", "return x"], tmp_path / "samples.txt"
        path.write_text("\n".join(raw), encoding="utf-8")
    elif isinstance(raw, pd.DataFrame):
        raw.to_csv(path := tmp_path / "samples.csv", index=False)
    else:
        np.save(path := tmp_path / "samples.npy", raw.numpy())
    typed("predict", run.run_dir, path, "--out", tmp_path / "out.parquet")
    found, expected = pd.read_parquet(tmp_path / "out.parquet"), predictor(raw).to_frame()
    assert not found["error"].notna().any()
    for column in expected:
        if expected[column].dtype.kind == "f":
            np.testing.assert_allclose(found[column], expected[column], atol=1e-6)
        else:
            assert found[column].astype(str).tolist() == expected[column].astype(str).tolist()


@pytest.mark.always("digits_segmentation", "wine_multitask")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.long] * (name in SELDOM | EXPORTED_ELSEWHERE)) for name in NAMES],
)
def test_exported_it_says_the_same(small: Small, name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    run = small(name)
    exported = export(run.run_dir, out=tmp_path)
    agreement = exported.agreement
    assert agreement is not None
    assert agreement.num_samples > 0
    assert 0 <= agreement.largest_difference <= agreement.tolerance
    predictor, (raw, _) = assay.load(run.run_dir, map_location="cpu"), raw_test_samples(run)
    if isinstance(raw, torch.Tensor) and not predictor.generates:
        found = open_onnx(exported.path)({"inputs": raw.numpy()})[exported.description["output"]["name"]]
        expected = predictor(raw).outputs
        np.testing.assert_allclose(found, expected, atol=1e-4 * max(1, float(np.abs(expected).max())))
