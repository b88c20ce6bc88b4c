"""What a process does before it becomes a job changes nothing for that job."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from assay.sweep.worker import preload
from assay.sweep.worker.preload import practice, warm_up

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "0")  # training sets them
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_practice_is_a_whole_job_that_needs_no_project_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conf" / "data").mkdir(parents=True)
    (tmp_path / "conf" / "data" / "iris.yaml").write_text("_target_: somebody.Else\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    practice.cache_clear()
    preload._train(practice())  # warm_up would keep a failure to itself
    assert Path.cwd() == tmp_path
    assert not capfd.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conf"]


@pytest.mark.parametrize("whole", [False, True])
def test_no_generator_is_touched(whole: bool) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]  # a tuple
    warm_up(practice() if whole else "")
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]  # as above
    assert torch.equal(torch.get_rng_state(), before[2])
