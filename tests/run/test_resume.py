"""`assay resume`: what it says, what it refuses, and what longer training comes to."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import git
import pytest
import torch
from tests.conftest import DEVICES, unchanged_process
from tests.interrupting import Hook, Interrupt, outcome
from tests.record.test_run_directory import holding
from typer.testing import CliRunner

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.cli.app import app
from assay.errors import AssayError
from assay.record.run_record import RunRecord
from assay.run.resume import resume
from assay_lab.reproduce import causes, differences_within

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Train, Trained

JOB = (
    *("data=iris", "model=mlp", "data.batch_size=32", "trainer.max_epochs=2"),
    *("callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1"),
)


_interrupted: dict[tuple[object, ...], Path] = {}
_whole: dict[tuple[str, ...], dict[str, str]] = {}


def interrupted(train: Train, place: Path, job: tuple[str, ...], hook: Hook, count: int) -> Path:
    """A copy of a run that was interrupted there."""
    if (job, hook, count) not in _interrupted:
        _interrupted[job, hook, count] = train(*job, callbacks=[Interrupt(hook, count)]).run_dir
    return Path(shutil.copytree(_interrupted[job, hook, count], place / "interrupted" / "run"))


def whole(train: Train, *job: str) -> dict[str, str]:
    """What a run ends with that nobody interrupts."""
    if job not in _whole:
        _whole[job] = outcome(train(*job).run_dir)
    return _whole[job]


@pytest.fixture
def stopped(train: Train, tmp_path: Path) -> Path:
    """A run that was interrupted after its second step."""
    return interrupted(train, tmp_path, JOB, "batch", 2)


def record(run_dir: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((run_dir / "record.json").read_bytes())
    return loaded


def typed(run_dir: Path, *overrides: str) -> tuple[int, str]:
    """Exit code and output of the command, in the folder of the run."""
    with chdir(run_dir.parent), unchanged_process():
        done = CliRunner().invoke(app, ["resume", run_dir.name, *overrides])
    return done.exit_code, " ".join(done.output.split())


def test_the_command_goes_on_where_the_run_is_and_then_has_nothing_to_add(
    stopped: Path, tmp_path: Path, train: Train
) -> None:
    """Here of a run that was moved."""
    moved = tmp_path / "elsewhere"
    shutil.move(stopped, moved)
    before = (moved / "log.txt").read_text()
    code, said = typed(moved)
    assert code == 0
    assert "resuming from step 2" in said
    assert not stopped.exists()
    after = record(moved)
    assert after["status"] == "finished"
    (entry,) = after["resumed"]
    assert (entry["from_step"], entry["checkpoint"], entry["changed"]) == (2, "last.ckpt", {})
    assert (moved / "log.txt").read_text().startswith(before)
    assert "resuming from step 2" in (moved / "log.txt").read_text()
    assert not list(moved.rglob("*.tmp"))
    assert outcome(moved) == whole(train, *JOB)

    files = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    code, said = typed(moved)
    assert code == 0
    assert "nothing to do" in said
    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == files
    code, said = typed(moved, "optimizer.lr=0.5")
    assert (code, "optimizer.lr" in said, "trainer.max_epochs" in said) == (2, True, True)


@pytest.mark.parametrize("device", DEVICES)
def test_a_checkpoint_of_a_gpu_that_is_not_here(
    train: Train, tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = (f"device={device}", "trainer.deterministic=true", *JOB)
    expected = whole(train, *job)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(torch.serialization, "location_tag", lambda _: "cuda:3")
        run_dir = interrupted(train, tmp_path, job, "batch", 3)
    with zipfile.ZipFile(run_dir / "checkpoints" / "last.ckpt") as file:
        assert b"cuda:3" in b"".join(file.read(n) for n in file.namelist() if n.endswith("data.pkl"))
    code, said = typed(run_dir)
    assert code == 0, said
    assert outcome(run_dir) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("cpu", "auto"),
        pytest.param("cpu", "gpu", marks=pytest.mark.gpu),
        pytest.param("gpu", "cpu", marks=pytest.mark.gpu),
    ],
)
def test_it_goes_on_on_another_device(train: Train, tmp_path: Path, before: str, after: str) -> None:
    run_dir = interrupted(train, tmp_path, (f"device={before}", *JOB), "batch", 4)
    code, said = typed(run_dir, f"trainer.accelerator={after}")
    assert code == 0, said
    assert f"trainer.accelerator: {before} until here, {after} from here on" in said
    whole_run = train(f"device={before}", *JOB)
    assert record(run_dir)["metrics"] == pytest.approx(whole_run.result.metrics, rel=1e-3)


def test_without_a_checkpoint_it_begins_anew_and_says_so(stopped: Path, train: Train) -> None:
    shutil.rmtree(stopped / "checkpoints")
    known = RunRecord.load(stopped)
    known.checkpoints = {}
    known.save(stopped)
    code, said = typed(stopped)
    assert code == 0, said
    assert "starts again from step 0" in said
    assert outcome(stopped) == whole(train, *JOB)


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def halved(path: Path) -> None:
    checkpoint = CheckpointFile().load_checkpoint(path)
    checkpoint["loops"]["fit_loop"]["state_dict"]["position"] = None
    CheckpointFile().save_checkpoint(checkpoint, path)


@pytest.mark.parametrize(
    ("change", "why"),
    [(flipped, ""), (halved, ": it was saved in the middle of a step, of a validation or")],
)
def test_a_checkpoint_that_cannot_be_used_is_named_and_an_older_one_taken(
    train: Train, tmp_path: Path, change: Callable[[Path], None], why: str
) -> None:
    run_dir = interrupted(train, tmp_path, JOB, "batch", 5)
    change(run_dir / "checkpoints" / "last.ckpt")
    code, said = typed(run_dir)
    assert code == 0, said
    assert f"last.ckpt cannot be used{why}" in said
    assert "best.ckpt" in said
    assert outcome(run_dir) == whole(train, *JOB)


LOST: dict[str, Callable[[Path], None]] = {
    "damaged": flipped,
    "missing": Path.unlink,
    "without_sum": lambda path: path.with_name("best.ckpt.sha256").unlink(),
}


@pytest.mark.always("damaged")
@pytest.mark.parametrize("how", LOST)
def test_only_a_better_one_takes_the_place_of_a_lost_best_checkpoint(
    train: Train, tmp_path: Path, how: str
) -> None:
    run_dir = interrupted(train, tmp_path, JOB, "batch", 5)
    LOST[how](run_dir / "checkpoints" / "best.ckpt")
    code, said = typed(run_dir)
    assert code == 0, said
    assert outcome(run_dir) == whole(train, *JOB), "the second epoch is better"


@pytest.fixture(scope="module")
def last_weights(train: Train) -> Trained:
    """A run that tests its last weights."""
    return train(*JOB[:4], "callbacks=[last_checkpoint]")


@pytest.mark.always("without_sum")
@pytest.mark.parametrize("how", LOST)
def test_where_none_is_better_than_the_lost_one_none_is_called_best(
    train: Train, last_weights: Trained, tmp_path: Path, how: str
) -> None:
    job = (*JOB, "callbacks.checkpoint.mode=force_max")  # the first epoch has the highest loss
    run_dir = interrupted(train, tmp_path, job, "batch", 5)
    LOST[how](run_dir / "checkpoints" / "best.ckpt")
    code, said = typed(run_dir)
    assert code == 0, said
    after = record(run_dir)
    assert (after["status"], after["checkpoints"], after["best"]) == ("finished", {"last": "last.ckpt"}, {})
    assert after["metrics"] == last_weights.record["metrics"]
    note = "the weights of the last step are tested in its place"
    assert note in after["notes"][-1]
    assert all(note in " ".join(text.split()) for text in (said, (run_dir / "log.txt").read_text()))
    code, said = typed(run_dir, "trainer.max_epochs=3")
    assert code == 0, said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_run_that_is_still_being_written_is_refused(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.record.run_lock._PATIENCE", 0.2)
    with holding(stopped), pytest.raises(AssayError, match="still being written"):
        resume(stopped)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.dropout=0.5", "model.dropout"),
        ("data.batch_size=8", "data.batch_size"),
        ("seed=3", "seed"),
        ("optimizer=sgd", "optimizer.KEY=VALUE"),
        ("optimizer._target_=os.system", "optimizer._target_"),
        ("optimizer.lrr=1", "optimizer.lr"),
        ("trainer.max_epochs=0", "trainer.max_epochs"),
        ("trainer.devices=2", "trainer.devices"),
        ("optimizer.lr=1,2", "optimizer.lr"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_its_key(stopped: Path, override: str, says: str) -> None:
    before = record(stopped)
    more = ["trainer.strategy=ddp"] if "devices" in override else []
    code, said = typed(stopped, override, *more)
    assert code != 0
    assert says in said
    assert "Traceback" not in said
    assert record(stopped) == before


def test_another_learning_rate_is_used_recorded_and_said(stopped: Path) -> None:
    code, said = typed(stopped, "optimizer.lr=0.02", "scheduler=none")
    assert code != 0
    code, said = typed(stopped, "optimizer.lr=0.02")
    assert code == 0, said
    assert "optimizer.lr: 0.0014 until here, 0.02 from here on" in said
    (entry,) = record(stopped)["resumed"]
    assert entry["changed"] == {"optimizer.lr": [0.0014, 0.02]}
    assert "optimizer.lr=0.02" in record(stopped)["overrides"]


STEADY = (*JOB, "scheduler=step", "scheduler.step_size=1", "scheduler.gamma=0.5")


def test_longer_training_equals_having_asked_for_it(train: Train) -> None:
    run_dir = train(*STEADY).run_dir
    code, said = typed(run_dir, "trainer.max_epochs=4")
    assert code == 0, said
    assert "the length of the run decides" not in said
    asked = train(*STEADY, "trainer.max_epochs=4", "trainer.limit_train_batches=1.0").run_dir
    assert outcome(run_dir) == outcome(asked)
    assert record(run_dir)["fingerprint"] == record(asked)["fingerprint"]


def test_where_the_schedule_depends_on_the_length_it_says_so(train: Train) -> None:
    job = (*JOB, "scheduler=cosine", "callbacks=[checkpoint,last_checkpoint,lr_monitor]")
    run_dir = train(*job, "trainer.log_every_n_steps=1").run_dir
    code, said = typed(run_dir, "trainer.max_epochs=4")
    assert code == 0, said
    assert "the length of the run decides scheduler.T_max" in said
    longer = train(*job, "trainer.max_epochs=4", "trainer.log_every_n_steps=1")
    rows = (run_dir / "metrics.csv").read_text().splitlines()
    name = "lr-AdamW/default"
    column = rows[0].split(",").index(name)
    lrs = [float(row.split(",")[column]) for row in rows[1:] if row.split(",")[column]]
    # The new schedule from where the old one ended; there the lr was zero.
    assert lrs[-1] == pytest.approx(longer.column(name)[-1])
    assert lrs[len(lrs) // 2 + 1] > 1e-5


@pytest.mark.always("tensorboard")
@pytest.mark.filterwarnings("ignore")  # MLflow has its own
@pytest.mark.parametrize("logger", ["tensorboard", "mlflow"])
def test_other_loggers_go_on_with_the_same_run(train: Train, tmp_path: Path, logger: str) -> None:
    # MLflow keeps what it opened under the usual, relative address for the whole process.
    place = [f"logger.mlflow.tracking_uri=sqlite:///{tmp_path}/mlflow.db"] if logger == "mlflow" else []
    run_dir = train(*JOB, f"logger=[csv,{logger}]", *place, callbacks=[Interrupt("batch", 2)]).run_dir
    before = record(run_dir)["loggers"]
    code, said = typed(run_dir, *place)
    assert code == 0, said
    assert record(run_dir)["loggers"] == before
    assert bool(before) == (logger == "mlflow")
    assert outcome(run_dir) == whole(train, *JOB)


def test_other_code_is_said_and_kept_and_the_threads_are_those_of_the_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    git.Repo.init(tmp_path)
    run_dir = train(*JOB, callbacks=[Interrupt("batch", 2)], cwd=tmp_path).run_dir
    (tmp_path / "mine.py").write_text("x = 1\n")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        code, said = typed(run_dir)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert code == 0, said
    assert "not as before: code: commit none then, commit none with changes" in said
    (entry,) = record(run_dir)["resumed"]
    assert entry["machine"]["threads"] == threads == record(run_dir)["machine"]["threads"]
    assert entry["before"]["status"] == "failed"
    assert not record(run_dir)["patch_sha256"]
    kept = run_dir / "code.2.patch"
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == entry["patch_sha256"]
    assert "mine.py" in kept.read_text()
    assert record(run_dir)["files"]["code.2.patch"] == entry["patch_sha256"]
    (within,) = differences_within(RunRecord.load(run_dir))
    assert within.startswith("the run was resumed at step 2 with different code: commit none then")
    assert causes(RunRecord.load(run_dir), RunRecord.load(run_dir)) == [within]
    assert outcome(run_dir) == whole(train, *JOB)


def test_rows_that_are_lost_are_said_at_the_end(train: Train, tmp_path: Path) -> None:
    run_dir = interrupted(train, tmp_path, (*JOB, "trainer.log_every_n_steps=1"), "batch", 3)
    table = run_dir / "metrics.csv"
    lines = table.read_text().splitlines(keepends=True)
    assert len(lines) > 2
    table.write_text("".join(lines[:2]))
    says = "metrics.csv has lost 2 of the 3 rows"
    code, said = typed(run_dir)
    assert code == 0
    assert says in said
    assert record(run_dir)["status"] == "finished"
    assert says in record(run_dir)["reason"]
    code, said = typed(run_dir)
    assert "nothing to do" in said
