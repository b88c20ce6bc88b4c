from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from omegaconf import OmegaConf
from optuna.trial import TrialState

from assay.analysis.objective import Objective
from assay.errors import AssayError
from assay.record.outcome import Outcome
from assay.record.run_record import RunRecord
from assay.sweep.search.optuna import OptunaSearch
from assay.sweep.search.space import read_space
from assay.sweep.search.study import earlier_runs

if TYPE_CHECKING:
    from pathlib import Path

    from assay.record.outcome import Status

SPACE = {
    "optimizer.lr": "tag(log, interval(1e-4, 1e-1))",
    "optimizer": "sgd,adamw",
    "+model.width": "range(8,65,8)",
}


def write(
    run_dir: Path,
    *,
    lr: Any = 0.01,
    optimizer: str = "sgd",
    width: Any = 16,
    status: Status = "finished",
    loss: float = 0.5,
) -> Path:
    run_dir.mkdir(parents=True)
    RunRecord(
        run_id=run_dir.name,
        name="x",
        status=status,
        started="",
        seed=0,
        fingerprint="",
        config_fingerprint="",
        choices={"optimizer": optimizer},
        metrics={"val/loss": loss + 1, "size": 3.0},
        best={"monitor": "val/loss", "value": loss, "epoch": 1},
    ).save(run_dir)
    config = OmegaConf.create({"optimizer": {"_target_": "x", "lr": lr}, "model": {"width": width}})
    OmegaConf.save(config, run_dir / "config.yaml")
    return run_dir


def found(folder: Path) -> list[str]:
    runs, _ = earlier_runs([str(folder)], read_space([], SPACE), [Objective("val/loss", "minimize")])
    return [run.run_dir.name for run in runs]


def test_a_run_is_read_as_the_space_writes_it(tmp_path: Path) -> None:
    run = write(tmp_path / "run", lr=0.02, optimizer="adamw", width=64)
    runs, looked_at = earlier_runs([str(run)], read_space([], SPACE), [Objective("val/loss", "minimize")])
    assert looked_at == 1
    assert runs[0].values == {"optimizer.lr": 0.02, "optimizer": "adamw", "+model.width": 64}
    assert runs[0].scores == (0.5,), "of the best checkpoint, not the last"


def test_runs_outside_the_space_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "in")
    write(tmp_path / "too large", lr=0.2)
    write(tmp_path / "no number", lr="big")
    write(tmp_path / "truth", lr=True)
    write(tmp_path / "other option", optimizer="lbfgs")
    write(tmp_path / "between steps", width=17)
    write(tmp_path / "no whole number", width=16.5)
    write(tmp_path / "interrupted", status="interrupted")
    write(tmp_path / "no score", loss=math.nan)
    (write(tmp_path / "damaged") / "record.json").write_text("{")
    (write(tmp_path / "no config") / "config.yaml").unlink()
    assert found(tmp_path) == ["in"]


def test_a_study_begins_with_them_and_counts_them_apart(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path / "before" / str(number), lr=10.0 ** -(1 + number / 2), loss=float(number))
    write(tmp_path / "before" / "other", lr=1.0)
    for _ in range(2):  # begun, and resumed without anything in its journal
        one = OptunaSearch(
            [],
            tmp_path / "sweep",
            params=SPACE,
            num_trials=2,
            objective="val/loss",
            constraints=["size <= 2"],
            warm_start=[str(tmp_path / "before")],
        )
        one.restore([])
        assert one.notes == ["4 of 5 earlier runs lie in the search space and are used"]
        trials = one.study.get_trials(states=(TrialState.COMPLETE,))
        assert [trial.value for trial in trials] == [0, 1, 2, 3]
        assert trials[0].params == {"optimizer.lr": 0.1, "optimizer": "sgd", "+model.width": 16}
        assert trials[0].system_attrs["constraints"] == [1.0]
        one.close()
    asked = 0
    while (proposal := one.next()) is not None:
        asked += 1
        one.tell(proposal.token, Outcome("finished", metrics={"size": 1.0}), [1.0])
    assert asked == one.total == 2
    one.close()


def test_a_folder_without_runs_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="holds no run"):
        found(tmp_path)
