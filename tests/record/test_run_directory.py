"""Run directories are made once, found fast, and hold no secrets."""

import json
import os
import time
from pathlib import Path

import pytest

from assay.errors import AssayError
from assay.record.run_directory import RunDirectory, find_runs
from assay.record.run_record import RunRecord


def make_runs(root: Path, *names: str) -> None:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "record.json").write_text("{}")


def found(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in find_runs(root)]


def test_create_makes_parents_and_names_the_files(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "outputs" / "a" / "b")
    assert run.path.is_dir()
    named = [run.config, run.metrics, run.log, run.checkpoints]
    assert named == [run.path / name for name in ("config.yaml", "metrics.csv", "log.txt", "checkpoints")]


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "a")
    RunDirectory.create(tmp_path / "a")  # nothing ran there yet
    RunRecord("a", "b", "running", "", 0, "", "").save(run.path)
    with pytest.raises(AssayError, match="already holds a run"):
        RunDirectory.create(tmp_path / "a")


def test_a_place_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AssayError, match=r"cannot be made: .+"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_finds_runs_in_the_order_of_their_names_and_not_within_runs(tmp_path: Path) -> None:
    make_runs(tmp_path, "b/2", "b/10", "a/sweeps/s/0", "a/sweeps/s/1", "c", "c/within")
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    (tmp_path / "half" / "checkpoints").mkdir(parents=True)
    (tmp_path / "half" / "config.yaml").touch()
    (tmp_path / "file").touch()
    assert found(tmp_path) == ["a/sweeps/s/0", "a/sweeps/s/1", "b/10", "b/2", "c"]
    assert found(tmp_path / "c") == ["."]
    assert found(tmp_path / "empty") == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    make_runs(tmp_path, "runs/a")
    (tmp_path / "runs" / "loop").symlink_to(tmp_path / "runs")
    assert found(tmp_path / "runs") == ["a"]
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert found(tmp_path / "link") == ["a"], "what the user names is what is meant"


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="there is no folder"):
        list(find_runs(tmp_path / "none"))


def test_a_folder_that_goes_away_meanwhile_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make_runs(tmp_path, "a/1", "b/1")
    scandir = os.scandir

    def gone(folder: str) -> object:
        if folder.endswith("a"):
            raise FileNotFoundError(2, "No such file or directory")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", gone)
    assert found(tmp_path) == ["b/1"]
    assert "cannot be searched" in caplog.text


def test_a_half_record_is_found_and_reads_as_such(tmp_path: Path) -> None:
    RunRecord("a", "b", "finished", "", 0, "", "").save(tmp_path / "whole")
    content = (tmp_path / "whole" / "record.json").read_text()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "record.json").write_text(content[: len(content) // 2])
    half, whole = find_runs(tmp_path)
    assert RunRecord.load(whole).status == "finished"
    with pytest.raises(AssayError, match="cannot be read"):
        RunRecord.load(half)


def test_a_thousand_records_are_read_about_as_fast_as_their_json(tmp_path: Path) -> None:
    packages = {f"package-{index}": "1.2.3" for index in range(170)}
    text = RunRecord(
        "a", "b", "finished", "", 0, "", "", packages=packages, metrics={str(i): 0.1 for i in range(20)}
    )
    text.save(tmp_path)
    content = (tmp_path / "record.json").read_bytes()
    for index in range(1000):
        folder = tmp_path / "runs" / str(index % 10) / str(index)
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "record.json").write_bytes(content)
    start = time.process_time()
    for path in (tmp_path / "runs").rglob("record.json"):
        json.loads(path.read_bytes())
    least = time.process_time() - start
    start = time.process_time()
    number = sum(RunRecord.load(run).status == "finished" for run in find_runs(tmp_path / "runs"))
    assert number == 1000
    assert time.process_time() - start < 8 * least
