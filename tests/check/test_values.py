"""Values, calls and callbacks that are refused before anything runs; tests/check/broken has more of them."""

from __future__ import annotations

import copy
import inspect
import json
import os
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf
from tests.check.jobs import PROVER, prove
from tests.mounting import mounted
from typer.testing import CliRunner

import assay
from assay.assemble import assembly, node, trainer
from assay.assemble.trainer_options import may_end_early
from assay.check.checker import Checker, check_job
from assay.check.signature import check_signatures, injected_arguments
from assay.check.values import check_output_paths, check_trainer, check_values
from assay.cli.app import app
from assay.compose.compose import compose, job_config
from assay.config import tree
from assay.errors import ConfigError
from assay.targets.allowed_targets import find_targets
from assay_prove.fit import check_checkpoint_names

if TYPE_CHECKING:
    from collections.abc import Iterator


VALUES = yaml.safe_load((Path(__file__).parent / "values.yaml").read_text(encoding="utf-8"))
"""By key: values that pass, and those that are refused with a hint."""
SIGNATURE = {
    *("benchmark", "deterministic", "detect_anomaly", "enable_autolog_hparams", "inference_mode"),
    *("reload_dataloaders_every_n_epochs", "sync_batchnorm"),
}
ELSEWHERE = {"strategy"}


@pytest.mark.parametrize("key", VALUES)
def test_ranges(job: DictConfig, key: str) -> None:
    good, bad = VALUES[key]["good"], VALUES[key]["bad"]
    for value in good:
        OmegaConf.update(job, key, value, merge=False)
        check_values(job)
    for value in bad:
        OmegaConf.update(job, key, value, merge=False)
        with pytest.raises(ConfigError) as caught:  # noqa: PT012 - either may refuse it
            check_values(job)
            PROVER.prove(job)
        fitting = ["trainer.val_check_interval"] if value is None else []
        assert {key, *fitting} & set(caught.value.key.split(", ")), value
        assert caught.value.hint or "expected " in caught.value.message


def test_every_argument_of_lightnings_trainer_is_checked(composed: DictConfig) -> None:
    """One that a newer Lightning adds has to be sorted in here."""
    injected = injected_arguments(composed, "trainer")
    assert injected is not None
    checked = {key.partition(".")[2] for key in VALUES if key.startswith("trainer.")}
    known = {*checked, *SIGNATURE, *ELSEWHERE, *injected.names}
    ours = {"compile", "channels_last", "interface", "micro_batch", "timeout_s"}
    assert known == {*inspect.signature(L.Trainer).parameters, *ours}


@pytest.mark.parametrize(
    ("callback", "ends"),
    [
        ("lightning.pytorch.callbacks.EarlyStopping", True),
        ("lightning.pytorch.callbacks.Timer", True),
        ("my_project.StopWhenTold", True),
        ("assay.callbacks.swa.SWA", False),
    ],
)
def test_a_run_without_a_number_of_epochs_needs_another_end(
    job: DictConfig, callback: str, ends: bool
) -> None:
    job.trainer.max_epochs = -1
    job.callbacks.other = {"_target_": callback}
    assert may_end_early(job) is ends
    if not ends:
        with pytest.raises(ConfigError, match="would never end"):
            check_trainer(job)
        job.trainer.max_time = {"hours": 1}
    check_trainer(job)


def test_custom_trainers_and_accelerators_are_left_alone(job: DictConfig) -> None:
    job.trusted_packages, job.trainer.accelerator = ["my_project"], "abacus"
    check_trainer(job)
    job.trainer._target_, job.trainer.num_nodes = "my_project.Trainer", 0
    with pytest.raises(ConfigError, match="num_nodes: expected int >= 1, got 0"):
        check_trainer(job)
    job.trainer.num_nodes, job.data = 1, {"_target_": "my_project.Data", "batch_size": "all"}
    check_values(job)


def test_none_is_taken_where_it_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "careless.py").write_text("def build(size: int = None, depth: int = 3): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    part = {"_target_": "careless.build", "size": None}
    check_signatures(OmegaConf.create({"part": part, "trusted_packages": ["careless"]}))
    with pytest.raises(ConfigError, match=r"part\.depth"):
        check_signatures(OmegaConf.create({"part": part | {"depth": None}, "trusted_packages": ["careless"]}))


def test_what_is_used_as_it_is_cannot_be_a_partial() -> None:
    typed = ["data=cifar10", "augment=mixup", "callbacks=[default,ema]", "logger=[csv]", "scheduler=plateau"]
    config = job_config(compose(typed))
    blamed: dict[str, str] = {}
    for key, _ in find_targets(tree.places(config)):
        tried = copy.deepcopy(config)
        OmegaConf.update(tried, f"{key}._partial_", True, force_add=True)
        try:
            check_signatures(tried)
            blamed[key] = ""
        except ConfigError as error:
            blamed[key] = error.key
    called_later = {"augment", "data.source.dataset", "optimizer", "scheduler"}
    assert {key for key, at in blamed.items() if not at} == called_later
    assert blamed["callbacks.ema"] == "callbacks.ema._partial_"


def test_injected_arguments_are_those_that_assemble_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given: dict[str, set[str]] = {}

    def noted(config: Any, key: str, **objects: Any) -> Any:
        given[key] = set(objects)
        return node.build(config, key, **objects)

    for room in (assembly, trainer):
        monkeypatch.setattr(room, "build", noted)
    monkeypatch.chdir(tmp_path)
    assembly.assemble(job_config(compose(["data=wine", "device=cpu"])))
    for key in ("trainer", "module"):
        injected = injected_arguments(OmegaConf.create({}), key)
        assert injected is not None
        assert set(injected.names) == given[key]


CHECKPOINT = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}


def job(total_steps: int = 10_000, **groups: Any) -> DictConfig:
    base = {"run_dir": "/run", "spec": {"total_steps": total_steps, "num_val": 10}}
    return OmegaConf.create({**base, "trainer": {}, "callbacks": {}, "logger": {}} | groups)


def test_what_the_trainer_warns_of_when_it_is_built_is_for_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talking").mkdir()
    (tmp_path / "talking" / "__init__.py").write_text(
        "import warnings\nfrom lightning.pytorch import Callback\nclass Talking(Callback):\n"
        "    def __init__(self):\n"
        "        warnings.warn('old', DeprecationWarning)\n        warnings.warn('slow')\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    checker = Checker()
    typed = ["data=iris", "device=cpu", "+callbacks.talking._target_=talking.Talking"]
    proof = checker.check(checker.job([*typed, "trusted_packages=[talking]"]))
    assert [text for text in proof.report.warnings if text in ("old", "slow")] == ["slow"]


# -- names of checkpoints

NAMES = ["val/loss", "val/accuracy"]
PLAIN = {"auto_insert_metric_name": False}


def named(filename: str) -> dict[str, Any]:
    return CHECKPOINT | {"filename": filename}


@pytest.mark.parametrize("filename", ["best", "{epoch:03d}-{step}", "{val/accuracy:.3f}", "a b {lr-AdamW}"])
def test_names_that_lightning_writes(filename: str, tmp_path: Path) -> None:
    check_checkpoint_names(job(callbacks={"mine": named(filename) | PLAIN}), NAMES)
    callback = ModelCheckpoint(tmp_path, filename=filename, auto_insert_metric_name=False)
    values = dict.fromkeys(["epoch", "step"], torch.tensor(1)) | dict.fromkeys(NAMES, torch.tensor(0.5))
    assert callback.format_checkpoint_name(values).endswith(".ckpt")


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
