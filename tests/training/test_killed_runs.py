"""Killed by SIGKILL at any time, again and again, a run that goes on ends as if nothing had happened."""

from __future__ import annotations

import csv
import json
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.experiment import small_jobs
from tests.forks import Forks
from tests.interrupting import outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMON = (
    *("data=digits", "data.batch_size=8", "data.eval_batch_size=32", "optimizer.lr=0.01"),
    *("data/transform=crop_flip", "data.transform.crop_size=8", "trainer.val_check_interval=0.5"),
    *("trainer.max_epochs=2", "trainer.limit_train_batches=10", "trainer.log_every_n_steps=1"),
    *("trainer.limit_val_batches=1", "trainer.limit_test_batches=1"),
)


@dataclass(frozen=True)
class Job:
    """What is run, and how many optimizer steps lie between two of its checkpoints."""

    words: tuple[str, ...]
    interval: int = 1
    steps: int = 20
    common: tuple[str, ...] = COMMON
    device: str = "cpu"

    @property
    def command(self) -> tuple[str, ...]:
        every = f"callbacks.last_checkpoint.every_n_train_steps={self.interval}"
        return ("train", f"device={self.device}", *self.common, *self.words, every, "hydra.run.dir=run")


JOBS = {
    "mixup": Job(("model=mlp", "model.dropout=0.5", "augment=mixup", "callbacks=[default]")),
    "ema": Job(
        ("model=mlp", "callbacks=[default,ema]", "scheduler=plateau", "trainer.accumulate_grad_batches=2"),
        steps=10,
    ),
    "batch_norm": Job(("model=small_cnn", "optimizer=sgd", "callbacks=[last_checkpoint,checkpoint]"), 2),
    "workers": Job(("model=mlp", "data.num_workers=2", "callbacks=[default]")),
}
TASKS = {
    name: Job(
        (*small_jobs.words(name, folder="../texts"), "trainer.max_epochs=8"),
        steps=32,
        common=("trainer.log_every_n_steps=1",),
    )
    for name in ("digits_segmentation", "text_topics", "stdlib_gpt")
}
"""Jobs of other tasks; their texts lie beside the directory that a run is started in."""
PRECISE = ("model=small_cnn", "callbacks=[default]", "trainer.deterministic=true")
WAYS = {
    "fp32": (),
    "bf16": ("precision=bf16",),
    "fp16": ("precision=fp16",),
    "compiled": ("trainer.compile=true",),
    "channels_last": ("trainer.channels_last=true",),
}
"""How numbers are computed; fp16 has the state of a scaler, and needs a GPU."""
COMPUTED = {
    f"{way}-{device}": Job((*PRECISE, *words), device=device)
    for way, words in WAYS.items()
    for device in ("cpu", "gpu")
    if (way, device) != ("fp16", "cpu")
}
IN_A_ROW = 9
"""Kills of one run; then it is left alone."""


@dataclass
class Story:
    """What happened to a run: how far it was at each kill, and which part of it was hit."""

    reached: list[int] = field(default_factory=list)
    parts: Counter[str] = field(default_factory=Counter)
    resumed: int = 0


@dataclass(frozen=True)
class Whole:
    """The run that nobody kills."""

    outcome: dict[str, str]
    files: set[str]
    seconds: float
    training: float


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with Forks(HOME=str(tmp_path_factory.mktemp("home"))) as warm:
        yield warm


_whole: dict[str, Whole] = {}


def job_of(kind: str) -> Job:
    return {**JOBS, **TASKS, **COMPUTED}[kind]


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def whole(forks: Forks, kind: str, folder: Path) -> Whole:
    if kind not in _whole:
        place = folder / "whole"
        place.mkdir()
        ended = forks.command(*job_of(kind).command, cwd=place)
        assert ended.code == 0, (place / "output.txt").read_text()
        record = json.loads((place / "run" / "record.json").read_text())
        _whole[kind] = Whole(
            outcome(place / "run"), files_of(place / "run"), ended.seconds, record["seconds"]
        )
    return _whole[kind]


def steps_reached(run_dir: Path) -> int:
    """Optimizer steps that are known to be done: a row of losses is written after its step."""
    table = run_dir / "metrics.csv"
    text = table.read_text() if table.is_file() else ""
    rows = list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))
    # Lightning counts the steps done in the row of a step, and from 0 in that of an epoch.
    steps = [int(row["step"]) for row in rows if row.get("train/loss_step")]
    epochs = [int(row["step"]) + 1 for row in rows if row.get("train/loss")]
    return max([*steps, *epochs], default=0)


def part_hit(run_dir: Path, steps: int) -> str:
    if not (run_dir / "record.json").is_file():
        return "before the run"
    if any(run_dir.rglob("*.tmp")):
        return "while a file was written"
    reached = steps_reached(run_dir)
    return "start" if not reached else "training" if reached < steps else "end"


def kill_and_resume(forks: Forks, kind: str, place: Path, tmpdir: Path, most: int) -> Story:
    """Kill a run at random times, so often at most, until one of its parts comes to the end, and compare."""
    expected, job = whole(forks, kind, place.parent), job_of(kind)
    chance, story = random.Random(f"{kind} {place.name}"), Story()
    place.mkdir()
    run_dir = place / "run"
    # Of two checkpoints within a second the first is left out, and the steps do not say where a run goes on.
    # Half of the runs write all of them.
    each = chance.random() < 0.5
    words: tuple[str, ...] = job.command
    while True:
        # Half of the kills hit the training itself, which is a part of the time.
        begin = expected.seconds - expected.training if chance.random() < 0.5 else 0.0
        delay = chance.uniform(begin, expected.seconds) if len(story.reached) < most else None
        ended = forks.command(*words, cwd=place, kill_after=delay, tmpdir=tmpdir, each_checkpoint=each)
        said = (place / "output.txt").read_text()
        if each and (run_dir / "record.json").is_file():
            check_resumed(run_dir, job, story)
        if not ended.killed:
            assert ended.code == 0, said
            break
        story.reached.append(steps_reached(run_dir))
        story.parts[part_hit(run_dir, job.steps)] += 1
        words = ("resume", "run") if (run_dir / "record.json").is_file() else job.command
    assert outcome(run_dir) == expected.outcome, (place.name, story, said)
    assert files_of(run_dir) == expected.files, (place.name, story)
    return story


def check_resumed(run_dir: Path, job: Job, story: Story) -> None:
    """A run that went on did so from where the last checkpoint before the kill must have been."""
    entries = json.loads((run_dir / "record.json").read_text())["resumed"]
    if len(entries) == story.resumed:
        return  # killed before it could go on
    story.resumed = len(entries)
    # The newest checkpoint may still have been on its way to the disk; the one before it is there. The row of
    # a step is written before its checkpoint.
    assert story.reached[-1] - entries[-1]["from_step"] <= 2 * job.interval, (story, entries)


def kill(forks: Forks, kind: str, kills: int, folder: Path) -> Counter[str]:
    parts: Counter[str] = Counter()
    number = 0
    other = Path("/dev/shm")  # noqa: S108 - a file system that is surely another one
    while parts.total() < kills:
        elsewhere = other if number % 2 and other.is_dir() else None
        place = Path(tempfile.mkdtemp(prefix="killed-", dir=elsewhere))  # short: workers make sockets there
        try:
            most = min(IN_A_ROW, kills - parts.total())
            parts += kill_and_resume(forks, kind, folder / f"killed {number}", place, most).parts
            # Python's own sockets between a process and its workers, which no SIGKILL lets it remove, and the
            # kernels that torch keeps for later processes.
            ours = [name for name in files_of(place) if not name.startswith(("pymp-", "torchinductor_"))]
            assert not ours, "temporary files"
        finally:
            shutil.rmtree(place)
        number += 1
    return parts


def test_killed_at_any_time_it_ends_the_same(forks: Forks, tmp_path: Path) -> None:
    assert kill(forks, "workers", 2, tmp_path).total() >= 2


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.gpu] * (job_of(kind).device == "gpu"))
        for kind in (*JOBS, *TASKS, *COMPUTED)
    ],
)
def test_killed_at_many_times_it_ends_the_same(forks: Forks, kind: str, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    small_jobs.write_texts(tmp_path / "texts")
    kills, needed = (60, {"before the run", "training", "end"}) if kind in JOBS else (30, {"training"})
    parts = kill(forks, kind, kills, tmp_path)
    print(kind, dict(parts))
    assert parts.total() >= kills
    assert needed <= set(parts)  # a start takes milliseconds
