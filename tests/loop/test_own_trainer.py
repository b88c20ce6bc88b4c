"""A trainer of somebody's own class keeps its loops, and says that its runs cannot be resumed."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unchanged_process
from tests.interrupting import Told

from assay.errors import AssayError
from assay.loop.fit_loop import FitLoop
from assay.run.evaluate import evaluate
from assay.run.resume import resume

if TYPE_CHECKING:
    from tests.conftest import Train

JOB = (
    *("data=iris", "model=linear", "trainer.max_epochs=3", "callbacks=[checkpoint,last_checkpoint]"),
    *("trainer._target_=own_project.loops.OwnTrainer", "trusted_packages=[own_project]"),
)


def test_it_is_told_at_its_start_and_by_resume(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "training" / "project"))
    stopped = train(*JOB, callbacks=[Told(5)])
    assert not isinstance(stopped.trainer.fit_loop, FitLoop)
    assert "note: OwnTrainer has loops of its own: a run that is stopped" in (
        stopped.run_dir / "log.txt"
    ).read_text(encoding="utf-8")
    assert stopped.record["status"] == "interrupted"
    with chdir(stopped.run_dir.parent), unchanged_process():
        with pytest.raises(
            AssayError, match="holds no position to go on from: it is of a trainer with loops of its own"
        ):
            resume(stopped.run_dir, trusted_packages=["own_project"])
        tested = evaluate(stopped.run_dir, trusted_packages=["own_project"])
    assert 0 <= tested.metrics["test/accuracy"] <= 1
