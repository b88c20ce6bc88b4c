"""Where a run writes is judged before a run directory exists, and no name of a file holds a secret."""

from __future__ import annotations

import json
import os
from contextlib import chdir
from typing import TYPE_CHECKING

import pytest
from omegaconf import OmegaConf
from tests.check.jobs import prove
from tests.mounting import mounted
from typer.testing import CliRunner

import assay
from assay.check.checker import check_job
from assay.check.values import check_output_paths
from assay.cli.app import app
from assay.compose.compose import compose, job_config
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


LOGGER = """\
# @package logger.keyed
# A logger that wants a key.
_target_: keyed_logger.Keyed
save_dir: ${run_dir}
api_key: ???
"""
MODULE = """\
from lightning.pytorch.loggers import CSVLogger
given = []
class Keyed(CSVLogger):
    def __init__(self, save_dir, api_key):
        super().__init__(save_dir)
        given.append(api_key)
"""
TYPED = "typed-in-plain-sight"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf" / "logger").mkdir(parents=True)
    (tmp_path / "conf" / "logger" / "keyed.yaml").write_text(LOGGER)
    (tmp_path / "conf" / "project.yaml").write_text("trusted_packages: [keyed_logger]\n")
    (tmp_path / "keyed_logger.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_typed_key_reaches_the_logger_and_no_file(project: Path) -> None:
    overrides = ["data=iris", "model=linear", "logger=[csv,keyed]", f"logger.keyed.api_key={TYPED}"]
    result = assay.train([*overrides, "trainer.max_epochs=1", "hydra.run.dir=run"])
    import keyed_logger  # type: ignore[import-not-found]  # made by the fixture

    assert keyed_logger.given == [TYPED]
    for path in result.run_dir.rglob("*"):
        if path.is_file():
            assert TYPED.encode() not in path.read_bytes(), path
    assert "logger.keyed.api_key=***" in json.loads((result.run_dir / "record.json").read_text())["overrides"]
    with pytest.raises(ConfigError, match=r"logger\.keyed\.api_key: a secret was here"):
        check_job(job_config(OmegaConf.create(OmegaConf.load(result.run_dir / "config.yaml"))))  # type: ignore[arg-type]  # a mapping


@pytest.mark.parametrize(
    "override",
    [
        "name=a{}",
        "hydra.run.dir=outputs/{}",
        "callbacks.checkpoint.filename=best-{}",
        "hydra.run.dir='outputs/logger.keyed.api_key=abc,x=1'",
    ],
)
def test_no_file_is_named_after_a_secret(
    override: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf0aB4dE6gH8jK1mN3")
    with pytest.raises(ConfigError, match="would contain a secret"):
        check_job(job_config(compose([override.format("hf0aB4dE6gH8jK1mN3")])))
