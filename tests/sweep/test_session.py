"""Whole sweeps in this process: what they refuse and write, and what the next one finds."""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import chdir, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from sklearn.metrics import accuracy_score  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.conftest import DEVICES

from assay.errors import AssayError, ConfigError
from assay_analysis.out_of_fold import FILE
from assay_serve.evaluate import evaluate
from assay_sweep.session import resume_sweep, start_sweep

if TYPE_CHECKING:
    from assay_sweep.summary import SweepResult


QUICK = ["debug=one_batch", "device=cpu", "data=iris", "callbacks=[]", "baseline=none"]
HERE = ["hydra/launcher=serial", "hydra.sweep.dir=sweep"]


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


DIVERGES = ("optimizer.weight_decay=1", "data.batch_size=8")
"""At lr=100 each step makes the weights a hundred times as large; at 0.1 it does them no harm."""


def states(result: SweepResult) -> list[str]:
    return [job.status for job in result.jobs]


def rows(folder: str | Path = "sweep", name: str = "results.csv") -> list[dict[str, str]]:
    with Path(folder, name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SweepResult, str]:
    """The folder of a sweep of two seeds, what it came to, and what it said."""
    folder = tmp_path_factory.mktemp("finished")
    with chdir(folder), redirect_stdout(StringIO()) as said:
        result = start_sweep([*QUICK, *HERE, "seed=1,2", "tags=[a]"])
    return folder / "sweep", result, said.getvalue()


@pytest.fixture
def sweep(finished: tuple[Path, SweepResult, str], tmp_path: Path) -> Path:
    """A copy of it in the current folder, to go on with."""
    return Path(shutil.copytree(finished[0], tmp_path / "sweep"))


def test_a_sweep_leaves_a_run_a_job_and_its_tables(finished: tuple[Path, SweepResult, str]) -> None:
    folder, result, said = finished
    assert states(result) == ["finished", "finished"]
    assert result.exit_code == 0
    for number, seed in enumerate((1, 2)):
        record = json.loads((folder / str(number) / "record.json").read_text(encoding="utf-8"))
        assert record["seed"] == seed
        assert f"seed={seed}" in record["overrides"]
        assert "seed=1,2" not in record["overrides"]
        assert float(rows(folder)[number]["test/loss"]) == record["metrics"]["test/loss"]
    groups = rows(folder, "groups.csv")
    assert groups == [groups[0] | {"finished": "2", "repetitions": "2"}]
    assert "seed: " in (folder / "best.yaml").read_text(encoding="utf-8")
    assert "2 finished of 2" in said
    assert "2 of 2" in said, "the seeds are one group"


def test_a_job_is_what_it_is_alone(finished: tuple[Path, SweepResult, str]) -> None:
    (swept, _) = finished[1].jobs
    (alone,) = start_sweep(
        [*QUICK, "hydra/launcher=serial", "seed=1", "tags=[a]", "hydra.sweep.dir=alone"]
    ).jobs
    assert swept.outcome is not None
    assert alone.outcome is not None
    assert swept.outcome.metrics == alone.outcome.metrics
    assert swept.fingerprint == alone.fingerprint


@pytest.mark.long
@pytest.mark.parametrize("device", DEVICES)
def test_many_jobs_side_by_side_are_what_each_is_alone(device: str) -> None:
    """Also where several share a GPU."""
    quick = [word.replace("device=cpu", f"device={device}") for word in QUICK]
    shared = ["hydra.launcher.jobs_per_gpu=4", "hydra.sweep.dir=shared"]
    jobs = start_sweep([*quick, *shared, "seed=range(16)"]).jobs
    assert [job.status for job in jobs] == ["finished"] * 16
    for seed in (0, 15):
        (alone,) = start_sweep([*quick, f"seed={seed}", "hydra.sweep.dir=alone"]).jobs
        shutil.rmtree("alone")
        outcome = jobs[seed].outcome
        assert outcome is not None
        assert alone.outcome is not None
        assert outcome.metrics == alone.outcome.metrics


@pytest.mark.always("hydra.launcher._target_=os.system")  # tests/check/broken tries a value
@pytest.mark.parametrize(
    "last",
    [
        *("optimizer.lr=0.1,fast", "optimizer._target_=torch.optim.SGD,x.Y", "hydra.sweeper.direction=up"),
        *("hydra.launcher.max_retries=few", "hydra.launcher._target_=os.system", "hydra/launcher=locl"),
    ],
)
def test_a_mistake_anywhere_is_found_before_the_first_job_runs(last: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start_sweep([*QUICK, *HERE, "seed=1,2", last])
    key = last.partition("=")[0].lstrip("+").partition("/")[0]
    assert key in str(caught.value)
    assert not Path("sweep").exists()


def test_a_job_that_fails_in_training_fails_alone_and_runs_again_only_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ("trainer.max_epochs=2", "optimizer=sgd", "optimizer.lr=0.1,100", *DIVERGES)
    result = start_sweep([*QUICK[1:], *HERE, *more])
    assert states(result) == ["finished", "failed"]
    assert result.exit_code == 1
    assert [row["cause"] for row in rows()] == ["", "non_finite"]
    said = capsys.readouterr().out
    assert "failed job 1  optimizer.lr=100" in said
    assert str(Path("sweep/1/log.txt")) in said
    journal = Path("sweep/journal.jsonl")
    assert states(resume_sweep(Path("sweep"))) == ["finished", "failed"]
    assert journal.read_text().count('"start"') == 2
    assert states(resume_sweep(Path("sweep"), again=True)) == ["finished", "failed"]
    assert journal.read_text().count('"start"') == 3


def test_a_directory_holds_one_sweep(sweep: Path) -> None:
    before = (sweep / "journal.jsonl").read_bytes()
    with pytest.raises(AssayError, match=r"already holds a sweep(?s:.*)assay resume sweep"):
        start_sweep([*QUICK, *HERE, "seed=1,2"])
    assert (sweep / "journal.jsonl").read_bytes() == before


def test_an_edited_space_runs_what_is_missing_under_new_numbers() -> None:
    start_sweep([*QUICK, *HERE, "optimizer.lr=0.1,0.2", "seed=1"])
    time = Path("sweep/1/record.json").stat().st_mtime_ns
    result = resume_sweep(Path("sweep"), ["optimizer.lr=0.2,0.3"])
    assert [job.number for job in result.jobs] == [1, 2]
    assert [row["optimizer.lr"] for row in rows()] == ["0.2", "0.3"]
    assert Path("sweep/1/record.json").stat().st_mtime_ns == time
    again = resume_sweep(Path("sweep"))
    assert [job.number for job in again.jobs] == [1, 2], "what was typed last holds"
    back = resume_sweep(Path("sweep"), ["optimizer.lr=0.1,0.2,0.3"])
    assert [job.number for job in back.jobs] == [0, 1, 2]
    starts = [json.loads(line)["event"] for line in Path("sweep/journal.jsonl").read_text().splitlines()]
    assert starts.count("start") == 3


def test_a_sweep_goes_on_from_anywhere(sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other place"
    other.mkdir()
    monkeypatch.chdir(other)
    result = resume_sweep(Path("../sweep"), ["seed=1,2,3"])
    assert states(result) == ["finished"] * 3
    assert (sweep / "2" / "record.json").is_file()
    assert list(other.iterdir()) == []


TYPED = (
    *("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=1", "data.split.folds=3"),
    *("callbacks=[]", "baseline=none", "hydra/launcher=serial", "hydra.sweep.dir=sweep"),
)


def test_folds_are_one_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    start_sweep([*TYPED, "fold=0,1"])
    said = capsys.readouterr().out
    assert "fold 2 of 3 is missing" in said
    assert len(pd.read_parquet(sweep / FILE)) == 100

    result = resume_sweep(sweep, ["fold=range(3)"])
    assert [job.status for job in result.jobs] == ["finished"] * 3
    said = capsys.readouterr().out
    assert "3 of 3" in said
    assert "is missing" not in said
    table = pd.read_parquet(sweep / FILE)
    assert sorted(table.key.astype(int)) == list(range(150))
    assert table.groupby("fold").run.agg(["nunique", "size"]).to_numpy().tolist() == [[1, 50]] * 3
    accuracy = accuracy_score(table.target, table.prediction)
    assert f"accuracy {100 * accuracy:.2f} %" in said
    for job in result.jobs:
        assert job.outcome is not None
        tested = evaluate(sweep / str(job.number))  # the fold's own test subset, by the run's config alone
        own = table[table.run == str(job.number)]
        assert tested.metrics["test/accuracy"] == pytest.approx(job.outcome.metrics["test/accuracy"])
        assert tested.metrics["test/accuracy"] == pytest.approx(accuracy_score(own.target, own.prediction))
        assert tested.num_samples == 50

    before = (sweep / FILE).read_bytes()
    (sweep / FILE).unlink()
    resume_sweep(sweep)
    assert (sweep / FILE).read_bytes() == before

    groups = pd.read_csv(sweep / "groups.csv")
    assert groups[["finished", "repetitions", "test/accuracy n"]].to_numpy().tolist() == [[3, 3, 3]]
