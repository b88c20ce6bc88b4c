"""Somebody else's module, data set and config folder go the same way as ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # ships no types
import pytest
import torch
from sklearn.datasets import load_iris  # type: ignore[import-untyped]  # ships no types
from tests.conftest import unchanged_process

import assay
from assay.data.core.placement import Prepared
from assay.errors import AssayError
from assay_serve.evaluate import evaluate
from assay_serve.export.export import export

if TYPE_CHECKING:
    from tests.conftest import Train

PROJECT = Path(__file__).parent / "project"


@pytest.fixture(autouse=True)
def own_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PROJECT))


def test_own_lightning_module(train: Train) -> None:
    run = train(
        *("data=digits", "experiment=gan", "callbacks=[checkpoint,last_checkpoint]", "trainer.max_epochs=2"),
        config_dir=PROJECT / "conf",
    )
    assert type(run.module).__qualname__ == "Gan"
    assert run.moved()
    assert run.record["status"] == "finished"
    assert run.record["name"] == "gan"
    assert set(run.result.metrics) == {"train/critic_loss", "val/loss", "test/loss"}
    assert set(run.record["checkpoints"]) == {"best", "last"}
    best = run.checkpoint("best")["state_dict"]
    critic = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    critic.load_state_dict({name[7:]: value for name, value in best.items() if name.startswith("critic.")})
    [batch] = run.datamodule.test_dataloader()
    assert isinstance(batch, Prepared), "normalised once, while it was trained"
    with torch.no_grad():
        logits = critic(batch.inputs.flatten(1))
    expected = torch.nn.functional.softplus(-logits).mean()
    assert run.result.metrics["test/loss"] == pytest.approx(float(expected), rel=1e-5)


def test_own_data_set_of_mappings(train: Train) -> None:
    run = train(
        "data=patches", "model=linear", "optimizer.lr=0.03", config_dir=PROJECT / "conf", keep_passes=True
    )
    assert run.config.spec.input_shape == [1, 8, 8]
    assert run.config.spec.num_classes == 2
    assert tuple(run.watch.passes[0].inputs.shape) == (20, 1, 8, 8)
    assert run.watch.falls()
    assert run.result.metrics["test/accuracy"] > 0.9


OWN = ("module._target_=own_project.plain.Plain", "data._target_=own_project.plain.Sums")


def test_own_parts_are_typed_over_whatever_was_there(
    train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    """As README promises: no key of assay's datamodule reaches the other one, which has no such arguments."""
    run = train(
        *(*OWN, "data.batch_size=16", "callbacks=[default]", "trainer.max_epochs=20"),
        config_dir=PROJECT / "conf",
    )
    assert run.record["status"] == "finished"
    assert run.record["name"] == "Sums_Plain"
    assert (run.record["choices"]["data"], run.record["choices"]["model"]) == ("Sums", "Plain")
    assert run.datamodule.batch_size == 16
    assert dict(run.config.data) == {"_target_": "own_project.plain.Sums", "batch_size": 16}
    assert "nothing was tested: the module has no test_step" in capsys.readouterr().out
    model = assay.load(run.run_dir, map_location="cpu", trusted_packages=["own_project"])
    with torch.no_grad():
        assert float(model(torch.ones(1, 3))) == pytest.approx(3, abs=0.1)
    assert not model.training


def test_what_an_own_loss_has_learnt_is_trained_kept_and_used(train: Train, tmp_path: Path) -> None:
    run = train(
        *("data=iris", "model=linear", "loss=tempered", "metrics=multiclass", "param_groups=no_decay"),
        *("optimizer.lr=0.1", "optimizer.weight_decay=1.0", "trainer.max_epochs=2"),
        "callbacks=[last_checkpoint,lr_monitor]",
        config_dir=PROJECT / "conf",
    )
    saved = run.checkpoint("last")["state_dict"]
    temperature = saved["loss.log_temperature"].exp()
    assert abs(temperature - 1) > 0.05, "the optimizer is given it"
    groups = {group["name"]: group for group in run.trainer.optimizers[0].param_groups}
    assert groups["loss"]["weight_decay"] == 0
    assert "lr-AdamW/loss" in run.rows[-1]
    assert saved["loss.center"].abs().min() > 0.001
    trusted: Any = {"trusted_packages": ["own_project"]}
    predictor = assay.load(run.run_dir, map_location="cpu", **trusted)
    assert predictor.state_dict().keys() == saved.keys()
    flowers = torch.from_numpy(load_iris().data).float()
    found = torch.from_numpy(predictor(flowers).probabilities)
    spec = run.config.spec
    with torch.no_grad():
        logits = run.module.model((flowers - torch.tensor(spec.mean)) / torch.tensor(spec.std))
    torch.testing.assert_close(found, ((logits - saved["loss.center"]) / temperature).softmax(1))
    with unchanged_process():
        again = evaluate(run.run_dir, ["trusted_packages=[own_project]"], checkpoint="last")
    assert again.metrics == {name: run.record["metrics"][name] for name in again.metrics}
    exported = export(run.run_dir, checkpoint="last", out=tmp_path / "whole", **trusted)
    outputs, *_ = onnxruntime.InferenceSession(exported.path).run(None, {"inputs": flowers.numpy()})
    np.testing.assert_allclose(outputs, found, atol=1e-6)
    weights = export(run.run_dir, "safetensors", checkpoint="last", out=tmp_path / "bare", **trusted)
    assert any("loss.center, loss.log_temperature" in note for note in weights.notes), weights.notes
    other = torch.load(run.run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    del other["state_dict"]["loss.center"]
    torch.save(other, run.run_dir / "checkpoints" / "last.ckpt")
    (run.run_dir / "checkpoints" / "last.ckpt.sha256").unlink()
    with pytest.raises(AssayError, match=r"last\.ckpt does not fit .*config\.yaml.*center"):
        assay.load(run.run_dir, map_location="cpu", **trusted)
