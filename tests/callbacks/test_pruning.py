"""Trials that report to a real study in SQLite, in this process, a forked one and a fresh one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lightning as L
import optuna
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from optuna.trial import TrialState, create_trial
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from assay.callbacks.optuna_study import close_storage, no_news, open_storage, sqlite_url
from assay.callbacks.pruning import Pruned, Pruning, pruning_from
from assay.errors import AssayError
from assay.run.resume import resume

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Train

MEDIAN = {"_target_": "optuna.pruners.MedianPruner", "n_startup_trials": 1}
JOB = ("data=digits", "model=linear", "trainer.max_epochs=4", "trainer.limit_train_batches=3")


class Study:
    """A study in a file, and what a job is told of it."""

    def __init__(self, folder: Path, direction: Literal["minimize", "maximize"] = "minimize") -> None:
        self.url = sqlite_url(folder / "study.db")
        with no_news():
            self.storage = optuna.storages.get_storage(open_storage(self.url, is_new=True))
            self.study = optuna.create_study(storage=self.storage, study_name="sweep", directions=[direction])

    def finished(self, *values: float) -> None:
        """A trial that came through with these values, one per epoch."""
        made = create_trial(value=values[-1], intermediate_values=dict(enumerate(values)))
        self.study.add_trial(made)

    def trial(self, **more: Any) -> dict[str, Any]:
        """What the next trial's job is given."""
        number = self.study.ask().number
        given = {
            "monitor": "val/loss",
            "storage": self.url,
            "study": "sweep",
            "trial": number,
            "pruner": MEDIAN,
        }
        return {**given, **more}

    def reported(self, number: int) -> dict[int, float]:
        return self.study.get_trials()[number].intermediate_values


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    made = Study(tmp_path)
    yield made
    close_storage(made.storage)


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
    trainer = L.Trainer(
        max_epochs=len(losses),
        accelerator="cpu",
        logger=False,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in more.get("callbacks", ())),
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=1,
        **{**more, "callbacks": [callback, *more.get("callbacks", ())]},
    )
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
    net, end = fit([0.9, 0.8, 0.7, 0.6], pruning_from(trial))
    assert end == "pruned at epoch 2: val/loss was 0.8"
    assert net.steps == 8
    assert study.reported(trial["trial"]) == pytest.approx({0: 0.9, 1: 0.8})


def test_a_good_trial_comes_through(study: Study) -> None:
    study.finished(1.0, 0.5, 0.2, 0.1)
    trial = study.trial()
    net, end = fit([0.9, 0.4, 0.1, 0.05], pruning_from(trial))
    assert (end, net.steps) == ("", 16)
    assert study.reported(trial["trial"]) == pytest.approx({0: 0.9, 1: 0.4, 2: 0.1, 3: 0.05})


def test_larger_is_better_where_the_study_says_so(tmp_path: Path) -> None:
    made = Study(tmp_path, "maximize")
    made.finished(0.5, 0.5)
    assert fit([0.9, 0.9, 0.9], pruning_from(made.trial()))[1] == ""
    assert fit([0.4, 0.9, 0.9], pruning_from(made.trial()))[1].startswith("pruned at epoch 1")
    close_storage(made.storage)


def test_at_its_last_epoch_a_run_is_done(study: Study) -> None:
    study.finished(1.0, 0.1)
    assert fit([0.9, 0.8], pruning_from(study.trial()))[1] == ""


def test_validations_within_an_epoch_are_told_apart(study: Study) -> None:
    trial = study.trial()
    fit([0.9, 0.8], pruning_from(trial), val_check_interval=2)
    assert study.reported(trial["trial"]) == pytest.approx({2: 0.9, 4: 0.9, 6: 0.8, 8: 0.8})
    study.finished(*[0.0] * 9)
    net, end = fit([0.9, 0.8], pruning_from(study.trial()), val_check_interval=2)
    assert (end, net.steps) == ("pruned at step 2: val/loss was 0.9", 2)


def test_without_an_objective_it_watches_what_the_best_checkpoint_does(study: Study, tmp_path: Path) -> None:
    trial = study.trial(monitor=None)
    kept = ModelCheckpoint(tmp_path / "kept", monitor="val/loss")
    fit([0.9, 0.8], pruning_from(trial), callbacks=[kept])
    assert len(study.reported(trial["trial"])) == 2
    with pytest.raises(AssayError, match="no objective"):
        fit([0.9], pruning_from(trial))


def test_a_metric_that_is_not_there_is_named(study: Study) -> None:
    with pytest.raises(AssayError, match="val/acc is not a metric of this job") as caught:
        fit([0.9], pruning_from(study.trial(monitor="val/acc")))
    assert "val/loss" in caught.value.hint


def test_a_step_reported_twice_keeps_its_first_value(study: Study) -> None:
    trial = study.trial()
    fit([0.9, 0.8], pruning_from(trial))
    fit([0.7, 0.8, 0.75], pruning_from(trial))
    assert study.reported(trial["trial"]) == pytest.approx({0: 0.9, 1: 0.8, 2: 0.75})


def test_a_trial_that_has_ended_asks_nothing(study: Study) -> None:
    study.finished(0.0, 0.0)
    trial = study.trial()
    study.study.tell(trial["trial"], state=TrialState.FAIL)
    assert fit([0.9, 0.8, 0.7], pruning_from(trial))[1] == ""


def test_a_study_that_cannot_be_reached_prunes_nothing(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for gone in ({"storage": sqlite_url(tmp_path / "no" / "such.db")}, {"study": "other"}, {"trial": 99}):
        caplog.clear()
        assert fit([0.9, 0.8], Pruning(**{**study.trial(), **gone}))[1] == ""
        assert "the study cannot be reached" in caplog.text, gone
        assert caplog.text.count("cannot be reached") == 1, "it is said once"


@pytest.mark.parametrize("name", ["SuccessiveHalvingPruner", "HyperbandPruner", "NopPruner"])
def test_each_pruner_works(name: str, study: Study) -> None:
    more = {"HyperbandPruner": {"max_resource": 4}}.get(name, {})
    ends = []
    for level in range(8):
        pruner = {"_target_": f"optuna.pruners.{name}", **more}
        trial = study.trial(pruner=pruner)
        _, end = fit([float(level)] * 4, pruning_from(trial))
        study.study.tell(trial["trial"], None if end else level, TrialState.PRUNED if end else None)
        ends.append(bool(end))
    assert any(ends) == (name != "NopPruner")
    assert not ends[0]


# -- a whole run ---------------------------------------------------------------------------------------------


def test_a_pruned_run_keeps_its_checkpoints_and_rows_and_can_be_resumed(
    study: Study, train: Train, tmp_path: Path
) -> None:
    study.finished(*[0.0] * 4)
    trial = study.trial()
    run = train(
        *JOB,
        "callbacks=[default]",
        "~callbacks.progress_bar",
        cwd=tmp_path,
        callbacks=[pruning_from(trial)],
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


# Python 3.12 warns of a fork beside threads; this one does nothing that another thread could have begun.
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_has_a_connection_of_its_own(study: Study) -> None:
    study.finished(*[0.0] * 4)
    callback = pruning_from(study.trial())
    callback._study()  # this process has one open
    before = callback._opened
    child = os.fork()
    if not child:
        ends = None
        try:
            ends = callback._report(0.9, 0)
        finally:
            os._exit(0 if ends and callback._opened is not before else 1)
    _, status = os.waitpid(child, 0)
    callback._close()
    assert os.waitstatus_to_exitcode(status) == 0
    assert study.study.get_trials()[1].intermediate_values == pytest.approx({0: 0.9})


RANKS = """
import json, os, sys, warnings
sys.path.insert(0, sys.argv[2])
warnings.simplefilter("ignore")
from tests.callbacks.test_pruning import fit
from assay.callbacks.pruning import pruning_from
net, end = fit([0.9, 0.8, 0.7], pruning_from(json.loads(sys.argv[1])), strategy="ddp", devices=2)
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


def test_a_report_costs_little(study: Study) -> None:
    for number in range(60):
        study.finished(*[float(number)] * 20)
    callback = pruning_from(study.trial())
    callback.monitor = "val/loss"
    costs = []
    for step in range(20):
        start = time.thread_time()
        callback._report(0.1, step)
        costs.append(time.thread_time() - start)
    assert sorted(costs)[10] < 0.02, f"{sorted(costs)[10] * 1000:.1f} ms of CPU"
    callback._close()
