"""What a run says under a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.making_runs import make_run

from assay.analysis.config_values import ConfigValues, value, value_of
from assay.analysis.read_runs import read_runs

if TYPE_CHECKING:
    from pathlib import Path


def test_where_each_comes_from(tmp_path: Path) -> None:
    make_run(
        tmp_path / "a", "optimizer.lr=0.1", "trainer.max_epochs=${n}", metrics={"val/loss": 0.5, "loss": 0.1}
    )
    (run,) = read_runs([tmp_path])
    configs = ConfigValues()
    found = {key: value(run, key, configs) for key in ("status", "model", "loss", "val/loss", "optimizer.lr")}
    assert found == {
        "status": "finished",
        "model": "mlp",
        "loss": "ce",
        "val/loss": 0.5,
        "optimizer.lr": "0.1",
    }
    assert value(run, "data.batch_size", configs) == "64"
    assert value(run, "data", configs) == "digits"
    assert value(run, "nothing.at.all", configs) is None


def test_without_a_config_what_was_typed_stands(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "optimizer.lr=${x}")
    (tmp_path / "a/config.yaml").unlink()
    (run,) = read_runs([tmp_path])
    assert value_of(run, "optimizer.lr", ConfigValues()) == "${x}"
    assert value_of(run, "data.batch_size", ConfigValues()) is None
