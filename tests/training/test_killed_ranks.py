"""Of two ranks one is killed at any time: all are gone soon, and the run that goes on ends the same."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.forks import Forks
from tests.interrupting import outcome

from assay.checkpoint.checkpoint_file import CheckpointFile, find_newest_checkpoint
from assay.record.run_record import RunRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT = Path(__file__).parent / "project"
JOB = (
    *("data=digits", "model=small_cnn", "device=ddp_cpu", "data.batch_size=8", "trainer.max_epochs=2"),
    *("trainer.limit_train_batches=6", "trainer.limit_val_batches=1", "trainer.limit_test_batches=1"),
    *("trainer.val_check_interval=0.5", "trainer.accumulate_grad_batches=2", "callbacks.ema.decay=0.9"),
    *("callbacks=[checkpoint,last_checkpoint,ema,dying]", "trainer.log_every_n_steps=1"),
    *("callbacks.last_checkpoint.every_n_train_steps=1", "hydra.run.dir=run"),
)
TRAIN = ("train", "--config-dir", str(PROJECT / "conf"), "trusted_packages=[own_project]", *JOB)
RESUME = ("resume", "run", "callbacks.dying.batch=null", "trusted_packages=[own_project]")
SOON = 15.0
"""Seconds until all processes are gone."""


@dataclass(frozen=True)
class Whole:
    """The run that nobody kills; how long its ranks lived, and how long they trained."""

    outcome: dict[str, str]
    lived: float
    trained: float


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    paths = os.pathsep.join(filter(None, (str(PROJECT), os.environ.get("PYTHONPATH"))))
    with Forks(PYTHONPATH=paths, GLOO_SOCKET_IFNAME=os.environ.get("GLOO_SOCKET_IFNAME", "lo")) as warm:
        yield warm


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    place = tmp_path_factory.mktemp("whole")
    forks.start(*TRAIN, cwd=place, forked_children=2)
    wait_for_ranks(forks, place)
    begin = time.monotonic()
    ended = forks.wait()
    assert ended.code == 0, (place / "output.txt").read_text()
    record = json.loads((place / "run" / "record.json").read_text())
    return Whole(outcome(place / "run"), time.monotonic() - begin, record["seconds"])


TELL = (
    *(*TRAIN[:4], "data=digits", "model=linear", "device=ddp_cpu", "data.batch_size=8", "hydra.run.dir=run"),
    *("trainer.max_epochs=1", "trainer.limit_train_batches=2"),
    *("callbacks=[last_checkpoint,checkpoint,telling]", "callbacks.checkpoint.every_n_epochs=99"),
)


@pytest.mark.always("setup fit-True")
@pytest.mark.parametrize("to_launcher", [True, False])
@pytest.mark.parametrize("moment", ["setup fit", "fit_start", "train_start", "train_end", "setup test"])
def test_a_signal_before_the_first_step_or_the_test(
    forks: Forks, tmp_path: Path, moment: str, to_launcher: bool
) -> None:
    words = (f"callbacks.telling.moment='{moment}'", f"callbacks.telling.to_launcher={to_launcher}")
    forks.start(*TELL, *words, cwd=tmp_path, forked_children=2)
    ended, said = forks.wait(), (tmp_path / "output.txt").read_text()
    assert ended.code == 143, said
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert (record["status"], record["signal"], "test/loss" in record["metrics"]) == (
        "interrupted",
        "SIGTERM",
        False,
    ), said
    assert "Traceback" not in said
    assert (tmp_path / "run" / "log.txt").read_text().count("every_n_epochs=99: nothing will be saved") == 1
    saved = (tmp_path / "run" / "checkpoints" / "last.ckpt").exists()
    assert ("last" in record["checkpoints"]) == saved
    assert saved == (moment in ("train_end", "setup test"))


def descendants(forks: Forks) -> list[psutil.Process]:
    return psutil.Process(forks.pid).children(recursive=True)


def wait_for_ranks(forks: Forks, place: Path) -> dict[int, psutil.Process]:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        ranks = forks.ranks(place)
        if len(ranks) == 2:
            return ranks
        time.sleep(0.02)
    raise AssertionError("two ranks never came to life")


def kill_one(
    forks: Forks, whole: Whole, chance: random.Random, place: Path, *words: str
) -> tuple[str, float]:
    """Kill a random rank at a random time; when that was, and how long it took until all were gone."""
    log = place / "run" / "log.txt"
    before = log.stat().st_size if log.is_file() else 0
    forks.start(*words, cwd=place, forked_children=2)
    ranks = wait_for_ranks(forks, place)
    begin, in_training = time.monotonic(), chance.random() < 0.7
    while in_training and log.stat().st_size == before and time.monotonic() < begin + 300:
        time.sleep(0.005)  # the first rank has built the job when it writes there
    time.sleep(chance.uniform(0, whole.trained if in_training else whole.lived))
    victim = chance.randrange(2)
    others = descendants(forks)
    alive = ranks[victim].is_running()
    if alive:
        ranks[victim].kill()
    killed = time.monotonic()
    ended = forks.wait()
    gone, left = psutil.wait_procs(others, timeout=max(0.0, killed + SOON - time.monotonic()))
    seconds = time.monotonic() - killed
    said = (place / "output.txt").read_text()
    assert not left, (said, log.read_text())
    assert seconds < SOON, (seconds, said, log.read_text())
    assert len(gone) == len(others)
    if not alive:
        return "after its end", seconds
    assert ended.code in (0, 1), said
    return f"rank {victim} {'while training' if in_training else 'at any time'}", seconds


def kill_and_resume(
    forks: Forks, whole: Whole, kills: int, folder: Path, seed: int
) -> tuple[Counter[str], list[float]]:
    parts: Counter[str] = Counter()
    times: list[float] = []
    number = 0
    while parts.total() - parts["after its end"] < kills:
        chance, place = random.Random(f"{seed} {number}"), folder / f"killed {number}"
        place.mkdir()
        words: tuple[str, ...] = TRAIN
        while True:  # now and then in the resumed run, too
            part, seconds = kill_one(forks, whole, chance, place, *words)
            parts[part] += 1
            times.append(seconds)
            print(f"{part}: all gone after {seconds:.1f} s", flush=True)
            words = RESUME
            if chance.random() < 0.75 or RunRecord.load(place / "run").status == "finished":
                break
        ended = forks.command(*RESUME, cwd=place, forked_children=2)
        said = (place / "output.txt").read_text()
        assert ended.code == 0, said
        assert outcome(place / "run") == whole.outcome, (number, parts, said)
        assert not list((place / "run").rglob("*.tmp"))
        number += 1
    return parts, times


def test_a_rank_killed_at_any_time_takes_nothing_along(forks: Forks, whole: Whole, tmp_path: Path) -> None:
    kill_and_resume(forks, whole, 1, tmp_path, seed=3)  # in the midst of the training


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_rank_killed_at_many_times_takes_nothing_along(forks: Forks, whole: Whole, tmp_path: Path) -> None:
    parts, times = kill_and_resume(forks, whole, 40, tmp_path, seed=0)
    print(
        dict(parts), f"all gone after {max(times):.1f} s at most, {sum(times) / len(times):.1f} s as a rule"
    )
    assert {part[:6] for part in parts} >= {"rank 0", "rank 1"}


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_without_the_buffers_of_a_rank_the_end_differs(forks: Forks, whole: Whole, tmp_path: Path) -> None:
    """A control: a validation follows this batch, in which each rank has statistics of its own."""
    forks.command(*TRAIN, "callbacks.dying.batch=3", cwd=tmp_path, forked_children=2)
    path = find_newest_checkpoint(tmp_path / "run").path
    assert path is not None
    checkpoint = CheckpointFile().load_checkpoint(path)
    for process in checkpoint["loops"]["fit_loop"]["state_dict"]["carried"]["processes"]:
        del process["buffers"]
    CheckpointFile().save_checkpoint(checkpoint, path)
    assert forks.command(*RESUME, cwd=tmp_path, forked_children=2).code == 0
    assert outcome(tmp_path / "run") != whole.outcome


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_without_what_a_wrapper_is_about_to_do_the_end_differs(forks: Forks, tmp_path: Path) -> None:
    """A control: after a validation no statistics are handed on before a batch that is only accumulated."""
    words = (
        *(*TRAIN, "trainer.val_check_interval=3", "trainer.accumulate_grad_batches=8"),
        *(
            "trainer.limit_train_batches=14",
            "trainer.max_epochs=1",
            "~callbacks.ema",
            "~callbacks.batch_norm",
        ),
    )
    places = [tmp_path / name for name in ("whole", "cut")]
    for place, batch in zip(places, ("null", "11"), strict=True):
        place.mkdir()
        forks.command(*words, f"callbacks.dying.batch={batch}", cwd=place, forked_children=2)
    path = find_newest_checkpoint(places[1] / "run").path
    assert path is not None
    for removed in (False, True):
        place = Path(shutil.copytree(places[1], tmp_path / str(removed)))
        checkpoint = CheckpointFile().load_checkpoint(path)
        for process in checkpoint["loops"]["fit_loop"]["state_dict"]["carried"]["processes"]:
            assert process["buffers_due"] is False
            if removed:
                del process["buffers_due"]
        CheckpointFile().save_checkpoint(checkpoint, place / "run" / "checkpoints" / path.name)
        assert forks.command(*RESUME, cwd=place, forked_children=2).code == 0, (
            place / "output.txt"
        ).read_text()
        assert (outcome(place / "run") != outcome(places[0] / "run")) == removed
