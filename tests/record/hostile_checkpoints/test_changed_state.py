"""What a checkpoint says of callbacks, loops and logs is data: no file is touched, and one line says why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tests.interrupting import Interrupt

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.errors import AssayError
from assay.run.resume import resume

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Train

JOB = (
    *("data=iris", "model=linear", "callbacks=[checkpoint,last_checkpoint]", "trainer.max_epochs=3"),
    *("callbacks.last_checkpoint.every_n_train_steps=1", "data.batch_size=64"),
)


@pytest.fixture(scope="module")
def run_dir(train: Train) -> Path:
    return train(*JOB, callbacks=[Interrupt("batch", 3)]).run_dir


def resumed(run_dir: Path, folder: Path, change: Callable[[dict[str, Any]], object]) -> str:
    """Status of a copy of the run that goes on from a changed checkpoint."""
    copy = Path(shutil.copytree(run_dir, folder / "run"))
    path = copy / "checkpoints" / "last.ckpt"
    checkpoint = CheckpointFile().load_checkpoint(path)
    change(checkpoint)
    CheckpointFile().save_checkpoint(checkpoint, path)
    return resume(copy).status


def carried(checkpoint: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = checkpoint["loops"]["fit_loop"]["state_dict"]["carried"]
    return state


def note_of(checkpoint: dict[str, Any], kind: str) -> dict[str, Any]:
    states: dict[str, Any] = carried(checkpoint)["callbacks"]
    state: dict[str, Any] = next(state for key, state in states.items() if kind in key)
    return state


@pytest.mark.always("best_model_path-VICTIM", "__class__-1")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("dirpath", "/"), ("best_model_path", "VICTIM"), ("best_k_models", {"VICTIM": 0.0})],
        *[("on_train_end", "x"), ("__class__", 1)],
    ],
)
def test_no_attribute_of_a_callback_is_set_but_its_own(
    run_dir: Path, tmp_path: Path, name: str, value: Any
) -> None:
    def change(checkpoint: dict[str, Any]) -> None:
        note_of(checkpoint, "ModelCheckpoint")[name] = value

    assert resumed(run_dir, tmp_path, change) == "finished"


@pytest.mark.always(
    "where it is-victim.txt-kth_best_model_path", "-run/checkpoints/../../victim.txt-best_k_models"
)
@pytest.mark.parametrize(
    "name", ["best_model_path", "kth_best_model_path", "last_model_path", "best_k_models"]
)
@pytest.mark.parametrize("where", ["victim.txt", "run/checkpoints/../../victim.txt"])
@pytest.mark.parametrize("dirpath", ["where it is", "where the victim is", ""])
def test_no_file_outside_the_run_is_removed(
    run_dir: Path, tmp_path: Path, name: str, where: str, dirpath: str
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    path = f"{tmp_path}/{where}"
    folders = {"where it is": f"{tmp_path}/run/checkpoints", "where the victim is": str(tmp_path)}

    def change(checkpoint: dict[str, Any]) -> None:
        for state in checkpoint["callbacks"].values():
            if isinstance(state, dict) and state.get("monitor"):
                state[name] = {path: torch.tensor(9.0)} if name == "best_k_models" else path
                state["dirpath"] = folders.get(dirpath, "")

    assert resumed(run_dir, tmp_path, change) == "finished"
    assert victim.read_text() == "precious"


def test_a_reduction_is_none_that_a_file_names(run_dir: Path, tmp_path: Path) -> None:
    def change(checkpoint: dict[str, Any]) -> None:
        values = {"value": torch.tensor(0.0)}
        logged = {"meta": {}, "reduce": "load", "together": False, "first_only": False, "updates": 1}
        carried(checkpoint)["processes"][0]["logged"] = {"a": {**logged, "values": values}}

    with pytest.raises(AssayError, match="has an unexpected entry for 'a'"):
        resumed(run_dir, tmp_path, change)
