"""The same seed gives the same run, bit for bit; what should not matter does not."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from tests.conftest import Train, Trained

# Everything that draws: dropout, mixup, initial weights, the order of samples.
DRAWING = (
    *("data=digits", "model=mlp", "model.hidden=[16]", "model.dropout=0.5", "augment=mixup"),
    *("trainer.limit_train_batches=8", "trainer.max_epochs=2"),
)


def digest(run: Trained) -> str:
    whole = hashlib.sha256()
    for name, value in sorted(run.weights.items()):
        whole.update(name.encode())
        whole.update(value.numpy().tobytes())
    return whole.hexdigest()


@pytest.fixture(scope="module")
def first(train: Train) -> Trained:
    return train(*DRAWING, "seed=7")


def test_same_seed_same_run(train: Train, first: Trained) -> None:
    torch.manual_seed(12345)  # what happened in the process before does not matter
    torch.rand(17)
    second = train(*DRAWING, "seed=7")
    assert digest(second) == digest(first)
    assert second.watch.losses == first.watch.losses
    assert (second.run_dir / "metrics.csv").read_bytes() == (first.run_dir / "metrics.csv").read_bytes()
    assert second.result.metrics == first.result.metrics
    assert second.record["fingerprint"] == first.record["fingerprint"]
    assert second.record["data_sha256"] == first.record["data_sha256"]


def test_other_seed_other_run(train: Train, first: Trained) -> None:
    other = train(*DRAWING, "seed=8")
    assert digest(other) != digest(first)
    assert other.watch.losses[0] != first.watch.losses[0]
    assert other.record["fingerprint"] != first.record["fingerprint"]
    # The test samples are the same: the split has a seed of its own.
    assert other.record["data_sha256"] == first.record["data_sha256"]


@pytest.mark.always("overrides0", "overrides3")
@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.val_check_interval=2"],
        ["trainer.limit_val_batches=0"],
        ["data.eval_batch_size=50"],
        ["callbacks=[default,device_stats]"],
        ["logger=[]"],
    ],
)
def test_what_is_looked_at_does_not_change_the_weights(
    train: Train, first: Trained, overrides: list[str]
) -> None:
    run = train(*DRAWING, "seed=7", *overrides)
    assert run.watch.losses == first.watch.losses
    assert digest(run) == digest(first)
