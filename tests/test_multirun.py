from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.multirun import multirun

QUICK = ["debug=one_batch", "device=cpu", "data=iris", "callbacks=[]", "hydra.sweep.dir=sweep"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_one_run_directory_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    results = multirun([*QUICK, "seed=1,2", "tags=[a]"])
    assert [result.status for result in results] == ["finished", "finished"]
    assert [result.run_dir for result in results] == [Path.cwd() / "sweep" / name for name in "01"]
    for result, seed in zip(results, (1, 2), strict=True):
        record = json.loads((result.run_dir / "record.json").read_text(encoding="utf-8"))
        assert record["seed"] == seed
        assert f"seed={seed}" in record["overrides"]
        assert "seed=1,2" not in record["overrides"]
        assert record["metrics"]["test/loss"] == pytest.approx(result.metrics["test/loss"])
    said = capsys.readouterr().out
    assert "job 0" in said
    assert "tags=[a]" in said, "brackets are no markup"


def test_a_job_is_what_it_is_alone() -> None:
    (swept, _) = multirun([*QUICK, "seed=1,2"])
    (alone,) = multirun([*QUICK[:-1], "seed=1", "hydra.sweep.dir=alone"])
    assert swept.metrics == alone.metrics


def test_a_mistake_in_the_last_job_is_found_before_the_first_runs() -> None:
    for last in (
        "optimizer.lr=0.1,fast",
        "seed=1,-1",
        "+optimizer=sgd,sdg",
        "optimizer._target_=torch.optim.SGD,x.Y",
    ):
        with pytest.raises(ConfigError):
            multirun([*QUICK, last])
    assert not Path("sweep").exists()


def test_a_job_whose_data_does_not_fit_is_found_before_the_first_runs() -> None:
    with pytest.raises(ConfigError, match=r"1 of 2 jobs cannot run(?s:.*)metrics\."):
        multirun([*QUICK[:2], *QUICK[3:], "data=diabetes,iris", "metrics=multiclass"])
    assert not Path("sweep").exists()


def test_a_job_that_fails_in_training_fails_alone() -> None:
    results = multirun([*QUICK[1:], "trainer.max_epochs=2", "optimizer=sgd", "optimizer.lr=0.1,1e30"])
    assert [result.status for result in results] == ["finished", "failed"]
    assert "loss" in results[1].reason
