"""Many run directories are read at once, whatever state they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.making_runs import make_run

from assay.analysis.comparison import compare
from assay.analysis.read_runs import RunReader, read_runs
from assay.errors import AssayError
from assay.record.run_lock import writing
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Trained


def test_a_real_run_as_its_record_says(digits_run: Trained) -> None:
    (run,) = read_runs([digits_run.run_dir])
    record = digits_run.record
    assert (run.status, run.seed, run.name) == ("finished", record["seed"], record["name"])
    assert run.metrics == record["metrics"]
    assert run.score("val/loss") == record["best"]["value"]
    assert run.score("test/accuracy") == record["metrics"]["test/accuracy"]
    assert run.typed["optimizer.lr"] == "0.01"
    assert run.choices["model"] == "mlp"
    assert run.directions["test/accuracy"] == "max"
    assert run.directions["val/loss"] == "min"
    assert run.config_fingerprint
    assert run.config_fingerprint != run.fingerprint


def test_a_folder_is_searched_and_each_run_is_there_once(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/sweeps/date/0"):
        make_run(tmp_path / name)
    found = read_runs([tmp_path, tmp_path / "a", tmp_path / "a" / ".." / "a" / "1"])
    assert [run.path.relative_to(tmp_path).as_posix() for run in found] == ["a/1", "a/2", "b/sweeps/date/0"]


def test_one_that_runs_and_one_that_was_killed(tmp_path: Path) -> None:
    make_run(tmp_path / "alive", status="running", metrics={})
    make_run(tmp_path / "dead", status="running", metrics={})
    with writing(tmp_path / "alive"):
        alive, dead = read_runs([tmp_path])
    assert alive.status == "running"
    assert alive.metrics == {"val/loss": 0.5, "val/accuracy": 0.75}, "the last values so far"
    assert (dead.status, dead.cause) == ("failed", "killed")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema_version": 1}',
        b'{"schema_version": 2}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema_version": 1, "status": NaN}',
        b'{"schema_version": 1, "metrics": {"val/loss": 1' + b"0" * 400 + b"}}",
    ],
)
def test_a_record_that_is_none_is_broken_and_the_others_are_there(tmp_path: Path, content: bytes) -> None:
    make_run(tmp_path / "good")
    make_run(tmp_path / "bad")
    (tmp_path / "bad/record.json").write_bytes(content)
    bad, good = read_runs([tmp_path])
    assert (bad.status, good.status) == ("broken", "finished")
    assert "record.json" in bad.reason


def test_a_number_that_nothing_can_compute_with_is_broken(tmp_path: Path) -> None:
    """Under a seal that is right."""
    make_run(tmp_path / "good")
    make_run(tmp_path / "bad")
    record = RunRecord.load(tmp_path / "bad")
    number: Any = 10**400
    record.seconds = number
    record.save(tmp_path / "bad")
    bad, good = read_runs([tmp_path])
    assert (bad.status, good.status) == ("broken", "finished")
    assert "seconds" in bad.reason


def test_a_record_that_was_changed_or_is_gone(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    make_run(tmp_path / "b")
    path = tmp_path / "a/record.json"
    path.write_text(path.read_text().replace('"seconds": 60.0', '"seconds": 61.0'))
    (tmp_path / "b/record.json").unlink()
    changed, gone = read_runs([tmp_path])
    assert changed.status == gone.status == "broken"
    assert "SHA-256" in changed.reason
    assert "no record.json" in gone.reason


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="holds no run"):
        read_runs([tmp_path])
    with pytest.raises(AssayError, match="there is no folder"):
        read_runs([tmp_path / "nowhere"])


def test_a_second_look_finds_what_has_changed(tmp_path: Path) -> None:
    make_run(tmp_path / "a", status="running", metrics={})
    reader = RunReader()
    with writing(tmp_path / "a"):
        assert reader.read([tmp_path])[0].status == "running"
        (tmp_path / "a/metrics.csv").write_text("epoch,step,val/loss\n1,1,0.25\n")
        assert reader.read([tmp_path])[0].metrics == {"val/loss": 0.25}
    assert reader.read([tmp_path])[0].cause == "killed"
    make_run(tmp_path / "b")
    assert [run.status for run in reader.read([tmp_path])] == ["failed", "finished"]


def test_what_resuming_changed_counts(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "trainer.max_epochs=5", resumed=[{"overrides": ["trainer.max_epochs=9"]}])
    assert read_runs([tmp_path])[0].typed == {"trainer.max_epochs": "9"}


def test_best_that_says_nothing_usable_is_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "a", best={"monitor": ["x"], "value": "<b>"}, metrics={"val/loss": 0.5})
    (run,) = read_runs([tmp_path])
    assert not run.best
    assert run.score("val/loss") == 0.5


def test_what_runs_share_is_kept_once(tmp_path: Path) -> None:
    for number in range(3):
        make_run(tmp_path / str(number), f"seed={number}")
    found = read_runs([tmp_path])
    assert found[0].choices is found[2].choices


def test_a_fold_that_an_option_has_set_is_one(tmp_path: Path) -> None:
    for fold in range(2):
        fields: dict[str, Any] = {
            "set_by": {"fold": f"experiment=fold{fold}"},
            "metrics": {"test/x": 0.5 + fold / 10},
        }
        for seed in range(2):
            path = tmp_path / f"{fold}-{seed}"
            make_run(path, f"experiment=fold{fold}", f"seed={seed}", config={"fold": fold}, **fields)
    make_run(tmp_path / "none", "experiment=fold1", "fold=null", **fields)
    found = {run.path.name: run.fold for run in read_runs([tmp_path])}
    assert found == {"0-0": 0, "0-1": 0, "1-0": 1, "1-1": 1, "none": None}
    (row,) = compare(read_runs([tmp_path / name for name in found if name != "none"])).rows
    assert (row.folds, row.scores["test/x"].n) == (2, 2), "seeds of one fold are one test"
