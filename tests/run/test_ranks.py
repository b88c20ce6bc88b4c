"""The launcher of ranks, other launchers, and one run of two ranks over gloo: its metrics are exact."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil
import pytest
import torch
from omegaconf import OmegaConf
from sklearn import metrics as sk  # type: ignore[import-untyped]  # scikit-learn ships no types
from tests.forks import Forks

import assay
from assay.check.checker import Checker
from assay.data.core.data_module import DataModule
from assay.data.table.bundled import Bundled
from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay.run.resume import resume
from assay_analysis import predictions_file
from assay_lab.reproduce import reproduce
from assay_serve.evaluate import evaluate
from assay_sweep import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Train, Trained


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Forks]:
    """A launcher whose two ranks have met and wait; they do not end when they are told to."""
    with Forks() as forks:
        forks.start(cwd=tmp_path, module="tests.run.waiting_ranks")
        wait_for(lambda: sum(bool(path.read_text()) for path in tmp_path.glob("pid*")) == 2)
        yield forks


def launcher(forks: Forks) -> psutil.Process:
    [process] = psutil.Process(forks.pid).children()
    return process


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they look once a second")
def test_the_store_is_for_this_machine_alone_and_ranks_die_with_their_launcher(
    waiting: Forks, tmp_path: Path
) -> None:
    listening = [
        one.laddr.ip
        for process in map(psutil.Process, (launcher(waiting).pid, *pids(tmp_path)))
        for one in process.net_connections("inet")
        if one.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
    launcher(waiting).kill()
    assert waiting.wait().killed
    wait_for(lambda: not any(map(psutil.pid_exists, pids(tmp_path))))


def test_a_signal_is_passed_on_and_the_launcher_waits(waiting: Forks, tmp_path: Path) -> None:
    launcher(waiting).terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    assert not waiting.has_ended()
    (tmp_path / "go").touch()
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "SIGTERM"


@pytest.mark.always("SIGINT")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_second_signal_ends_ranks_that_hang(waiting: Forks, tmp_path: Path, number: str) -> None:
    launcher(waiting).terminate()
    wait_for(lambda: len(list(tmp_path.glob("told*"))) == 2)
    launcher(waiting).send_signal(getattr(signal, number))
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "SIGTERM"
    assert not any(map(psutil.pid_exists, pids(tmp_path)))


def test_when_the_second_dies_the_first_is_told(waiting: Forks, tmp_path: Path) -> None:
    psutil.Process(pids(tmp_path)[1]).kill()
    wait_for((tmp_path / "told0").exists)
    (tmp_path / "go").touch()
    assert waiting.wait().code == 0
    assert (tmp_path / "output.txt").read_text().strip() == "failed"


JOB = ("data=wine", "model=linear", "device=cpu", "callbacks=[]", "trainer.max_epochs=1")
SLURM = {
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE", "SLURM_NNODES"), "1"),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), "0"),
    "SLURM_JOB_ID": "12345",
    "SLURM_JOB_NAME": "train",
}
"""What `sbatch --ntasks-per-node=1` and `srun` tell a process."""
VERBS: dict[str, Callable[[Path, Path], object]] = {
    "train": lambda _, new: assay.train([*JOB, f"hydra.run.dir={new}"]),
    "sweep": lambda _, new: session.start_sweep([*JOB, f"hydra.sweep.dir={new}", "seed=1,2"], None),
    "check": lambda _, new: Checker(None).job([*JOB, f"hydra.run.dir={new}"]),
    "resume": lambda run, _: resume(run, ["trainer.max_epochs=2"]),
    "resume a finished run": lambda run, _: resume(run),
    "eval": lambda run, _: evaluate(run),
    "reproduce": lambda run, _: reproduce(run),
}


@pytest.fixture(scope="module")
def finished(train: Train) -> Trained:
    return train("data=wine", "model=linear")


@pytest.mark.always(
    "WORLD_SIZE-train",
    "OMPI_COMM_WORLD_SIZE-eval",
    *(f"SLURM_STEP_NUM_TASKS-{verb}" for verb in ("check", "resume")),
)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("word", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE"])
def test_one_of_several_processes(
    finished: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, word: str
) -> None:
    monkeypatch.setenv(word, "2")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    before = {path: path.stat().st_mtime_ns for path in finished.run_dir.rglob("*") if path.name != ".lock"}
    with pytest.raises(AssayError, match=f"{word}=2: this is one of 2 processes of another launcher"):
        VERBS[verb](finished.run_dir, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.parametrize("step", [{}, {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}])
def test_a_shell_in_an_allocation_is_no_task(monkeypatch: pytest.MonkeyPatch, step: dict[str, str]) -> None:
    """As `salloc -n4` and the script of `sbatch -n4`; some systems run the shell as a step of one task."""
    for name, value in {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7", **step}.items():
        monkeypatch.setenv(name, value)
    checker = Checker(None)
    assert checker.check(checker.job(JOB)).report.devices == 1


def test_an_allocation_of_one_task(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    job = ("data=wine", "model=linear", "trainer.max_epochs=2")
    run = train(*job, "callbacks=[checkpoint]")
    assert run.record["status"] == "finished"
    assert evaluate(run.run_dir).metrics["test/loss"] == pytest.approx(run.record["metrics"]["test/loss"])
    checker = Checker(None)
    assert checker.check(checker.job([*JOB, "device=ddp_cpu", "trainer.devices=2"])).report.devices == 2


PROJECT = Path(__file__).parents[1] / "training" / "project"


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`assay train device=ddp_cpu` once; tests/sweep/test_poison.py starts interpreters for its ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    words = (
        *("train", "--config-dir", str(PROJECT / "conf"), "trusted_packages=[own_project]"),
        *("data=breast_cancer", "device=ddp_cpu", "callbacks=[checkpoint,last_checkpoint,rank_notes]"),
        *("trainer.max_epochs=2", "model.hidden=[16]", "optimizer.lr=0.01", "trainer.log_every_n_steps=1"),
        *("data.eval_batch_size=16", "seed=3"),
    )
    with Forks(PYTHONPATH=str(PROJECT)) as forks:
        ended = forks.command(*words, cwd=folder, forked_children=2)
    assert ended.code == 0, (folder / "output.txt").read_text()
    [record] = folder.rglob("record.json")
    return record.parent


@pytest.fixture(scope="module")
def notes(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads((run_dir.parent / "notes" / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def test_one_run_directory_that_finished(run_dir: Path) -> None:
    record = json.loads((run_dir / "record.json").read_text())
    assert record["status"] == "finished"
    assert set(record["checkpoints"]) == {"best", "last"}
    config: Any = OmegaConf.to_container(OmegaConf.load(run_dir / "config.yaml"))
    assert config["spec"]["steps_per_epoch"] == config["spec"]["num_train"] // (2 * 32)
    assert config["spec"]["total_steps"] == 2 * config["spec"]["steps_per_epoch"]
    assert re.search("device: 2 . cpu", (run_dir / "log.txt").read_text())
    assert (
        torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
        == config["spec"]["total_steps"]
    )
    rows = (run_dir / "metrics.csv").read_text().splitlines()
    assert sum(line.count("nan") for line in rows) == 0
    of_steps = 2 * config["spec"]["total_steps"]  # its loss, its learning rate
    assert len(rows) == 1 + of_steps + 2 * 2 + 1, "one rank alone writes"


def test_ranks_agree_on_weights_and_draw_apart(notes: list[dict[str, Any]]) -> None:
    first, second = notes
    assert first["world_size"] == second["world_size"] == 2
    assert first["backend"] == second["backend"] == "gloo"
    assert first["weights"] == second["weights"]
    assert len(first["seeds"]) == len(second["seeds"]) == 12
    every = first["seeds"] + second["seeds"]
    assert len(set(every)) == len(every), "each rank and each step has a seed of its own"
    assert not set(first["first_inputs"]) & set(second["first_inputs"]), "no batch is seen twice"


@pytest.mark.parametrize(("part", "role"), [("test", "best"), ("val", "last")])
def test_metrics_are_those_of_all_samples(run_dir: Path, part: str, role: Literal["best", "last"]) -> None:
    """Scikit-learn on the whole part, which two ranks cannot share evenly, with the saved weights."""
    record = json.loads((run_dir / "record.json").read_text())
    config: Any = OmegaConf.to_container(OmegaConf.load(run_dir / "config.yaml"))
    spec = config["spec"]
    assert spec[f"num_{part}"] % 32
    data = DataModule(
        Bundled("breast_cancer"),
        **{k: v for k, v in config["data"].items() if k not in ("_target_", "source", "spec")},
    )
    data.setup()
    loader: Any = getattr(data, f"{part}_dataloader")()
    inputs, targets = (torch.cat(column) for column in zip(*loader, strict=True))
    assert len(inputs) == spec[f"num_{part}"]
    model = assay.load(run_dir, checkpoint=role, map_location="cpu", trusted_packages=("own_project",))
    assert model.preprocess is not None
    with torch.no_grad():
        logits = model.model(model.preprocess(inputs)).squeeze(1)
    chances, truth = logits.sigmoid().numpy(), targets.numpy()
    predicted = (chances > 0.5).astype(int)
    expected = {
        "loss": sk.log_loss(truth, logits.double().sigmoid().numpy()),
        "accuracy": sk.accuracy_score(truth, predicted),
        "precision": sk.precision_score(truth, predicted),
        "recall": sk.recall_score(truth, predicted),
        "f1": sk.f1_score(truth, predicted),
        "auroc": sk.roc_auc_score(truth, chances),
        "average_precision": sk.average_precision_score(truth, chances),
    }
    found = {
        name.removeprefix(f"{part}/"): value
        for name, value in record["metrics"].items()
        if name.startswith(f"{part}/")
    }
    assert found == {name: pytest.approx(value, rel=1e-5) for name, value in expected.items()}
    matrix = np.array(record["matrices"][f"{part}/confusion_matrix"])
    np.testing.assert_array_equal(matrix, sk.confusion_matrix(truth, predicted))


def test_one_file_has_what_both_ranks_predicted(run_dir: Path) -> None:
    predictions = predictions_file.read(run_dir / predictions_file.FILE)
    record = RunRecord.load(run_dir)
    rows = np.array([int(key) for key in predictions.keys])
    assert len(rows) == 114
    assert (np.diff(rows) > 0).all(), "each sample once, in order"
    np.testing.assert_array_equal(predictions.targets, Bundled("breast_cancer").read()["all"].targets[rows])
    assert not list(run_dir.glob(".*.tmp"))
    found = evaluate(run_dir, ["trusted_packages=[own_project]"])  # one process, other batches
    again = predictions_file.read(run_dir / found.predictions)
    assert again.keys == predictions.keys
    np.testing.assert_allclose(again.outputs, predictions.outputs, atol=1e-6)
    assert found.metrics == pytest.approx({name: record.metrics[name] for name in found.metrics}, rel=1e-5)


@pytest.mark.parametrize(("devices", "size"), [(3, 512), pytest.param(2, 1, marks=pytest.mark.long)])
def test_ranks_with_fewer_validation_or_test_samples_than_others(
    tmp_path: Path, devices: int, size: int
) -> None:
    """Three ranks share one sample, or two ranks three of them one by one, with a model that has buffers."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(64, 2)).round(3)
    subsets = ["train"] * 60 + ["val"] + ["test"] * 3
    lines = [f"{a},{b},{'yes' if a > 0 else 'no'},{name}" for (a, b), name in zip(rows, subsets, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,y,split", *lines]) + "\n")
    words = (
        *("train", "data=table", f"data.source.path={tmp_path / 'rows.csv'}", "data.source.target=y"),
        *("data.split.column=split", "device=ddp_cpu", f"trainer.devices={devices}", "trainer.max_epochs=1"),
        *("data.batch_size=8", f"data.eval_batch_size={size}", "callbacks=[checkpoint]"),
    )
    with Forks() as forks:
        ended = forks.command(*words, cwd=tmp_path, forked_children=devices)
    assert ended.code == 0, (tmp_path / "output.txt").read_text()
    [path] = tmp_path.rglob("record.json")
    predictions = predictions_file.read(path.parent / predictions_file.FILE)
    assert len(predictions.keys) == 3
    chances = np.asarray(predictions.outputs, np.float64)[:, -1]
    record = json.loads(path.read_text())
    expected = sk.log_loss(predictions.targets, chances, labels=[0, 1])
    assert record["metrics"]["test/loss"] == pytest.approx(expected, rel=1e-5)
    alone = evaluate(path.parent).metrics
    assert alone["test/accuracy"] == record["metrics"]["test/accuracy"]
    assert alone["test/loss"] == pytest.approx(record["metrics"]["test/loss"], rel=1e-5)
