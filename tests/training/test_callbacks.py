"""Every callback and fine-tuning in a real run, by what it leaves behind."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, outcome

import assay
from assay.compose.compose import compose
from assay.data.core.placement import Prepared
from assay.run.resume import resume
from assay_explain.listing import list_options

if TYPE_CHECKING:
    from pathlib import Path

    import lightning as L
    from tests.conftest import Train, Trained


DIGITS = ("data=digits", "model=mlp", "model.hidden=[16]", "scheduler=none", "optimizer.lr=0.01")


def named(typed: str) -> list[str]:
    return [str(name) for name in compose([f"callbacks={typed}"]).callbacks]


def test_lists_of_options_add_up() -> None:
    default = ["checkpoint", "batch_norm", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar"]
    assert named("default") == default
    assert named("[default,ema,drw]") == [*default, "ema", "drw"]
    options = {option.name for option in list_options("callbacks")} - {"default"}
    assert set(named(f"[{','.join(options)}]")) == options


@final
class Spoil(Callback):
    """Makes the weights large when an epoch begins, so that the epochs before it were better."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    @torch.no_grad()
    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            for parameter in pl_module.parameters():
                parameter.mul_(30)


def score(run: Trained, model: Any, part: str = "val") -> tuple[float, float]:
    """Mean cross-entropy and accuracy, by hand."""
    loader: Any = getattr(run.datamodule, f"{part}_dataloader")()
    batches = list(loader)
    inputs, targets = (torch.cat(column) for column in zip(*batches, strict=True))
    with torch.no_grad():  # what was trained on for long enough is normalised already
        ready = isinstance(batches[0], Prepared)
        logits = model.model(inputs if ready else model.preprocess(inputs))
    loss = float(torch.nn.functional.cross_entropy(logits, targets))
    return loss, float((logits.argmax(1) == targets).double().mean())


def test_checkpoint_keeps_the_best_and_the_last(train: Train) -> None:
    run = train(
        *DIGITS,
        "callbacks=[checkpoint,last_checkpoint]",
        "trainer.max_epochs=4",
        callbacks=[Spoil(epoch=3)],
        keep_weights=True,
    )
    losses = run.column("val/loss")
    assert len(losses) == 4
    assert losses[3] > losses[0]
    best = int(np.argmin(losses))
    assert run.record["best"] == {
        "monitor": "val/loss",
        "value": pytest.approx(losses[best], rel=1e-6),
        "epoch": best + 1,
        "sha256": run.record["best"]["sha256"],
    }
    steps = len(run.watch.weights) // 4
    for role, step in (("best", (best + 1) * steps), ("last", 4 * steps)):
        saved = run.checkpoint(role)
        assert saved["global_step"] == step
        for name, value in run.watch.weights[step - 1].items():
            assert torch.equal(saved["state_dict"][name], value)
    # The test is taken with the best weights, although the last ones were there.
    loss, accuracy = score(run, assay.load(run.run_dir), "test")
    assert run.result.metrics["test/loss"] == pytest.approx(loss, rel=1e-5)
    assert run.result.metrics["test/accuracy"] == pytest.approx(accuracy, abs=1e-6)
    # ... and the val/loss on record is that of the best weights, too.
    assert score(run, assay.load(run.run_dir))[0] == pytest.approx(losses[best], rel=1e-5)
    assert score(run, assay.load(run.run_dir, checkpoint="last"))[0] == pytest.approx(losses[3], rel=1e-5)


AVERAGES = {
    "ema": ("callbacks.ema.decay=0.8", "callbacks.ema.warmup_fraction=null", "trainer.limit_train_batches=6"),
    "swa": ("callbacks.swa.start_fraction=0.5", "trainer.max_epochs=4", "trainer.limit_train_batches=4"),
}


@pytest.mark.parametrize("kind", AVERAGES)
def test_all_that_is_not_training_sees_the_averaged_weights(train: Train, kind: str) -> None:
    run = train(
        *("data=digits", "model=small_cnn", "model.widths=[4,8]", "scheduler=none", "optimizer.lr=0.01"),
        *(f"callbacks=[checkpoint,last_checkpoint,{kind}]", *AVERAGES[kind]),
        keep_weights=True,
    )
    saved, steps = run.checkpoint("last"), run.watch.weights
    shares = np.zeros(len(steps))
    if kind == "swa":
        shares[[11, 15]] = 0.5  # after the third and the fourth epoch
    else:
        shares[:] = [0.8**5, *(0.2 * 0.8**power for power in (4, 3, 2, 1, 0))]
    for name, value in saved["state_dict"].items():
        if value.is_floating_point() and name.startswith("model."):
            each = np.stack([step[name].double().numpy() for step in steps])
            average = np.tensordot(shares, each, 1)
            np.testing.assert_allclose(value.numpy(), average, rtol=1e-4, atol=1e-6)
            assert torch.equal(saved["current_model_state"][name], steps[-1][name])
    head = "model.head.weight"
    assert not torch.allclose(saved["state_dict"][head], steps[-1][head], rtol=1e-3)
    model = assay.load(run.run_dir)
    np.testing.assert_allclose(score(run, model)[0], run.column("val/loss")[-1], rtol=1e-4)
    np.testing.assert_allclose(score(run, model, "test")[0], run.result.metrics["test/loss"], rtol=1e-4)
    assert run.record["best"]["epoch"] == len(run.column("val/loss"))


CNN = ("data=digits", "model=timm", "model.name=test_efficientnet")
SHORT = ("data.batch_size=64", "trainer.limit_train_batches=4", "trainer.limit_test_batches=1")


@pytest.fixture(scope="module")
def pretrained(train: Train) -> Path:
    return train(*CNN, *SHORT, "callbacks=[last_checkpoint]").run_dir


def state_of(run_dir: Path) -> dict[str, torch.Tensor]:
    saved = torch.load(run_dir / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return dict(saved)


def test_the_head_alone_moves_and_the_statistics_stay(train: Train, pretrained: Path) -> None:
    run: Trained = train(
        *CNN, *SHORT, "finetune=head", f"model.weights={pretrained}", "callbacks=[ema,last_checkpoint]"
    )
    before, after = state_of(pretrained), state_of(run.run_dir)
    head = {name for name in after if name.startswith("model.network.classifier.")}
    assert len(head) == 2
    for name, value in after.items():
        assert torch.equal(value, before[name]) == (name not in head), name
    told = run.record["model"]
    assert told["trainable_parameters"] == sum(after[name].numel() for name in head) < told["parameters"]
    log = (run.run_dir / "log.txt").read_text()
    assert (
        f"finetune=head: {told['trainable_parameters']:,} of {told['parameters']:,} parameters are trained"
        in log
    )
    assert f"as those of the run {pretrained} were" in log
    assert list(run.config.spec.mean) == pytest.approx([4.884], abs=0.01)


GRADUAL = (
    *(*CNN, *SHORT, "finetune=gradual", "trainer.max_epochs=3"),
    *("callbacks=[checkpoint,last_checkpoint]", "callbacks.last_checkpoint.every_n_train_steps=1"),
)


@pytest.fixture(scope="module")
def gradual_run(train: Train, pretrained: Path) -> Trained:
    return train(*GRADUAL, f"model.weights={pretrained}")


@pytest.mark.always("before an unfreezing")
@pytest.mark.parametrize("batch", [4, 6], ids=["before an unfreezing", "after it"])
def test_a_gradual_run_goes_on_bit_for_bit(
    train: Train, pretrained: Path, gradual_run: Trained, batch: int
) -> None:
    whole, job = gradual_run, (*GRADUAL, f"model.weights={pretrained}")
    stopped = train(*job, callbacks=[Interrupt("batch", batch)]).run_dir
    with chdir(stopped.parent), unchanged_process():
        resume(stopped.name)
    assert outcome(stopped) == outcome(whole.run_dir)
    before, after = state_of(pretrained), state_of(stopped)
    moved = {name for name in after if not torch.equal(after[name], before[name])}
    parts = {name.removeprefix("model.network.").partition(".")[0] for name in moved}
    assert parts == {"classifier", "conv_head", "bn2", "blocks"}
    assert not any(name.startswith("model.network.blocks.0.") for name in moved)
