"""The average against its own formula, step by step, and the examples that ended with the initial weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from omegaconf import OmegaConf
from typing_extensions import override

from assay.callbacks.ema import EMA
from assay.check.callbacks import check_callbacks, notes_on
from assay.check.prove import Prover
from assay.compose.compose import compose, job_config
from assay.errors import ConfigError

if TYPE_CHECKING:
    import lightning as L
    from tests.conftest import Train

PROJECT = Path(__file__).parents[1] / "training" / "project"
SHORT = ("data=digits", "model=linear", "optimizer.lr=0.05", "trainer.limit_train_batches=12")


class After(Callback):
    """The weights after each optimizer step."""

    def __init__(self) -> None:
        self.weights: list[np.ndarray[Any, Any]] = []

    @override
    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: object) -> None:
        weights = torch.cat([p.detach().flatten() for p in pl_module.parameters()])
        self.weights.append(weights.double().numpy().copy())


def averaged(steps: list[np.ndarray[Any, Any]], decay: float, warmup: float | None, every: int) -> Any:
    """The paper's recursion, in double precision."""
    taken = steps[::every]
    average = taken[0]
    for update, weights in enumerate(taken[1:], start=2):
        now = decay if warmup is None else min(decay, 1 - 1 / max(1.0, warmup * update))
        average = now * average + (1 - now) * weights
    return average


@pytest.mark.always("0.9-0.5-1", "0.8-0.5-3")
@pytest.mark.parametrize(
    ("decay", "warmup", "every"), [(0.9, 0.5, 1), (0.9, None, 1), (0.999, 0.1, 1), (0.8, 0.5, 3)]
)
def test_is_the_recursion(train: Train, decay: float, warmup: float | None, every: int) -> None:
    values = {"decay": decay, "warmup_fraction": "null" if warmup is None else warmup}
    typed = [f"callbacks.ema.{name}={value}" for name, value in values.items()]
    ema = ["callbacks=[last_checkpoint,ema]", *typed, f"callbacks.ema.update_every_n_steps={every}"]
    run = train(*SHORT, *ema, "trainer.max_epochs=3", callbacks=[after := After()])
    assert len(after.weights) == 36
    saved = run.checkpoint("last")["state_dict"]
    weights = torch.cat([value.flatten() for value in saved.values()]).double().numpy()
    np.testing.assert_allclose(weights, averaged(after.weights, decay, warmup, every), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("every", [2, 4])
def test_a_module_that_takes_two_steps_a_batch_by_hand(
    train: Train, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its steps are counted by twos: a multiple of an even number was never among them."""
    monkeypatch.syspath_prepend(str(PROJECT))
    ema = ["callbacks=[last_checkpoint,ema]", "callbacks.ema.decay=0.9", "callbacks.ema.warmup_fraction=null"]
    words = ("data=digits", "experiment=gan", *ema, "trainer.max_epochs=3", "trainer.limit_train_batches=20")
    after, typed = After(), f"callbacks.ema.update_every_n_steps={every}"
    run = train(*words, typed, callbacks=[after], config_dir=PROJECT / "conf")
    saved = run.checkpoint("last")["state_dict"]
    weights = torch.cat([value.flatten() for value in saved.values()]).double().numpy()
    np.testing.assert_allclose(weights, averaged(after.weights, 0.9, None, every // 2), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "values", [{"decay": 1.0}, {"decay": -0.1}, {"warmup_fraction": 0.0}, {"update_every_n_steps": 0}]
)
def test_values_out_of_range(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(values))):
        EMA(**values)


def of(*overrides: str) -> Any:
    config = job_config(
        compose(
            [
                "data=digits",
                "model=linear",
                "device=cpu",
                "trainer.max_epochs=30",
                "data.batch_size=64",
                *overrides,
            ]
        )
    )
    OmegaConf.set_struct(config, False)
    return config


def test_check_warns_of_a_horizon_that_is_longer_than_the_run() -> None:
    report = Prover().prove(of("callbacks=ema")).report
    (_, warning) = report.notes  # after what the recipe has chosen
    assert "looks back 1,000 steps, and the run has 570; the warm-up keeps it to 10 % of them" in warning
    assert len(Prover().prove(of("callbacks=ema", "callbacks.ema.decay=0.99")).report.notes) == 1
    (_, warning) = Prover().prove(of("callbacks=ema", "callbacks.ema.warmup_fraction=null")).report.notes
    left = 0.999**570
    assert f"{100 * left:.0f} % of the average are the initial weights" in warning
    config = of("callbacks=ema", "trainer.max_epochs=3000")
    config.spec = {"total_steps": 57_000}
    assert notes_on(config) == []


@pytest.mark.parametrize(
    "kind", ["assay.callbacks.ema.EMA", "lightning.pytorch.callbacks.EMAWeightAveraging"]
)
def test_an_average_that_is_hardly_ever_updated_is_refused(kind: str) -> None:
    config = of("callbacks=ema", f"callbacks.ema._target_={kind}", "callbacks.ema.update_every_n_steps=100")
    config.spec = {"total_steps": 570}
    with pytest.raises(ConfigError, match="lag") as caught:
        check_callbacks(config)
    assert caught.value.key == "callbacks.ema.update_every_n_steps"


@pytest.mark.parametrize(("precision", "dtype"), [("fp64", torch.float64), ("bf16_true", torch.bfloat16)])
def test_weights_and_buffers_of_another_precision_are_averaged(
    train: Train, precision: str, dtype: torch.dtype
) -> None:
    """The loss has a buffer, which Lightning converts after the average was begun."""
    done = train(
        *("data=iris", "model=mlp", "trainer.max_epochs=1", "callbacks=[last_checkpoint,ema]"),
        *(f"precision={precision}", "loss.class_weight=balanced"),
    )
    saved = torch.load(done.run_dir / "checkpoints" / "last.ckpt", weights_only=True)
    for state in (saved["state_dict"], saved["current_model_state"]):
        assert {value.dtype for value in state.values() if value.is_floating_point()} == {dtype}
