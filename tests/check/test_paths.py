"""Where a run writes is judged by `check` and `train` before a run directory exists."""

from __future__ import annotations

import os
from contextlib import chdir
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf
from tests.check.jobs import prove
from tests.mounting import mounted
from typer.testing import CliRunner

from assay.check.output_paths import check_output_paths
from assay.cli.app import app
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = ("data=iris", "model=linear")
SINGLE = [
    ("hydra.run.dir=file", "'file': this is not a folder"),
    ("hydra.run.dir=file/below", "file is not a folder"),
    ("hydra.run.dir=", "expected a folder"),
    ('hydra.run.dir="a\0b"', "control character"),
    ("hydra.run.dir=locked/run", "is not writable"),
    ("callbacks.checkpoint.dirpath=file", "in its own directory"),
    ("callbacks.checkpoint.dirpath=null", "in its own directory"),
    ("callbacks.checkpoint.dirpath=${run_dir}/checkpoints/a", "in its own directory"),
    ("callbacks.checkpoint.filename='{nope}'", "unknown metric 'nope'"),
    ("callbacks.checkpoint.filename=a/../../b", "folder of checkpoints"),
    ("logger.csv.path=folder", "expected a file"),
    ("logger.csv.path=file/x.csv", "file is not a folder"),
    ("logger.csv.path=", "expected a file"),
    ("logger.csv.path=${run_dir}/log.txt", "the run itself writes"),
    ("logger.csv.path=${run_dir}/checkpoints", "the run itself writes"),
    ("logger.csv.path=locked/x.csv", "is not writable"),
    ("logger.tensorboard.save_dir=file logger=tensorboard", "not a folder"),
    ("trainer.profiler.dirpath=file debug=profiler", "not a folder"),
]
SWEEPS = [
    ("hydra.sweep.dir=file", "not a folder"),
    ("hydra.sweep.dir=", "expected a folder"),
    ("hydra.sweep.dir=locked/sweep", "is not writable"),
    ("hydra.sweep.subdir=same", "this key has no effect"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory: a `file`, a `folder`, and one that is `locked` where that can be had."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "file").write_text("kept\n")
    (folder / "folder").mkdir()
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    with chdir(folder), mounted(locked, "ro"):  # the superuser writes wherever a file system takes it
        yield folder
    locked.chmod(0o700)


def skip_where_nothing_is_locked(typed: str, places: Path) -> None:
    if "locked" in typed and os.access(places / "locked", os.W_OK):
        pytest.skip("nothing can be mounted here")


@pytest.mark.parametrize(("typed", "says"), SINGLE, ids=lambda value: value[:60])
def test_a_run_that_could_not_be_written_is_refused(typed: str, says: str, places: Path) -> None:
    skip_where_nothing_is_locked(typed, places)
    key = typed.partition("=")[0]
    before = sorted(places.rglob("*"))
    with pytest.raises(ConfigError) as caught:
        prove(*JOB, *typed.split(" "))
    assert str(caught.value).startswith(f"{key}: ")
    assert says in str(caught.value)
    hint = caught.value.hint
    assert f"{key}=" in hint or "available: " in hint or "hydra.run.dir" in hint
    assert sorted(places.rglob("*")) == before, "nothing was written"


@pytest.mark.parametrize(("typed", "says"), SWEEPS, ids=lambda value: value[:60])
@pytest.mark.parametrize("verb", ["check", pytest.param("train", marks=pytest.mark.long)])
def test_a_sweep_that_could_not_be_written_is_refused(verb: str, typed: str, says: str, places: Path) -> None:
    skip_where_nothing_is_locked(typed, places)
    before = sorted(places.rglob("*"))
    words = [verb, "-m", *JOB, "device=cpu", "seed=1,2", "hydra/launcher=serial", *typed.split(" ")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code in (1, 2), result.output
    assert result.stderr.startswith(f"error: {typed.partition('=')[0]}: "), result.stderr
    assert says in result.stderr
    assert sorted(places.rglob("*")) == before, "nothing was written"


def test_the_commands_refuse_a_file_and_a_run_that_is_there(places: Path) -> None:
    (places / "run").mkdir()
    (places / "run" / "record.json").write_text("{}")
    for verb in ("check", "train"):
        for folder, says in (("file", "this is not a folder"), ("run", "already holds a run")):
            result = CliRunner().invoke(app, [verb, *JOB, "device=cpu", f"hydra.run.dir={folder}"])
            assert says in result.stderr
            assert result.exit_code in (1, 2)
    assert (places / "file").read_text() == "kept\n"


@pytest.mark.parametrize(
    "typed",
    [
        "callbacks.checkpoint.filename='best-{epoch:02d}-{val/loss:.3f}'",
        "callbacks.checkpoint.filename=folder/best",
        "callbacks.checkpoint.filename=null",
        "hydra.run.dir=folder",
        "hydra.run.dir=.",
        "hydra.run.dir=new/folder",
        "logger.csv.path=folder/metrics.csv",
    ],
)
def test_what_can_be_written_is_not_refused(typed: str, places: Path) -> None:
    before = sorted(places.rglob("*"))
    prove(*JOB, typed)
    assert sorted(places.rglob("*")) == before, "nothing was written"


def test_a_checkpoint_callback_without_a_folder_would_write_beside_a_logger() -> None:
    own = {"own": {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "monitor": "val/loss"}}
    with pytest.raises(ConfigError, match=r"callbacks\.own\.dirpath"):
        check_output_paths(OmegaConf.create({"run_dir": "run", "callbacks": own}))
