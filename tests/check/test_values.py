"""Values that are refused without torch, before anything is built; tests/check/broken has more of them."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING

import lightning as L
import pytest
import yaml
from omegaconf import OmegaConf
from tests.check.jobs import PROVER

from assay.build.trainer_options import may_end_early
from assay.check.signature import injected_arguments
from assay.check.values import check_trainer, check_values
from assay.errors import ConfigError

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
