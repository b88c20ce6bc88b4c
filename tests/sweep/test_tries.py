"""Changes of a reference, tried one after another: what is kept, what it is told of, and what is refused."""

from __future__ import annotations

import json
import shutil
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from tests.command import documented, typed

from assay.record.run_record import RunRecord
from assay_lab.run_side import train_seeds
from assay_report.run_page import run_page

PROJECT = Path(__file__).parent / "tries_project"
JOB = (
    *("data=digits", "model=salted", "optimizer=sgd", "optimizer.lr=0.003", "scheduler=none", "device=cpu"),
    *("trainer.max_epochs=1", "trainer.limit_train_batches=6", "baseline=none"),
)
HERE = "hydra/launcher=serial"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a space in its name, and a reference in it: a slow learning rate, three seeds."""
    folder = tmp_path_factory.mktemp("a night") / "of tries"
    shutil.copytree(PROJECT, folder)
    with chdir(folder):
        code, found = documented("train", "-m", *JOB, "seed=1,2,3", HERE, "hydra.sweep.dir=runs/base")
        assert code == 0, found
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to stand in."""
    shutil.copytree(trained, tmp_path / "a night")
    monkeypatch.chdir(tmp_path / "a night")
    monkeypatch.syspath_prepend(tmp_path / "a night")
    return tmp_path / "a night"


def try_change(*words: str, against: str = "runs/base", budget: str = "30m") -> tuple[int, dict[str, Any]]:
    return documented("try", *words, HERE, "--against", against, "--budget", budget)


def test_what_is_better_on_fresh_seeds_is_kept_and_the_test_subset_stays_sealed(folder: Path) -> None:
    code, found = try_change("optimizer.lr=0.1")
    assert (code, found["decision"], found["fresh"]["word"]) == (0, "kept", "better")
    assert found["paired"]["pairs"] == 3
    assert found["p_better"] <= found["level"] == pytest.approx(0.0109, abs=1e-4)
    events = [json.loads(line) for line in Path(found["journal"]).read_text().splitlines()]
    assert [event["event"] for event in events] == ["begin", "test", "end"]
    (seeds,) = (event["seeds"] for event in events if event["event"] == "test")
    assert not {1, 2, 3} & {*seeds}
    records = {
        path.parent: RunRecord.load(path.parent) for path in Path("runs/base-tries").rglob("record.json")
    }
    assert len(records) == 3 + 2 * len(seeds)
    assert not any(name.startswith("test/") for record in records.values() for name in record.metrics)
    assert (found["test"], found["looks"]) == ({}, 0)
    # Against what was kept, in the same journal, by people: ten lines, and the test subset at last.
    told = typed("try", "--against", found["reference"], "--reveal")
    assert "(looked at 1 time)" in told.stdout
    code, again = documented("try", "--against", found["reference"], "--reveal")
    assert (code, again["looks"], again["journal"]) == (0, 2, str(Path(found["journal"]).absolute()))
    (score,) = again["test"].values()
    run = Path(found["reference"]) / "0"
    assert RunRecord.load(run).test_looks == 2
    assert 0 < score < found["fresh"]["noise"] * 1000
    assert "looked at 2 times" in repr(run_page(run))


def test_noise_is_discarded(folder: Path) -> None:
    code, found = try_change("model.salt=5 data.num_workers=0")
    assert (code, found["overrides"]) == (0, ["model.salt=5", "data.num_workers=0"])
    assert found["decision"] == "discarded"
    assert found["decisions"] == {"discarded": 1}
    assert found["reference"] == "runs/base"


def test_where_the_budget_ends_among_fresh_seeds_the_reference_is_revealed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train_no_fresh(words: Any, *options: Any) -> list[str]:
        return [] if any("/fresh" in word for word in words) else train_seeds(words, *options)

    monkeypatch.setattr("assay_lab.tries.train_seeds", train_no_fresh)
    words = ("optimizer.lr=0.1", HERE, "--metric", "val/accuracy", "--reveal")
    code, found = documented("try", *words, "--against", "runs/base")
    assert (code, found["decision"], [*found["test"]]) == (0, "undecided", ["runs/base"])
    assert found["next"][0].endswith("--against runs/base --metric val/accuracy")


def test_too_little_time_is_no_verdict(folder: Path) -> None:
    for run in Path("runs/base").glob("[0-9]"):  # as if the reference had taken no time at all
        record = RunRecord.load(run)
        record.seconds = 0.001
        record.save(run)
    code, found = try_change("optimizer.lr=0.1", budget="0.01s")
    assert (code, found["decision"], found["fresh"]) == (0, "undecided", None)
    assert "budget" in found["reason"]


@pytest.mark.always(
    "words1-options1-changes nothing",
    "words5-options5-not the same quantity",
    "words7-options7-changes the data or the split",
    "words9-options9-stays sealed",
)
@pytest.mark.parametrize(
    ("words", "options", "said"),
    [
        ((), (), "expected a change"),
        (("optimizer.lr=0.003",), (), "changes nothing"),
        (("optimizer.lr=0.1,0.2",), (), "optimizer.lr"),
        (("seed=7", "optimizer.lr=0.1"), (), "assay try sets this key"),
        (("optimiser.lr=0.1",), (), "optimi"),
        (("loss.label_smoothing=0.1",), (), "not the same quantity"),
        (("data.split.seed=1",), (), "changes the data or the split"),
        (("data=wine",), (), "changes the data or the split"),
        (("optimizer.lr=0.1",), ("--budget", "20"), "expected a time"),
        (("optimizer.lr=0.1",), ("--metric", "test/accuracy"), "stays sealed"),
        (("optimizer.lr=0.1",), ("--against", "nowhere"), "nowhere"),
        (("optimizer.lr=0.1",), ("--against", "."), "2 configurations"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_runs(
    folder: Path, words: tuple[str, ...], options: tuple[str, ...], said: str
) -> None:
    if "." in options:
        shutil.copytree("runs/base/0", "runs/other")
        record = RunRecord.load(Path("runs/other"))
        record.config_fingerprint = "another"
        record.save(Path("runs/other"))
    code, found = documented("try", *words, "--against", "runs/base", *options)
    assert code in (1, 2)
    assert said in found["error"]["message"]
    assert not Path("runs/base-tries").exists()
    if "." in options:  # the hint names a run that can be tried against
        assert RunRecord.load(Path(found["error"]["hint"].rpartition("--against ")[2])).metrics


def test_failures_are_no_improvement(folder: Path) -> None:
    code, found = try_change("optimizer.lr=1e30")
    assert (code, found["error"]["key"]) == (2, "optimizer.lr")
    events = [json.loads(line) for line in Path("runs/base-tries/tries.jsonl").read_text().splitlines()]
    assert [event["decision"] for event in events if event["event"] == "end"] == ["failed"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_night_of_tries_keeps_what_is_real(folder: Path) -> None:
    """A program that reads `--json` alone: ten changes, five of which do nothing but draw other weights."""
    real = [f"optimizer.lr={lr}" for lr in (0.01, 0.02, 0.04, 0.08, 0.16)]
    noise = [f"model.salt={salt}" for salt in range(1, 6)]
    kept, reference = [], "runs/base"
    for change in (word for pair in zip(noise, real, strict=True) for word in pair):
        code, found = try_change(change, against=reference)
        assert code == 0, found
        reference = found["reference"]
        kept += [change] if found["decision"] == "kept" else []
    assert len(kept) >= 4
    assert not {*kept} & {*noise}
    assert sum(found["decisions"].values()) == 10
