"""Values, calls and callbacks that are refused before anything runs; tests/check/broken has more of them."""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig, OmegaConf
from tests.check.jobs import PROVER

from assay.build import assembly, node, trainer
from assay.build.trainer_options import may_end_early
from assay.check.callbacks import check_checkpoint_names, notes_on_averages
from assay.check.checker import Checker
from assay.check.signature import check_signatures, injected_arguments
from assay.check.values import check_trainer, check_values
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError
from assay.targets.allowed_targets import find_targets

if TYPE_CHECKING:
    from omegaconf import DictConfig


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


def test_what_other_libraries_read_of_an_annotation_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unit.py").write_text(
        "from typing import Annotated\ndef build(width: Annotated[int, 'pixels']): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    part = {"_target_": "unit.build", "width": "wide"}
    with pytest.raises(ConfigError, match=r"^part\.width: expected int, got wide"):
        check_signatures(OmegaConf.create({"part": part, "trusted_packages": ["unit"]}))


def test_what_is_used_as_it_is_cannot_be_a_partial() -> None:
    typed = ["data=cifar10", "augment=mixup", "callbacks=[default,ema]", "logger=[csv]", "scheduler=plateau"]
    config = job_config(compose(typed))
    blamed: dict[str, str] = {}
    for key, _ in find_targets(config):
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


EMA = {"_target_": "assay.callbacks.ema.EMA", "decay": 0.99}
CHECKPOINT = {"_target_": "lightning.pytorch.callbacks.ModelCheckpoint"}


def job(total_steps: int = 10_000, **groups: Any) -> DictConfig:
    base = {"run_dir": "/run", "spec": {"total_steps": total_steps, "num_val": 10}}
    return OmegaConf.create({**base, "trainer": {}, "callbacks": {}, "logger": {}} | groups)


@pytest.mark.parametrize(
    ("steps", "node", "says"),
    [
        (10_000, EMA, ""),
        (100, EMA | {"warmup_fraction": None}, "37 % of the average are the initial weights"),  # e^-1
        (50, EMA | {"warmup_fraction": 0.1}, ""),
        (10_000, EMA | {"warmup_fraction": 0.1}, ""),
    ],
)
def test_an_average_that_looks_back_too_far_is_noted(steps: int, node: Any, says: str) -> None:
    notes = notes_on_averages(job(steps, callbacks={"ema": node}))
    assert len(notes) == bool(says)
    assert says in "".join(notes)


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
