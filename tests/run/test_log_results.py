"""TensorBoard and MLflow get the scores, the hyperparameters and the figures that a report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # ships no types
    EventAccumulator,
)

from assay.record import predictions_file
from assay.run import execute
from assay.task.task_of import task_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

WINE = ("data=wine", "model=mlp", "optimizer.lr=0.01", "trainer.max_epochs=2")


def all_scores(run: Trained) -> dict[str, float]:
    """What the run logged, and what its predictions tell."""
    predictions = predictions_file.read(run.run_dir / predictions_file.FILE)
    names = {
        f"test/{execute._NOT_IN_NAMES.sub('_', one.name).strip('_')}": one.value
        for one in task_of(predictions.task).scores(predictions)
    }
    return {**names, **run.result.metrics}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # MLflow has its own
def test_both(train: Train, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient  # it takes seconds, and each worker collects this file

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run = train(
        *(*WINE, "logger=[tensorboard,mlflow]", f"logger.mlflow.tracking_uri={uri}"),
        f"logger.mlflow.artifact_location={tmp_path}/artifacts",
        cwd=tmp_path,
    )
    scores = all_scores(run)
    predictions = predictions_file.read(run.run_dir / predictions_file.FILE)
    figures = {one.name for one in task_of(predictions.task).figures(predictions)}
    assert "confusion_matrix" in figures
    sizes = {"images": 0, "scalars": 0, "tensors": 0}
    events: Any = EventAccumulator(str(run.run_dir / "tensorboard"), sizes)
    events.Reload()
    assert {f"final/{name}" for name in scores if name.startswith("test/")} <= set(events.Tags()["scalars"])
    for name, value in scores.items():
        assert events.Scalars(name)[-1].value == pytest.approx(value, rel=1e-5), name
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert set(events.Tags()["images"]) == figures

    client = MlflowClient(uri)
    found = client.get_run(run.record["loggers"]["MLFlowLogger"])
    assert {
        name: pytest.approx(value, rel=1e-5) for name, value in found.data.metrics.items() if name in scores
    } == scores
    assert found.data.params["optimizer/lr"] == "0.01"
    drawn = {one.path for one in client.list_artifacts(found.info.run_id, "figures")}
    assert drawn == {f"figures/{name}.png" for name in figures}


def test_what_fails_is_said_and_ends_no_run(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(execute, "to_matplotlib", fails)
    run = train(*WINE, "logger=[tensorboard]")
    assert run.result.status == "finished"
    assert "the record lacks something" in (run.run_dir / "log.txt").read_text()
