"""A launcher of the user's own keeps what assay's keep: `NiceLauncher` of `examples/my_project`."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.sweep.conftest import until
from tests.sweep.launcher.shared import (
    ENDLESS,
    POISON,
    check_failure,
    check_hanging_job_is_ended,
    check_runs_to_its_end,
    check_stopped_job_saves,
    next_end,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sweep.conftest import MakeJobSpec

FILE = Path(__file__).parents[3] / "examples" / "my_project" / "my_project" / "nice_launcher.py"


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("nice_launcher", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    launcher = module.NiceLauncher(niceness=1)
    yield launcher
    launcher.close()


@pytest.mark.long
def test_a_job_runs_to_its_end(launcher: Any, make_job_spec: MakeJobSpec) -> None:
    check_runs_to_its_end(launcher, make_job_spec)


@pytest.mark.long
@pytest.mark.parametrize("kind", POISON)
def test_what_kills_a_job_is_told(kind: str, launcher: Any, make_job_spec: MakeJobSpec) -> None:
    check_failure(kind, launcher, make_job_spec)


@pytest.mark.long
def test_a_stopped_job_saves(launcher: Any, make_job_spec: MakeJobSpec) -> None:
    check_stopped_job_saves(launcher, make_job_spec)


@pytest.mark.long
def test_a_hanging_job_is_ended(launcher: Any, make_job_spec: MakeJobSpec) -> None:
    check_hanging_job_is_ended(launcher, make_job_spec)


def test_a_job_is_nice_and_ends_with_its_sweep(launcher: Any, make_job_spec: MakeJobSpec) -> None:
    """As when the sweep's process is killed: the pipe that it holds has its end."""
    job_spec = make_job_spec(*ENDLESS)
    launcher.start(job_spec)
    process = launcher._running[0].process
    until(Path(job_spec.run_dir, "metrics.csv").is_file)
    assert psutil.Process(process.pid).nice() == psutil.Process().nice() + 1
    process.stdin.close()
    assert next_end(launcher).signal == "SIGTERM"
    assert Path(job_spec.run_dir, "checkpoints", "last.ckpt").is_file()
