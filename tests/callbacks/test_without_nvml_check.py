from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from lightning.pytorch.callbacks import Callback
from typing_extensions import override

from assay.build.trainer import VARIABLE

if TYPE_CHECKING:
    from tests.conftest import Train

SMALL = (
    *("data=digits", "model=mlp", "model.hidden=[4]", "trainer.max_epochs=1"),
    *("trainer.limit_train_batches=3", "trainer.limit_val_batches=2"),
)


class Asked(Callback):
    """Notes the variable in each hook, and ends the run if it is told to."""

    def __init__(self, *, fails: bool = False) -> None:
        self.seen: dict[str, set[str | None]] = {}
        self.fails = fails

    def note(self, hook: str) -> None:
        self.seen.setdefault(hook, set()).add(os.environ.get(VARIABLE))

    @override
    def on_fit_start(self, *_: Any) -> None:
        self.note("fit")

    @override
    def on_train_batch_end(self, *_: Any) -> None:
        self.note("train")
        if self.fails:
            raise RuntimeError("it fails")

    @override
    def on_validation_batch_end(self, *_: Any) -> None:
        self.note("validation")

    @override
    def on_test_batch_end(self, *_: Any) -> None:
        self.note("test")

    @override
    def teardown(self, *_: Any, **__: Any) -> None:
        self.note("teardown")

    @override
    def on_exception(self, *_: Any) -> None:
        self.note("exception")


@pytest.mark.parametrize("before", ["1", None])
def test_it_is_gone_while_a_run_computes_and_back_afterwards(
    monkeypatch: pytest.MonkeyPatch, train: Train, before: str | None
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    asked = Asked()
    train(*SMALL, callbacks=[asked])
    computing = {name: {None} for name in ("fit", "train", "validation", "test")}
    assert asked.seen == {**computing, "teardown": {before}}
