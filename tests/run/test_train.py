"""What the check has built and read is what its run trains with."""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, Any

import lightning as L
import pytest
from omegaconf import open_dict
from tests.conftest import unchanged_process

from assay.build.assembly import Assembly, assemble
from assay.check.checker import Checker
from assay.check.report import Proof
from assay.record.run_record import RunRecord
from assay.run.train import run_job, train

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOB = ["data=wine", "model=linear", "device=cpu", "trainer.max_epochs=1", "callbacks=[last_checkpoint]"]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with unchanged_process():
        yield


@pytest.fixture
def assemblies(monkeypatch: pytest.MonkeyPatch) -> list[Assembly]:
    """What was run."""
    made: list[Assembly] = []

    def noted(*args: Any, **kwargs: Any) -> Assembly:
        made.append(assemble(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr("assay.run.train.assemble", noted)
    return made


def test_a_run_trains_with_what_was_built_and_read_for_its_check(assemblies: list[Assembly]) -> None:
    checker = Checker()
    job = checker.job([*JOB, "~data.spec", "hydra.run.dir=run"])
    proof = checker.check(job)
    run_job(job.to_config(), job.overrides, job.choices, proof, raise_errors=True)
    assert proof.trainer is not None
    assert assemblies[0].trainer is proof.trainer[0]
    assert assemblies[0].datamodule is proof.datamodule


def test_a_trainer_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[L.Trainer] = []
    init = L.Trainer.__init__

    def counted(self: L.Trainer, *args: Any, **kwargs: Any) -> None:
        made.append(self)
        init(self, *args, **kwargs)

    monkeypatch.setattr(L.Trainer, "__init__", counted)
    train([*JOB, "hydra.run.dir=run"])
    assert len(made) == 1


def test_a_run_is_the_same_though_nothing_was_handed_on(tmp_path: Path) -> None:
    whole = train([*JOB, "hydra.run.dir=whole"])
    checker = Checker()
    job = checker.job([*JOB, "hydra.run.dir=again"])
    report = checker.check(job).report
    random.seed(7)  # as far as another process may have drawn
    again = run_job(job.to_config(), job.overrides, job.choices, Proof(report), raise_errors=True)
    sums = [RunRecord.load(tmp_path / name).weights_sha256 for name in ("whole", "again")]
    assert sums[0] == sums[1] != ""
    assert whole.metrics == again.metrics


def test_a_trainer_of_other_values_is_not_taken() -> None:
    checker = Checker()
    proof = checker.check(checker.job([*JOB, "~data.spec", "trainer.max_steps=${spec.num_train}"]))
    assert proof.trainer is not None
    config = checker.job(JOB).to_config()
    with open_dict(config):
        config.spec, config.trainer.max_steps = {"num_train": 7}, "${spec.num_train}"
    assert proof.trainer_for(config) is None


def test_what_a_callback_says_when_it_is_built_is_said_once_by_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "talking.py").write_text(
        "import warnings\n\nfrom lightning.pytorch.callbacks import Callback\n\n\n"
        "class Talking(Callback):\n"
        "    def __init__(self):\n"
        "        warnings.warn('a word', UserWarning, stacklevel=1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    checker = Checker()
    job = checker.job([*JOB, "trusted_packages=[talking]", "+callbacks.own._target_=talking.Talking"])
    with warnings.catch_warnings(record=True) as checked:
        warnings.simplefilter("always")
        proof = checker.check(job)
    with warnings.catch_warnings(record=True) as run:
        warnings.simplefilter("always")
        run_job(job.to_config(), job.overrides, job.choices, proof, raise_errors=True)
    assert [sum(str(one.message) == "a word" for one in said) for said in (checked, run)] == [0, 1]
