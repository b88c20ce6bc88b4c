"""Fine-tuning as a user does it: from the weights of a run, with a part of them frozen."""

from __future__ import annotations

from contextlib import chdir
from typing import TYPE_CHECKING

import pytest
import torch
from tests.conftest import unchanged_process
from tests.interrupting import Interrupt, outcome

from assay.errors import AssayError
from assay.run.resume import resume

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Train, Trained

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


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("finetune=lora", r"no linear or attention layer besides its head.*finetune=gradual"),
        ("model.name=resnet1", r"is not a network of timm; similar names: resnet18"),
        ("model.weights=nowhere.pth", r"model\.weights=nowhere\.pth is neither a file nor a run"),
    ],
)
def test_what_cannot_be_is_refused(train: Train, typed: str, says: str) -> None:
    with pytest.raises(AssayError, match=says):
        train("data=digits", "model=timm", "model.name=test_resnet", typed)


def test_a_head_on_random_features_is_warned_of(train: Train) -> None:
    run = train(*CNN, *SHORT, "finetune=head")
    said = (run.run_dir / "log.txt").read_text()
    assert "finetune=head keeps weights that were never trained: the model starts from random ones" in said
    assert "model.weights=FILE" in said
