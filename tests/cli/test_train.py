from __future__ import annotations

from typing import TYPE_CHECKING

from omegaconf import OmegaConf
from tests.cli.typed import QUICK, in_an_empty_folder, typed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["in_an_empty_folder"]


def test_cfg_prints_what_would_run_and_writes_nothing(tmp_path: Path) -> None:
    result = typed("train", "--cfg", "optimizer=sgd", "optimizer.lr=0.25")
    assert result.exit_code == 0
    config = OmegaConf.create(result.stdout)
    assert OmegaConf.select(config, "optimizer._target_") == "torch.optim.SGD"
    assert OmegaConf.select(config, "optimizer.lr") == 0.25
    assert "hydra" not in config
    assert not list(tmp_path.iterdir())


def test_cfg_shows_what_must_still_be_given() -> None:
    config = OmegaConf.create(typed("train", "--cfg", "data=table").stdout)
    assert OmegaConf.is_missing(config.data.source, "path")


def test_cfg_of_a_sweep_is_every_job() -> None:
    result = typed("train", "-m", "--cfg", "seed=1,2,3")
    assert [OmegaConf.create(job).seed for job in result.stdout.split("---\n")] == [1, 2, 3]


def test_trains(tmp_path: Path) -> None:
    result = typed("train", *QUICK, 'hydra.run.dir="a [b] c"')
    assert result.exit_code == 0, result.stderr
    assert not result.stderr
    assert (tmp_path / "a [b] c" / "record.json").is_file()
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[-5:-2]] == ["best", "run", "next"]
    assert "run   a [b] c" in lines
    assert "\x1b" not in result.stdout, "no colours in a pipe"


def test_a_sweep_with_a_job_that_cannot_run_is_not_started(tmp_path: Path) -> None:
    result = typed("train", "-m", *QUICK[:2], "data=iris,diabetes", "metrics=multiclass", "hydra.sweep.dir=s")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert not (tmp_path / "s").exists()
    assert "error: 1 of 2 jobs cannot run; none was started\n" in result.stderr
    assert "job 1 (" in result.stderr
    assert "\n  metrics." in result.stderr
