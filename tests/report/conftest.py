"""One real sweep for all tests of its report: two learning rates that learn, one that diverges, two seeds."""

from __future__ import annotations

import shutil
from contextlib import chdir
from typing import TYPE_CHECKING

import pytest
from tests.conftest import unchanged_process

from assay_sweep.session import start_sweep

if TYPE_CHECKING:
    from pathlib import Path

TYPED = (
    *("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=3", "callbacks=[]"),
    *("optimizer.weight_decay=1", "data.batch_size=8", "optimizer.lr=0.1,0.01,100", "seed=1,2"),
    *("hydra.sweeper.objective=[val/accuracy,val/loss]", "hydra/launcher=serial", "hydra.sweep.dir=sweep"),
)


@pytest.fixture(scope="session")
def trained_sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that has ended; not to be written to."""
    folder = tmp_path_factory.mktemp("project")
    with unchanged_process(), chdir(folder):
        result = start_sweep(TYPED)
    assert [job.status for job in result.jobs] == ["finished"] * 4 + ["failed"] * 2
    return folder / "sweep"


@pytest.fixture
def sweep(trained_sweep: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return shutil.copytree(trained_sweep, tmp_path / "sweep", symlinks=True)
