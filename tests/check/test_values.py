"""Values, calls and callbacks that are refused before anything runs; tests/check/broken has more of them."""

from __future__ import annotations

import copy
import inspect
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import yaml
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


JOB = ("data=iris", "model=linear")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory: a `folder`, and one that is `locked` where that can be had."""
    (tmp_path / "folder").mkdir()
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    monkeypatch.chdir(tmp_path)
    with mounted(locked, "ro"):  # the superuser writes wherever a file system takes it
        yield tmp_path
    locked.chmod(0o700)


def test_a_folder_that_cannot_be_written_is_refused(places: Path) -> None:
    if os.access(places / "locked", os.W_OK):
        pytest.skip("nothing can be mounted here")
    before = sorted(places.rglob("*"))
    with pytest.raises(ConfigError, match=r"^hydra\.run\.dir: .*is not writable") as caught:
        prove(*JOB, "hydra.run.dir=locked/run")
    assert "hydra.run.dir=" in caught.value.hint
    words = ["check", "-m", *JOB, "device=cpu", "seed=1,2", "hydra/launcher=serial"]
    result = CliRunner().invoke(app, [*words, "hydra.sweep.dir=locked/sweep"])
    assert result.exit_code in (1, 2), result.output
    assert result.stderr.startswith("error: hydra.sweep.dir: "), result.stderr
    assert "is not writable" in result.stderr
    assert sorted(places.rglob("*")) == before, "nothing was written"


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
