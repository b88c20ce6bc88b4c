"""Optuna's parts from plain data, and trials that report to a real study in SQLite."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lightning as L
import optuna
import pytest
import torch
from optuna.trial import create_trial
from tests.callbacks.quiet_trainer import quiet_trainer
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from assay.errors import Pruned
from assay.run.resume import resume
from assay_sweep.pruning import STUDY, Pruning, build_part, open_storage, quiet_optuna

if TYPE_CHECKING:
    from tests.conftest import Train


def concrete(module: Any, base: type) -> list[type]:
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass)]
    return [kind for kind in kinds if issubclass(kind, base) and not inspect.isabstract(kind)]


SAMPLERS = concrete(optuna.samplers, optuna.samplers.BaseSampler)
PRUNERS = concrete(optuna.pruners, optuna.pruners.BasePruner)
REQUIRED: dict[str, dict[str, Any]] = {
    "GridSampler": {"search_space": {"x": [1, 2]}},
    "PartialFixedSampler": {
        "fixed_params": {"x": 1},
        "base_sampler": {"_target_": "optuna.samplers.RandomSampler"},
    },
    "PatientPruner": {"wrapped_pruner": {"_target_": "optuna.pruners.MedianPruner"}, "patience": 1},
    "PercentilePruner": {"percentile": 25.0},
    "ThresholdPruner": {"upper": 1.0},
    "WilcoxonPruner": {},
}


@pytest.mark.parametrize("kind", [*SAMPLERS, *PRUNERS], ids=lambda kind: kind.__name__)
def test_each_of_optunas(kind: type) -> None:
    part, module = ("sampler", "samplers") if kind in SAMPLERS else ("pruner", "pruners")
    node = {"_target_": f"optuna.{module}.{kind.__name__}", **REQUIRED.get(kind.__name__, {})}
    assert type(build_part(part, node, seed=1)) is kind


MEDIAN = {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 1}
JOB = ("data=digits", "model=linear", "trainer.max_epochs=4", "trainer.limit_train_batches=3")


class Study:
    """A study in a file, and what a job is told of it."""

    def __init__(self, folder: Path, direction: Literal["minimize", "maximize"] = "minimize") -> None:
        self.file = str(folder / "study.log")
        with quiet_optuna():
            self.study = optuna.create_study(
                storage=open_storage(self.file), study_name=STUDY, directions=[direction]
            )

    def finished(self, *values: float) -> None:
        """A trial that came through with these values, one per epoch."""
        made = create_trial(value=values[-1], intermediate_values=dict(enumerate(values)))
        self.study.add_trial(made)

    def trial(self, **more: Any) -> dict[str, Any]:
        """What the next trial's job is given."""
        number = self.study.ask().number
        given = {"monitor": "val/loss", "storage": self.file, "trial": number, "pruner": MEDIAN}
        return {**given, **more}

    def reported(self, number: int) -> dict[int, float]:
        return self.study.get_trials()[number].intermediate_values


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path)


class Net(L.LightningModule):
    """Its validation loss is what it is told, one value per epoch."""

    def __init__(self, losses: list[float]) -> None:
        super().__init__()
        self.losses, self.weight = losses, torch.nn.Parameter(torch.zeros(()))
        self.steps = 0

    @override
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.steps += 1
        return self.weight * 0

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/loss", self.losses[self.current_epoch], sync_dist=True)

    @override
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(losses: list[float], callback: Pruning, **more: Any) -> tuple[Net, str]:
    """Train; the module, and how the run was pruned."""
    net, data = Net(losses), DataLoader(TensorDataset(torch.zeros(4, 1)))
    trainer = quiet_trainer(callback, max_epochs=len(losses), num_sanity_val_steps=1, **more)
    try:
        trainer.fit(net, data, data)
    except Pruned as end:
        return net, str(end)
    return net, ""


pytestmark = [
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*logging interval.*"),
]


def test_a_trial_worse_than_the_median_ends_at_its_epochs_end(study: Study) -> None:
    study.finished(1.0, 0.5, 0.2, 0.1)
    trial = study.trial()
    net, end = fit([0.9, 0.8, 0.7, 0.6], Pruning(**trial))
    assert end == "pruned at epoch 2: val/loss was 0.8"
    assert net.steps == 8
    assert study.reported(trial["trial"]) == pytest.approx({0: 0.9, 1: 0.8})


def test_validations_within_an_epoch_are_told_apart(study: Study) -> None:
    trial = study.trial()
    fit([0.9, 0.8], Pruning(**trial), val_check_interval=2)
    assert study.reported(trial["trial"]) == pytest.approx({2: 0.9, 4: 0.9, 6: 0.8, 8: 0.8})
    study.finished(*[0.0] * 9)
    net, end = fit([0.9, 0.8], Pruning(**study.trial()), val_check_interval=2)
    assert (end, net.steps) == ("pruned at step 2: val/loss was 0.9", 2)


def test_a_study_that_cannot_be_reached_prunes_nothing(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for gone in ({"storage": str(tmp_path / "no" / "such.log")}, {"trial": 99}):
        caplog.clear()
        assert fit([0.9, 0.8], Pruning(**{**study.trial(), **gone}))[1] == ""
        assert "the study cannot be reached" in caplog.text, gone
        assert caplog.text.count("cannot be reached") == 1, "it is said once"


# -- a whole run ---------------------------------------------------------------------------------------------


def test_a_pruned_run_keeps_its_checkpoints_and_rows_and_can_be_resumed(
    study: Study, train: Train, tmp_path: Path
) -> None:
    study.finished(*[0.0] * 4)
    trial = study.trial()
    run = train(
        *JOB, "callbacks=[default]", "~callbacks.progress_bar", cwd=tmp_path, callbacks=[Pruning(**trial)]
    )
    assert run.record["status"] == "pruned"
    assert run.record["reason"].startswith("pruned at epoch 1: val/loss was ")
    assert run.record["metrics"]["val/loss"] == pytest.approx(study.reported(trial["trial"])[0])
    assert len(run.column("val/loss")) == 1
    assert len(run.column("train/loss")) >= 1
    assert run.record["best"]["epoch"] == 1
    assert {"best", "last"} <= run.record["checkpoints"].keys()
    result = resume(run.run_dir)  # without the study, it goes on to its end
    assert result.status == "finished"


# -- other processes -----------------------------------------------------------------------------------------


def script(tmp_path: Path, text: str, trial: dict[str, Any]) -> str:
    """What a process of its own says."""
    file = tmp_path / "script.py"
    file.write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, str(file), json.dumps(trial), str(Path(__file__).parents[2])],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env={**environment, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RANKS = """
import json, os, sys, warnings
sys.path.insert(0, sys.argv[2])
warnings.simplefilter("ignore")
from tests.callbacks.test_pruning import fit
from assay_sweep.pruning import Pruning
net, end = fit([0.9, 0.8, 0.7], Pruning(**json.loads(sys.argv[1])), strategy="ddp", devices=2)
print(f"rank {os.environ.get('LOCAL_RANK', '0')}: {net.steps} {end}", flush=True)
"""


@pytest.mark.long
def test_all_ranks_end_together_and_the_first_one_alone_reports(study: Study, tmp_path: Path) -> None:
    study.finished(*[0.0] * 3)
    trial = study.trial()
    said = script(tmp_path, RANKS, trial)
    for rank in (0, 1):  # which write to one output, perhaps within each other's line
        assert said.count(f"rank {rank}: 2 pruned at epoch 1: val/loss was 0.9") == 1, said
    assert study.reported(trial["trial"]) == pytest.approx({0: 0.9})


# -- cost ----------------------------------------------------------------------------------------------------
