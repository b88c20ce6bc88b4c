"""assay.load gives back the model that was trained, behind what its data did to raw input."""

from __future__ import annotations

import io
import shlex
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from omegaconf import OmegaConf
from typer.testing import CliRunner

import assay
from assay.cli.app import app
from assay.errors import AssayError, ConfigError
from assay.run.result import print_run
from assay.terminal import Console

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained


def test_best_or_last(digits_run: Trained) -> None:
    for role in ("best", "last"):
        model = assay.load(digits_run.run_dir, checkpoint=role, map_location="cpu")
        saved = digits_run.checkpoint(role)["state_dict"]
        assert list(model.state_dict()) == list(saved)
        assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items())


def test_what_is_no_run_is_refused(train: Train, tmp_path: Path) -> None:
    with pytest.raises(AssayError, match="is not a run directory"):
        assay.load(tmp_path)
    run = train("data=digits", "model=linear", "trainer.limit_train_batches=1")
    with pytest.raises(AssayError, match="holds no checkpoint"):
        assay.load(run.run_dir)


def test_a_checkpoint_that_was_kept_and_is_gone_is_not_another_one(train: Train, tmp_path: Path) -> None:
    run = train("data=wine", "callbacks=[default]", f"hydra.run.dir={tmp_path / 'run'}")
    with pytest.raises(AssayError, match="checkpoint='bset': 'best' or 'last' was expected"):
        assay.load(run.run_dir, checkpoint="bset")  # type: ignore[call-overload]  # the point
    (run.run_dir / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(AssayError, match=r"best\.ckpt is not there, and the run kept it") as caught:
        assay.load(run.run_dir)
    assert caught.value.hint.endswith("checkpoint='last'")
    assert assay.load(run.run_dir, checkpoint="last")


@pytest.mark.parametrize(
    ("model", "key"),
    [
        ({"a": 1}, "model"),
        ({"_target_": "torch.nn.Linear", "_partial_": True}, "model"),
        (None, "model"),
        ({"_target_": "torch.nn.Linear", "_args_": "ab"}, "model._args_"),
    ],
    ids=str,
)
def test_a_config_of_somebody_elses_that_describes_no_model(
    wine_run: Trained, tmp_path: Path, model: Any, key: str
) -> None:
    shutil.copytree(wine_run.run_dir, tmp_path / "run")
    config = OmegaConf.load(wine_run.run_dir / "config.yaml")
    config.model = model
    OmegaConf.save(config, tmp_path / "run" / "config.yaml")
    with pytest.raises(ConfigError, match=r"config\.yaml") as caught:
        assay.load(tmp_path / "run")
    assert caught.value.key == key


@pytest.fixture(scope="module")
def wine_run(train: Train) -> Trained:
    return train("data=wine", "callbacks=[default]", "trainer.max_epochs=5", "optimizer.lr=0.01")


def test_the_command_that_a_run_ends_with_is_right(kind_run: Trained, table: Path) -> None:
    screen = io.StringIO()
    print_run(Console(file=screen, width=1000), kind_run.result)
    (command,) = (line for line in screen.getvalue().splitlines() if "assay predict" in line)
    _, *words = shlex.split(command.replace("NEW_ROWS.csv", str(table / "rows.csv")))
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output


def test_a_config_gets_the_model_alone(wine_run: Trained, train: Train, tmp_path: Path) -> None:
    """Fine-tuning: the data of the new run normalises by itself."""
    (tmp_path / "model").mkdir()
    node = f"# Another run's model.\n_target_: assay.load\nrun: '{wine_run.run_dir}'\n"
    (tmp_path / "model" / "trained.yaml").write_text(node, encoding="utf-8")
    short = ("trainer.limit_train_batches=1", "optimizer.lr=1e-9", "callbacks=[default]")
    again = train("data=wine", "model=trained", *short, config_dir=tmp_path)
    assert again.record["metrics"]["test/accuracy"] == wine_run.record["metrics"]["test/accuracy"]
