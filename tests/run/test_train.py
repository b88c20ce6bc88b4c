"""What the check has built and read is what its run trains with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from omegaconf import OmegaConf
from tests.conftest import unchanged_process

from assay.build.assembly import Assembly, assemble
from assay.check.checker import Checker
from assay.errors import ConfigError
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


@pytest.mark.parametrize(
    ("words", "typed", "threads"),
    [
        (["data=wine"], None, 1),
        (["data=wine"], "2", 2),
        (["data=digits", "model=small_cnn"], None, 2),
        (["data=wine", "model.hidden=[2000,2000]"], None, 2),
    ],
)
def test_small_steps_take_one_thread(
    words: list[str], typed: str | None, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if typed:
        monkeypatch.setenv("OMP_NUM_THREADS", typed)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        result = train([*JOB, "model=mlp", *words, "trainer.limit_train_batches=1", "baseline=none"])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    record = json.loads((result.run_dir / "record.json").read_text(encoding="utf-8"))
    assert record["machine"]["threads"] == threads


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


TINY = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=1", "hydra.run.dir=run")


class Counts(Callback):
    """How many batches it saw."""

    def __init__(self) -> None:
        self.seen = 0

    def on_train_batch_end(self, *_: object) -> None:
        self.seen += 1


def test_callback_objects_look_on(tmp_path: Path) -> None:
    counts, saved = Counts(), ModelCheckpoint(tmp_path / "mine", monitor="val/accuracy", mode="max")
    result = train(TINY, callbacks=[counts, saved])
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert counts.seen == OmegaConf.load(tmp_path / "run" / "config.yaml").spec.steps_per_epoch > 0
    assert list((tmp_path / "mine").glob("*.ckpt"))
    assert record["checkpoints"] == {"best": "best.ckpt", "last": "last.ckpt"}
    assert result.best["monitor"] == "val/loss"
    assert "no config names: Counts, ModelCheckpoint" in (tmp_path / "run" / "log.txt").read_text()
    assert "Counts" not in (tmp_path / "run" / "config.yaml").read_text()


def test_two_callbacks_of_one_state_are_refused(tmp_path: Path) -> None:
    same = ModelCheckpoint(tmp_path / "mine", monitor="val/loss")
    with pytest.raises(ConfigError, match="has the same settings as ModelCheckpoint"):
        train(TINY, callbacks=[same])
    assert not list(tmp_path.iterdir())


def test_callback_objects_do_not_reach_other_processes(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 processes of its own"):
        train([*TINY, "trainer.devices=2", "trainer.strategy=ddp"], callbacks=[Counts()])
    assert not list(tmp_path.iterdir())
