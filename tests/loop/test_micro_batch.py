"""A step in pieces is the step of the whole batch; when memory runs out it is taken again in halves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from tests.conftest import DEVICES, unchanged_process
from tests.interrupting import outcome
from torch import Tensor, nn
from typing_extensions import override

from assay.record.run_record import RunRecord
from assay.run.resume import resume
from assay_lab import reproduce as reproduce_module
from assay_lab.run_again import run_again

if TYPE_CHECKING:
    from pathlib import Path

    import lightning as L
    from tests.conftest import Train, Trained

SMALL = (
    *("data=digits", "data.batch_size=20", "trainer.limit_train_batches=5", "trainer.max_epochs=2"),
    *("trainer.limit_val_batches=1", "trainer.limit_test_batches=1", "data.eval_batch_size=64"),
    *("optimizer.lr=0.01", "model=mlp"),
)


@final
class Room(Callback):
    """A device on which, from a batch on, a layer has room for so many samples in training.

    Memory runs out for real: the layer asks the allocator for what no machine has.

    Args:
        most: Samples; None for no limit.
        at: The first batch with the limit.
        where: `forward` or `backward`.
    """

    def __init__(self, most: int | None, at: int = 0, where: str = "forward") -> None:
        self.most, self.at, self.where, self.now = most, at, where, 0
        self.sizes: list[list[int]] = []

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        self.now = trainer.fit_loop.epoch_loop.batch_progress.total.completed
        self.sizes.append([])

    @override
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        last = [part for part in pl_module.model.modules() if isinstance(part, nn.Linear)][-1]  # type: ignore[union-attr]  # ours
        last.register_forward_hook(self._look)

    def _look(self, layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if not layer.training:
            return
        self.sizes[-1].append(len(output))
        if self.most is None or self.now < self.at or len(output) <= self.most:
            return
        if self.where == "forward":
            torch.empty(1 << 50, device=output.device)
        inputs[0].register_hook(lambda grad: torch.empty(1 << 50, device=grad.device))  # type: ignore[no-untyped-call]  # torch's


def close(one: Trained, other: Trained, rtol: float) -> None:
    for name, weight in one.weights.items():
        torch.testing.assert_close(other.weights[name], weight, rtol=rtol, atol=rtol)
    for name in ("train/loss", "val/loss", "train/accuracy"):
        assert one.column(name) == pytest.approx(other.column(name), rel=max(rtol, 1e-6)), name


@pytest.fixture(scope="module")
def whole(train: Train) -> Trained:
    return train(*SMALL, "precision=fp64", "augment=mixup")


@pytest.mark.always("7")
@pytest.mark.parametrize("size", ["7", "1", "20", "auto"])
def test_pieces_of_a_mixed_batch_add_up_to_it(train: Train, whole: Trained, size: str) -> None:
    room = Room(None)
    pieces = train(*SMALL, "precision=fp64", "augment=mixup", f"trainer.micro_batch={size}", callbacks=[room])
    expected = {"7": [6, 7, 7], "1": [1] * 20}.get(size, [20])
    assert room.sizes == [expected] * 10
    close(whole, pieces, 1e-12)
    if len(expected) == 1:
        assert all(torch.equal(one, pieces.weights[name]) for name, one in whole.weights.items())


@pytest.mark.always("backward-3-cpu")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_step_that_found_no_room_is_taken_again(
    train: Train, where: str, accumulate: int, device: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = (*SMALL, f"device={device}", f"trainer.accumulate_grad_batches={accumulate}")
    room = Room(6, at=7, where=where)
    plain, less = train(*job), train(*job, "trainer.micro_batch=auto", callbacks=[room])
    assert room.sizes[:7] == [[20]] * 7
    assert room.sizes[7:] == [[20, 10, 5, 5, 5, 5], [5] * 4, [5] * 4]
    close(plain, less, 1e-6)
    assert less.record["micro_batch"] == {"7": 5}
    assert less.record["status"] == "finished"
    assert plain.record["micro_batch"] == {}
    told = "out of memory in batch 7"
    assert (less.run_dir / "log.txt").read_text().count(told) == 2
    assert [one.name for one in caplog.records if told in one.getMessage()] == ["assay.notes"] * 2, "printed"


BATCH_NORM = ("model=small_cnn", "model.widths=[4,8]", "augment=mixup")
DROPOUT = ("model.dropout=0.5", "trainer.accumulate_grad_batches=2")


@pytest.mark.always("batch_norm")
@pytest.mark.parametrize(
    ("parts", "steps", "from_step"), [(BATCH_NORM, 3, 3), (DROPOUT, 1, 1)], ids=["batch_norm", "dropout"]
)
def test_a_run_that_goes_on_and_one_that_reproduces_take_the_same_pieces(
    train: Train, monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...], steps: int, from_step: int
) -> None:
    """Neither of them lacks memory. The first one goes on from before the batch in which it ran out."""
    job = (*SMALL, *parts, "callbacks=[last_checkpoint]", "trainer.micro_batch=auto")
    job += (f"callbacks.last_checkpoint.every_n_train_steps={steps}",)
    at = 4 if parts is BATCH_NORM else 3
    less = train(*job, callbacks=[Room(5, at=at, where="backward")])
    assert less.record["micro_batch"] == {str(at): 5}
    room, stop = Room(5, at=at, where="backward"), _Stop(at)
    stopped = train(*job, callbacks=[room, stop], raise_errors=False)
    assert stopped.record["micro_batch"] == {str(at): 5}
    resume(stopped.run_dir)
    assert RunRecord.load(stopped.run_dir).resumed[0]["from_step"] == from_step
    assert outcome(stopped.run_dir) == outcome(less.run_dir)
    monkeypatch.setattr(reproduce_module, "_run_again", _here)
    again = reproduce_module.reproduce(less.run_dir)
    assert again.identical, again.different


@final
class _Stop(Callback):
    """Ends a run once the gradients of a batch are there, before a checkpoint can hold it."""

    def __init__(self, at: int) -> None:
        self.at = at

    @override
    def on_after_backward(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.total.completed == self.at:
            raise SystemExit(9)


def _here(python: Path, run_dir: Path, again: Path, environment: object, trusted: object) -> None:
    """What the process of `reproduce` does, in this one."""
    del python, environment, trusted
    with unchanged_process():
        run_again(run_dir, again, ())


@pytest.mark.long
def test_every_call_of_the_closure_takes_the_same_pieces(train: Train) -> None:
    job = (*SMALL, "optimizer=lbfgs", "optimizer.lr=0.1", "optimizer.max_iter=3", "precision=fp64")
    room = Room(None)
    close(train(*job), train(*job, "trainer.micro_batch=10", callbacks=[room]), 1e-9)
    assert all(sizes == [10, 10] * (len(sizes) // 2) and len(sizes) > 4 for sizes in room.sizes)


@pytest.mark.parametrize("device", DEVICES)
def test_one_error_where_there_is_no_room_for_one_sample(train: Train, device: str) -> None:
    words = (*SMALL, f"device={device}", "trainer.micro_batch=auto")
    failed = train(*words, callbacks=[Room(0)], raise_errors=False)
    assert failed.record["cause"] == "out_of_memory"
    assert "no room for 1 sample at a time" in failed.record["reason"]


def test_a_loss_that_is_not_finite_is_told_as_of_the_whole_batch(train: Train) -> None:
    job = ("data=diabetes", "model=mlp", "callbacks=[non_finite]", "optimizer=sgd", "optimizer.lr=100")
    told = [
        train(*job, f"trainer.micro_batch={size}", raise_errors=False).record["reason"]
        for size in (7, "null")
    ]
    assert told[0] == told[1]
