"""`assay tune` chooses what is faster, says what changes results, and writes what can be typed."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris  # type: ignore[import-untyped]  # it has no stubs
from tests.command import documented
from torch import nn

from assay.callbacks.non_finite import NonFinite

if TYPE_CHECKING:
    from pathlib import Path

JOB = ("data=iris", "model=linear", "device=cpu", "trainer.max_epochs=50", "data.batch_size=4")


def sleep(*_: Any) -> None:
    time.sleep(0.02)  # whatever the number of samples: larger batches are faster


def test_the_job_as_typed_is_measured_within_any_budget(tmp_path: Path) -> None:
    code, found = documented("tune", *JOB, "--budget=1", "--write=mine", folder=tmp_path)
    assert code == 0
    first, *others = found["settings"]
    assert first["override"] == ""
    assert first["samples_per_s"] > 0
    assert {one["override"] for one in others} >= {"trainer.compile=true", "data.batch_size=8"}
    assert all(one["samples_per_s"] is None and one["note"] for one in others)
    assert (found["fastest"], found["gain"]) == ([], 1.0)
    assert "--budget" in found["interrupted"]
    path = tmp_path / "conf" / "experiment" / "mine.yaml"
    assert "batch_size: 4" in path.read_text()
    assert documented("check", "experiment=mine", folder=tmp_path)[1]["batch_size"] == 4
    code, found = documented("tune", *JOB, "--budget=1", "--write=mine", folder=tmp_path)
    assert code == 2
    assert "refusing to overwrite" in found["error"]["message"]


def test_an_experiment_stays_what_it_was(tmp_path: Path) -> None:
    words = ("experiment=wine_multitask", "device=cpu", "+tags=[mine]", "--budget=1", "--write=mine")
    assert documented("tune", *words, folder=tmp_path)[0] == 0
    (mine,) = documented("train", "--cfg", "experiment=mine", folder=tmp_path)[1]["configs"]
    (typed,) = documented("train", "--cfg", *words[:3], folder=tmp_path)[1]["configs"]
    for config in (mine, typed):
        del config["run_dir"]
    assert mine == typed
    code, found = documented("tune", *JOB, "~scheduler", "--budget=1", "--write=other", folder=tmp_path)
    assert (code, found["error"]["key"]) == (2, "--write")


def test_ctrl_c_shows_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def interrupt(*_: Any) -> None:
        calls.append(None)
        if len(calls) == 700:  # in the midst of the fourth measurement
            raise KeyboardInterrupt

    monkeypatch.setattr(NonFinite, "on_train_batch_end", interrupt)
    before = signal.getsignal(signal.SIGINT)
    code, found = documented("tune", *JOB, folder=tmp_path)
    assert code == 0
    assert found["interrupted"] == "stopped by Ctrl-C"
    assert found["settings"][0]["samples_per_s"] > 0
    assert len(calls) == 700
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.long
def test_the_largest_batch_is_chosen_where_a_step_takes_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NonFinite, "on_train_batch_end", sleep)
    code, found = documented("tune", *JOB, "--budget=300", "--write=mine", folder=tmp_path)
    assert code == 0
    settings = {one["override"]: one for one in found["settings"]}
    assert settings["data.batch_size=32"]["chosen"]
    assert not settings["data.batch_size=32"]["same_results"]
    assert 5 < settings["data.batch_size=32"]["gain"] < 9
    assert "data.batch_size=32" in found["next"][-1]
    assert documented("check", "experiment=mine", folder=tmp_path)[1]["batch_size"] == 32


def test_the_learning_rate_at_which_the_loss_falls_fastest(tmp_path: Path) -> None:
    words = ("data=iris", "model=linear", "device=cpu", "optimizer=sgd", "trainer.max_epochs=50")
    code, found = documented("tune", "--lr", "--plot=with space/lr.png", *words, folder=tmp_path)
    assert code == 0, found
    assert found["kind"] == "tune_lr"
    assert len(found["lrs"]) == len(found["losses"]) >= 50
    assert found["lrs"] == sorted(found["lrs"])
    assert (tmp_path / "with space" / "lr.png").stat().st_size > 10_000
    assert found["next"] == [f"assay train {' '.join(words)} optimizer.lr={found['lr']:g}"]
    inputs, targets = (torch.as_tensor(values) for values in load_iris(return_X_y=True))
    inputs = ((inputs - inputs.mean(0)) / inputs.std(0)).float()
    torch.manual_seed(0)
    model, losses, lrs = nn.Linear(4, 3), list[float](), np.geomspace(1e-6, 1, 400)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    for lr in lrs:  # by hand, on the same data
        optimizer.param_groups[0]["lr"] = float(lr)
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch left it untyped
        optimizer.step()
        losses.append(loss.item())
    assert 1 / 4 < found["lr"] / lrs[np.gradient(losses).argmin()] < 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["with space"]


def test_noise_is_no_fall_of_the_loss(tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    columns = draws.normal(size=(400, 3))
    target = draws.normal(size=400)
    target[::50] *= 50
    rows = np.column_stack([columns, target])
    np.savetxt(tmp_path / "t.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    words = ("data=table", "data.source.path=t.csv", "data.source.target=y", "model=mlp", "device=cpu")
    code, found = documented("tune", "--lr", *words, "data.batch_size=2", folder=tmp_path)
    assert code == 1, found
    assert "no learning rate stands out" in found["error"]["message"]
    assert "data.batch_size" in found["error"]["hint"]


LR_REFUSED: dict[tuple[str, ...], str] = {
    ("trainer.max_epochs=1",): "the run ends after",
    ("--write=mine",): "--lr writes no experiment",
    ("--budget=3",): "--lr takes as long as its steps",
    ("--plot=lr.txt",): "expected a name that ends in .png",
    ("optimizer.lr=fast",): "optimizer.lr",
}


@pytest.mark.parametrize("words", LR_REFUSED)
def test_what_has_no_learning_rate_to_find_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, found = documented("tune", "--lr", *JOB, *words, folder=tmp_path)
    assert code in (1, 2)
    assert LR_REFUSED[words] in found["error"]["message"]
    code, found = documented("tune", *JOB, "--plot=lr.png", folder=tmp_path)
    assert "add --lr" in found["error"]["hint"]
