"""Where a run writes is refused by `check` and by `train` before a run directory exists."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from omegaconf import DictConfig, OmegaConf
from tests.mounting import mounted
from typer.testing import CliRunner

from assay.check.output_paths import check_output_paths
from assay.check.prove import Prover
from assay.cli.app import app
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

JOB = ("data=iris", "model=linear", "device=cpu")
LONG = "x" * 300
DEEP = "/".join(["x" * 200] * 25)
TENSORBOARD = "logger=tensorboard logger.tensorboard"
PROFILER = "debug=profiler trainer.profiler"
SINGLE = [
    ("hydra.run.dir=file", "hydra.run.dir", "'file': this is not a folder"),
    ("hydra.run.dir=file/below", "hydra.run.dir", "file is not a folder"),
    ("hydra.run.dir=/dev/null", "hydra.run.dir", "not a folder"),
    ("hydra.run.dir=", "hydra.run.dir", "a folder was expected"),
    (f"hydra.run.dir=outputs/{LONG}", "hydra.run.dir", "a name of 300 bytes; a file system takes 255"),
    (f"hydra.run.dir={DEEP}", "hydra.run.dir", "is too long"),
    ('hydra.run.dir="a\0b"', "hydra.run.dir", "control character"),
    ("hydra.run.dir=locked/run", "hydra.run.dir", "cannot be written to"),
    (f"name='{'漢' * 99}'", "name", "a name of 297 bytes"),
    ("name=run hydra.run.dir=file", "hydra.run.dir", "not a folder"),
    ("callbacks.checkpoint.dirpath=file", "callbacks.checkpoint.dirpath", "in its own directory"),
    ("callbacks.checkpoint.filename='{epoch'", "callbacks.checkpoint.filename", "expected '}'"),
    ("callbacks.checkpoint.filename='{nope}'", "callbacks.checkpoint.filename", "no metric 'nope'"),
    ("callbacks.checkpoint.filename='{val/los}'", "callbacks.checkpoint.filename", "did you mean 'val/loss'"),
    ("callbacks.checkpoint.filename='{epoch:zz}'", "callbacks.checkpoint.filename", "format code"),
    ("callbacks.checkpoint.filename='{epoch:99999}'", "callbacks.checkpoint.filename", "cannot be filled in"),
    ("callbacks.checkpoint.filename='{0}'", "callbacks.checkpoint.filename", "no metric '0'"),
    ("callbacks.checkpoint.filename='{}'", "callbacks.checkpoint.filename", "cannot be filled in"),
    ("callbacks.checkpoint.filename='}'", "callbacks.checkpoint.filename", "Single '}'"),
    ("callbacks.checkpoint.filename=a/../../b", "callbacks.checkpoint.filename", "folder of checkpoints"),
    (f"callbacks.checkpoint.filename={LONG}", "callbacks.checkpoint.filename", "a file system takes 255"),
    (f"callbacks.checkpoint.filename={'x' * 240}", "callbacks.checkpoint.filename", "takes 255"),
    (
        "callbacks.checkpoint.filename=last ~callbacks.last_checkpoint",
        "callbacks.checkpoint.filename",
        "last",
    ),
    (
        "callbacks.checkpoint.filename=null callbacks.last_checkpoint.filename=null "
        "+callbacks.last_checkpoint.auto_insert_metric_name=false",
        "callbacks.last_checkpoint.filename",
        "writes {epoch}-{step}.ckpt already",
    ),
    ("logger.csv.path=folder", "logger.csv.path", "a file was expected"),
    ("logger.csv.path=file/x.csv", "logger.csv.path", "file is not a folder"),
    ("logger.csv.path=", "logger.csv.path", "a file was expected"),
    ("logger.csv.path=${run_dir}/log.txt", "logger.csv.path", "the run itself writes"),
    ("logger.csv.path=${run_dir}/checkpoints", "logger.csv.path", "the run itself writes"),
    (f"logger.csv.path=${{run_dir}}/{LONG}", "logger.csv.path", "takes 255"),
    ("logger.csv.path=locked/x.csv", "logger.csv.path", "cannot be written to"),
    (
        "+logger.b._target_=lightning.pytorch.loggers.CSVLogger +logger.b.save_dir=${run_dir} "
        "+logger.b.name= +logger.b.version=",
        "logger.b",
        "writes the same file already",
    ),
    (f"{TENSORBOARD}.save_dir=file", "logger.tensorboard.save_dir", "not a folder"),
    (f"{TENSORBOARD}.save_dir=", "logger.tensorboard.save_dir", "a folder was expected"),
    (f"{TENSORBOARD}.version={LONG}", "logger.tensorboard.version", "takes 255"),
    (f"{TENSORBOARD}.name={LONG}", "logger.tensorboard.name", "takes 255"),
    (f"{PROFILER}.dirpath=file", "trainer.profiler.dirpath", "not a folder"),
    (f"{PROFILER}.filename={LONG}", "trainer.profiler.filename", "takes 255"),
]
SWEEPS = [
    ("hydra.sweep.dir=file", "hydra.sweep.dir", "not a folder"),
    ("hydra.sweep.dir=file/below", "hydra.sweep.dir", "file is not a folder"),
    ("hydra.sweep.dir=", "hydra.sweep.dir", "a folder was expected"),
    ("hydra.sweep.dir=locked/sweep", "hydra.sweep.dir", "cannot be written to"),
    (f"hydra.sweep.dir={LONG}", "hydra.sweep.dir", "takes 255"),
    (f"hydra.sweep.dir={DEEP}", "hydra.sweep.dir", "too long"),
    (f"hydra.sweep.subdir={LONG}${{seed}}", "hydra.sweep.subdir", "takes 255"),
    ("hydra.sweep.dir=. hydra.sweep.subdir=file/${seed}", "hydra.sweep.subdir", "file is not a folder"),
    ("hydra.sweep.subdir=same", "hydra.sweep.subdir", "both write into"),
    ("hydra.sweep.subdir=", "hydra.sweep.subdir", "outside of the sweep"),
]


def job(*overrides: str) -> DictConfig:
    return job_config(compose(["data=iris", "model=mlp", *overrides]))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory: a `file`, a `folder`, and one that is `locked` where that can be had."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "file").write_text("kept\n")
    (folder / "folder").mkdir()
    locked = folder / "locked"
    locked.mkdir(mode=0o500)
    before = Path.cwd()
    os.chdir(folder)
    with mounted(locked, "ro"):  # the superuser writes wherever a file system takes it
        yield folder
    os.chdir(before)
    locked.chmod(0o700)


@pytest.fixture(scope="module")
def prover() -> Prover:
    """One for all jobs, as in a sweep."""
    return Prover()


def skip_where_nothing_is_locked(typed: str, places: Path) -> None:
    if "locked" in typed and os.access(places / "locked", os.W_OK):
        pytest.skip("nothing can be mounted here")


def refused(verb: str, words: list[str], key: str, says: str, places: Path) -> None:
    before = sorted(places.rglob("*"))
    result = CliRunner().invoke(app, [verb, *words])
    assert result.exit_code in (1, 2), result.output
    assert result.stderr.startswith(f"error: {key}: "), result.stderr
    assert says in result.stderr
    assert f"→ {key}=" in result.stderr or "there is: " in result.stderr or f"~{key}" in result.stderr
    assert "Traceback" not in result.output
    assert sorted(places.rglob("*")) == before, "nothing was written"
    assert (places / "file").read_text() == "kept\n"


@pytest.mark.parametrize(("typed", "key", "says"), SINGLE, ids=lambda value: value[:60])
def test_a_run_that_could_not_be_written_is_refused(
    typed: str, key: str, says: str, places: Path, prover: Prover
) -> None:
    skip_where_nothing_is_locked(typed, places)
    before = sorted(places.rglob("*"))
    with pytest.raises(ConfigError) as caught:  # noqa: PT012 - some of it is found by what is built
        config = job_config(compose([*JOB, *typed.split(" ")]))
        check_output_paths(config)
        prover.prove(config)
    assert str(caught.value).startswith(f"{key}: ")
    assert says in str(caught.value)
    hint = caught.value.hint
    assert f"{key}=" in hint or "there is: " in hint or f"~{key}" in hint
    assert sorted(places.rglob("*")) == before, "nothing was written"


@pytest.mark.always(
    "hydra.run.dir=file-hydra.run.dir-'file': this is not a folder-check",
    "callbacks.checkpoint.filename='{nope}'-callbacks.checkpoint.filename-no metric 'nope'-train",
)
@pytest.mark.parametrize("verb", ["check", "train"])
@pytest.mark.parametrize(("typed", "key", "says"), [SINGLE[0], SINGLE[12], SINGLE[24]])
def test_the_command_says_so(typed: str, key: str, says: str, verb: str, places: Path) -> None:
    refused(verb, [*JOB, *typed.split(" ")], key, says, places)


@pytest.mark.always
@pytest.mark.parametrize(
    ("typed", "key", "says", "verb"),
    [*((*case, "check") for case in SWEEPS), *((*case, "train") for case in SWEEPS[::6])],
    ids=lambda value: value[:60],
)
def test_a_sweep_that_could_not_be_written_is_refused(
    typed: str, key: str, says: str, verb: str, places: Path
) -> None:
    skip_where_nothing_is_locked(typed, places)
    words = ["-m", *JOB, "seed=1,2", "hydra/launcher=serial"]
    refused(verb, [*words, *typed.split(" ")], key, says, places)


def test_a_directory_that_holds_a_run_is_refused(places: Path) -> None:
    (places / "run").mkdir()
    (places / "run" / "record.json").write_text("{}")
    result = CliRunner().invoke(app, ["check", *JOB, "hydra.run.dir=run"])
    assert "already holds a run" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize(
    "typed",
    [
        "callbacks.checkpoint.filename='best-{epoch:02d}-{val/loss:.3f}'",
        "callbacks.checkpoint.filename='{step}-{lr-AdamW}'",
        "callbacks.checkpoint.filename=folder/best",
        "callbacks.checkpoint.filename=null",
        "hydra.run.dir=folder",
        "hydra.run.dir=.",
        "hydra.run.dir=new/folder",
        "logger.csv.path=folder/metrics.csv",
    ],
)
def test_what_can_be_written_is_not_refused(typed: str, places: Path, prover: Prover) -> None:
    before = sorted(places.rglob("*"))
    config = job_config(compose([*JOB, typed]))
    check_output_paths(config)
    prover.prove(config)
    assert sorted(places.rglob("*")) == before, "nothing was written"


def test_the_command_does_not_refuse_it(places: Path) -> None:
    result = CliRunner().invoke(app, ["check", *JOB, "hydra.run.dir=new/folder"])
    assert result.exit_code == 0, result.output


def test_a_name_from_a_config_that_no_file_can_have_is_refused() -> None:
    config = job()
    config.run_dir = "a\0b"
    with pytest.raises(ConfigError, match=r"^hydra\.run\.dir: 'a\\x00b': it holds a NUL"):
        check_output_paths(config)


def test_the_shipped_options_write_into_the_run_directory() -> None:
    check_output_paths(job())
    check_output_paths(job("hydra.run.dir=/tmp/somewhere/else"))


@pytest.mark.parametrize(
    "place", ["/elsewhere", "checkpoints", "null", "${run_dir}", "${run_dir}/checkpoints/a"]
)
@pytest.mark.parametrize("name", ["checkpoint", "last_checkpoint"])
def test_checkpoints_elsewhere_are_refused_with_what_to_type(name: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"^callbacks\.{name}\.dirpath: ") as refused:
        check_output_paths(job(f"callbacks.{name}.dirpath={place}"))
    assert "hydra.run.dir" in refused.value.hint


def test_a_checkpoint_callback_that_says_nothing_would_keep_them_beside_a_logger() -> None:
    own = {"own": {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint", "monitor": "val/loss"}}
    with pytest.raises(ConfigError, match=r"callbacks\.own\.dirpath"):
        check_output_paths(OmegaConf.create({"run_dir": "run", "callbacks": own}))
