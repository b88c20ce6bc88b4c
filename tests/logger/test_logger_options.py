"""Every logger option trains, alone and together, and writes where it says and nowhere else."""

import csv
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.demos.boring_classes import BoringModel
from omegaconf import DictConfig, OmegaConf
from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]  # it has no stubs
    EventAccumulator,
)
from tests.callbacks.quiet_trainer import quiet_trainer

from assay.assemble.node import build
from assay.check.signature import check_signatures
from assay.compose.compose import compose, job_config

ROOT = Path(__file__).parents[2]
ALL = ("csv", "tensorboard", "mlflow", "wandb")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A working directory and a home of its own; nothing is sent anywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "MLFLOW_TRACKING_URI", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_MODE", "offline")  # Lightning sets it too, and does not put it back
    yield
    assert not {"mlruns", "mlartifacts", "mlflow.db", "wandb"} & {path.name for path in ROOT.iterdir()}


def job(*overrides: str) -> DictConfig:
    return job_config(
        compose(["data=wine", "model=mlp", "hydra.run.dir=runs/a", "name=exp", "tags=[x,y]", *overrides])
    )


class Model(BoringModel):
    def training_step(self, batch: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # Lightning allows fewer
        loss: torch.Tensor = self.step(batch)
        self.log("train/loss", loss)
        self.log("train/diverged", float("nan"))
        return loss

    def validation_step(self, batch: torch.Tensor) -> None:  # type: ignore[override]  # as above
        self.log("val/loss", self.step(batch))


def fit(config: DictConfig) -> dict[str, Any]:
    """Train with the config's loggers; returns them by name."""
    check_signatures(config)
    loggers = {str(name): build(config, f"logger.{name}") for name in config.logger}
    length = {"max_epochs": 2, "limit_train_batches": 3, "limit_val_batches": 1, "log_every_n_steps": 1}
    trainer = quiet_trainer(logger=list(loggers.values()), default_root_dir=config.run_dir, **length)
    plain = OmegaConf.to_container(OmegaConf.masked_copy(config, ["seed", "optimizer", "tags"]), resolve=True)
    for logger in loggers.values():
        logger.log_hyperparams(plain)
    trainer.fit(Model())
    return loggers


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def losses_in_csv(folder: Path) -> list[float]:
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]


def losses_in_tensorboard(folder: Path) -> list[float]:
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert {"train/loss", "val/loss", "epoch"} <= set(events.Tags()["scalars"])
    return [event.value for event in events.Scalars("train/loss")]


def test_options_add_up() -> None:
    assert list(job("logger=[tensorboard]").logger) == ["tensorboard"]
    assert set(job(f"logger=[{','.join(ALL)}]").logger) == set(ALL)


@pytest.mark.long
# MLflow asks SQLAlchemy in a way that SQLAlchemy is about to drop.
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated:DeprecationWarning")
def test_all_four_at_once(tmp_path: Path) -> None:
    """The slow one: importing MLflow and making its tables takes most of the time."""
    import wandb

    try:
        loggers = fit(job(f"logger=[{','.join(ALL)}]", "logger.wandb.offline=true"))
        settings = loggers["wandb"].experiment.settings
        assert (loggers["wandb"].experiment.project, tuple(loggers["wandb"].experiment.tags)) == (
            "exp",
            ("x", "y"),
        )
        assert (settings.console, settings.disable_git, settings.mode) == ("off", True, "dryrun")
    finally:
        wandb.finish()
        wandb.teardown()

    losses = losses_in_csv(tmp_path / "runs/a")
    assert len(losses) == 6
    assert losses_in_tensorboard(tmp_path / "runs/a") == losses

    with sqlite3.connect(tmp_path / "outputs" / "mlflow.db") as database:
        names = database.execute(
            "SELECT name, artifact_location FROM experiments WHERE name = 'exp'"
        ).fetchall()
        runs = database.execute("SELECT name, status FROM runs").fetchall()
        logged = database.execute(
            "SELECT value FROM metrics WHERE key = 'train/loss' ORDER BY step"
        ).fetchall()
        parameters = dict(database.execute("SELECT key, value FROM params").fetchall())
    database.close()
    assert names == [("exp", str(tmp_path / "outputs" / "mlflow"))]
    assert runs == [("runs/a", "FINISHED")]
    assert [value for (value,) in logged] == losses
    assert parameters["optimizer/_target_"] == "torch.optim.AdamW"

    written = files(tmp_path / "runs/a/wandb")
    (log,) = (name for name in written if name.endswith(".wandb"))
    content = (tmp_path / "runs/a/wandb" / log).read_bytes()
    assert b"train/loss" in content
    assert b"torch.optim.AdamW" in content
    assert not {Path(name).name for name in written} & {"diff.patch", "output.log"}

    assert {path.name for path in tmp_path.iterdir()} <= {"runs", "outputs", "home"}
    assert {path.name for path in (tmp_path / "runs/a").iterdir()} == {"metrics.csv", "tensorboard", "wandb"}
