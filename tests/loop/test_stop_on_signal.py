"""Real signals to real runs: what is saved, what is recorded, how the process ends."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any, final

import psutil
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.forks import Forks

from assay.loop.stop_on_signal import StopOnSignal

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    import lightning as L
    from tests.conftest import Train

DIGITS = ("data=digits", "model=mlp", "model.hidden=[16]", "trainer.max_epochs=2")
SIGNALS = ("SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP")
CODES = {"SIGTERM": 143, "SIGINT": 130, "SIGUSR1": 143, "SIGHUP": 129}


@final
class Send(Callback):
    """Sends this process a signal at a moment of the run."""

    def __init__(self, moment: str, name: str = "SIGTERM", batch: int = 2, epoch: int = 0) -> None:
        self.moment, self.number, self.batch, self.epoch = moment, getattr(signal, name), batch, epoch
        self.after: list[str] = []

    def _send(self, moment: str, trainer: L.Trainer, batch_idx: int | None = None) -> None:
        if moment == self.moment and batch_idx in (None, self.batch) and trainer.current_epoch == self.epoch:
            os.kill(os.getpid(), self.number)
            self.after = []
        self.after.append(moment)

    def on_train_batch_start(self, trainer: Any, _: Any, __: Any, batch_idx: int) -> None:
        self._send("batch", trainer, batch_idx)

    def on_validation_batch_start(self, trainer: Any, _: Any, __: Any, batch_idx: int, *___: Any) -> None:
        self._send("validation", trainer, batch_idx)

    def on_validation_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        self._send("validated", trainer)

    def on_test_batch_start(self, trainer: Any, *_: Any, **__: Any) -> None:
        self._send("test", trainer)

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        self._send("batch_end", trainer)

    def on_sanity_check_start(self, trainer: Any, _: Any) -> None:
        self._send("sanity", trainer)


@pytest.mark.always("SIGTERM", "SIGINT")
@pytest.mark.parametrize("name", SIGNALS)
def test_the_step_is_finished_and_saved(train: Train, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    run = train(*DIGITS, "callbacks=[default]", callbacks=[Send("batch", name)], keep_weights=True)
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
    assert (run.result.status, run.result.signal, run.result.exit_code) == ("interrupted", name, CODES[name])
    reason = "stopped by hand" if name == "SIGINT" else f"stopped by {name}"
    assert (run.record["reason"], run.record["signal"]) == (reason, name)
    assert run.record["checkpoints"] == {"last": "last.ckpt"}
    saved = run.checkpoint("last")
    assert saved["global_step"] == len(run.watch.weights) == 3, "the step that was under way is the last one"
    for key, value in run.watch.weights[-1].items():
        assert torch.equal(saved["state_dict"][key], value)
    assert len(run.column("train/loss_step")) == 3
    shown = capfd.readouterr()
    assert shown.err.count(f"{name}: stopping after this step") == 1
    assert "Traceback" not in shown.out + shown.err


def test_a_validation_that_is_due_waits_for_the_resumed_run(train: Train) -> None:
    send = Send("batch", batch=4)
    run = train(*DIGITS, "trainer.val_check_interval=5", callbacks=[send])
    assert "validated" not in send.after
    assert run.checkpoint("last")["global_step"] == 5


def test_a_test_is_broken_off(train: Train) -> None:
    send = Send("test", epoch=2)
    run = train(*DIGITS, "data.eval_batch_size=16", "callbacks=[last_checkpoint]", callbacks=[send])
    assert run.result.status == "interrupted"
    assert send.after == ["test"]
    assert len(run.column("val/loss")) == 2
    assert "test/loss" not in run.result.metrics
    assert run.record["checkpoints"]["last"] == "last.ckpt"


def test_a_second_ctrl_c_stops_at_once(train: Train) -> None:
    twice = [Send("batch", "SIGINT"), Send("batch", "SIGINT")]
    before = signal.getsignal(signal.SIGINT)
    run = train(*DIGITS, callbacks=twice)
    assert signal.getsignal(signal.SIGINT) is before
    assert (run.result.status, run.result.exit_code) == ("interrupted", 130)
    assert len(run.watch.losses) == 2, "the third step was broken off"
    assert not (run.run_dir / "checkpoints").exists()


def test_a_process_that_loads_data_leaves_it_to_its_parent() -> None:
    stop = StopOnSignal("last.ckpt")
    with stop.watching():
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    assert not stop.received


@pytest.mark.always("3-1-more1")
@pytest.mark.parametrize(
    ("batch", "epoch", "more"),
    [
        (2, 0, ()),
        (3, 1, ("trainer.accumulate_grad_batches=3",)),
        (4, 0, ("trainer.val_check_interval=5",)),
        (5, 1, ("callbacks=[default,ema]", "~callbacks.progress_bar")),
    ],
)
def test_what_was_stopped_goes_on_to_the_same_end(
    train: Train, batch: int, epoch: int, more: tuple[str, ...]
) -> None:
    from assay.run.resume import resume

    settings = (*DIGITS, "trainer.limit_train_batches=8", "callbacks=[last_checkpoint]", *more)
    whole = train(*settings)
    stopped = train(*settings, callbacks=[Send("batch", batch=batch, epoch=epoch)])
    assert stopped.result.status == "interrupted"
    result = resume(stopped.run_dir)
    assert (result.status, result.signal, result.exit_code) == ("finished", "", 0)
    assert stopped.record["weights_sha256"] == whole.record["weights_sha256"] != ""
    assert (stopped.run_dir / "metrics.csv").read_text() == (whole.run_dir / "metrics.csv").read_text()
    assert stopped.record["metrics"] == whole.record["metrics"]


# -- processes ---------------------------------------------------------------------------------------------

ENDLESS = ("train", "data=iris", "model=mlp", "device=cpu", "trainer.max_epochs=100000", "hydra.run.dir=run")


def wait_for_rows(process: subprocess.Popen[str] | Forks, folder: Path, number: int = 20) -> None:
    table, end = folder / "run" / "metrics.csv", time.monotonic() + 200
    while not table.is_file() or table.read_bytes().count(b"\n") < number:
        if isinstance(process, Forks):
            assert not process.has_ended(), (folder / "output.txt").read_text()
        else:
            assert process.poll() is None, process.stdout.read() if process.stdout else ""
        assert time.monotonic() < end, "it never came to train"
        time.sleep(0.05)


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "record.json").read_text(encoding="utf-8"))
    return found


def was_stopped(folder: Path, name: str, output: str) -> None:
    assert (record(folder)["status"], record(folder)["signal"]) == ("interrupted", name), output
    assert "Traceback" not in output
    assert "interrupted: stopped by" in output.splitlines()[-4], output
    saved = torch.load(folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert saved["global_step"] > 0


def test_a_command_that_is_told_to_stop(tmp_path: Path) -> None:
    """For the end of an interpreter of its own see `test_ctrl_c…` of `tests/cli/test_app.py`."""
    with Forks() as forks:
        forks.start(*ENDLESS, cwd=tmp_path)
        wait_for_rows(forks, tmp_path)
        [process] = psutil.Process(forks.pid).children()
        process.send_signal(signal.SIGTERM)
        ended = forks.wait()
    output = (tmp_path / "output.txt").read_text()
    assert ended.code == 143, output
    was_stopped(tmp_path, "SIGTERM", output)


def test_what_is_to_outlive_its_terminal_does(train: Train) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        run = train(*DIGITS, "trainer.max_epochs=1", callbacks=[Send("batch", "SIGHUP")])
    finally:
        signal.signal(signal.SIGHUP, before)
    assert run.result.status == "finished"


@pytest.mark.parametrize(
    ("name", "to_one_rank"),
    [("SIGTERM", False), pytest.param("SIGINT", False, marks=pytest.mark.long)]
    + [pytest.param(name, True, marks=pytest.mark.long) for name in ("SIGTERM", "SIGUSR1")],
)
def test_all_ranks_stop_after_the_same_step(tmp_path: Path, name: str, to_one_rank: bool) -> None:
    with Forks() as forks:
        job = (*ENDLESS, "device=ddp_cpu", "trainer.devices=2", "data.batch_size=8")
        forks.start(*job, cwd=tmp_path, forked_children=2)
        wait_for_rows(forks, tmp_path)
        ranks = forks.ranks(tmp_path)
        assert len(ranks) == 2
        told = ranks[1] if to_one_rank else psutil.Process(ranks[0].ppid())
        told.send_signal(getattr(signal, name))
        ended, output = forks.wait(), (tmp_path / "output.txt").read_text()
        assert not any(one.is_running() for one in ranks.values())
    assert ended.code == CODES[name], output
    assert (record(tmp_path)["status"], record(tmp_path)["signal"]) == ("interrupted", name), output
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()
