"""What callbacks and `self.log` keep for themselves goes through a checkpoint, and nothing else does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch.callbacks import Callback, EarlyStopping, LambdaCallback, ModelCheckpoint
from tests.loop.small_fit import Line, fit
from typing_extensions import override

from assay.errors import AssayError
from assay.loop.lightning_internals import (
    bookkeeping,
    logged_state,
    note_saved,
    take_up_bookkeeping,
    take_up_logged,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_callback_keeps_is_given_back() -> None:
    saver, other = ModelCheckpoint(), ModelCheckpoint()
    note_saved(saver, 7)
    state = bookkeeping(saver)
    assert state["_last_global_step_saved"] == 7
    take_up_bookkeeping(other, state)
    assert bookkeeping(other) == state
    assert bookkeeping(EarlyStopping("val/loss")) == {}


@pytest.mark.parametrize(
    ("saved", "links_to"),
    [
        ("old/best.ckpt", "new/best.ckpt"),
        ("new/best.ckpt", "new/best.ckpt"),
        ("new/deep/best.ckpt", "new/deep/best.ckpt"),
        ("new/../thesis.ckpt", None),
        ("thesis.ckpt", None),
        ("old/gone.ckpt", None),
    ],
)
def test_a_link_is_made_to_what_lies_in_the_folder_of_a_run_that_was_moved(
    tmp_path: Path, saved: str, links_to: str | None
) -> None:
    for name in ("old/best.ckpt", "new/best.ckpt", "new/deep/best.ckpt", "thesis.ckpt", "old/gone.ckpt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    saver = ModelCheckpoint(tmp_path / "new")
    take_up_bookkeeping(saver, {"_last_checkpoint_saved": str(tmp_path / saved)})
    expected = str(tmp_path / links_to) if links_to else ""
    assert bookkeeping(saver)["_last_checkpoint_saved"] == expected


@pytest.mark.parametrize(
    "state",
    [
        *({"_last_global_step_saved": "7"}, {"_last_checkpoint_saved": None}, {"dirpath": "/"}),
        *({"_last_global_step_saved": True}, {"format_checkpoint_name": "x"}, {"__class__": int}),
    ],
    ids=str,
)
def test_nothing_else_is_written_into_a_callback(state: dict[str, Any]) -> None:
    saver = ModelCheckpoint()
    before = dict(vars(saver))
    with pytest.raises(AssayError, match="of ModelCheckpoint: it was changed"):
        take_up_bookkeeping(saver, state)
    assert vars(saver) == before


class Talks(Line):
    """Logs a mean and a largest value of the epoch."""

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("mean", loss, on_step=False, on_epoch=True, batch_size=2)
        self.log("largest", loss, on_step=True, on_epoch=True, reduce_fx="max", batch_size=2)
        return loss


class Keeps(Callback):
    """Keeps what was logged up to a step, or puts it into another run."""

    def __init__(self, batch: int, state: dict[str, Any] | None = None) -> None:
        self.batch, self.state = batch, state

    @override
    def on_train_batch_end(self, trainer: Any, pl_module: Any, *given: Any) -> None:
        batch_idx, loop = given[2], trainer.fit_loop.epoch_loop
        if batch_idx == self.batch and self.state is None:
            self.state = logged_state(loop)
        elif batch_idx == self.batch and self.state is not None:
            take_up_logged(loop, self.state)


def test_what_was_logged_counts_in_the_run_that_goes_on() -> None:
    kept = Keeps(3)
    metrics = fit(Talks(), kept).callback_metrics
    empty, module = Keeps(0, kept.state), Talks()
    again = fit(module, empty, limit_train_batches=1).callback_metrics
    losses: list[float] = []
    look = LambdaCallback(on_train_batch_end=lambda *given: losses.append(float(given[2]["loss"])))
    fit(Talks(), look)
    assert float(metrics["mean"]) == pytest.approx(sum(losses) / 6)
    assert float(again["mean"]) == pytest.approx(sum(losses[:4]) / 4)
    assert float(again["largest_epoch"]) == pytest.approx(max(losses[:4]))


@pytest.mark.parametrize(
    "changed", [{"reduce": "load"}, {"meta": {"__class__": 1}}, {"values": {"__dict__": {}}}], ids=str
)
def test_what_is_never_logged_is_refused(changed: dict[str, Any]) -> None:
    kept = Keeps(3)
    trainer = fit(Talks(), kept)
    assert kept.state is not None
    state = {key: {**one, **changed} for key, one in kept.state.items()}
    loop: Any = trainer.fit_loop.epoch_loop
    with pytest.raises(AssayError, match="what is never logged: it was changed"):
        take_up_logged(loop, state)
