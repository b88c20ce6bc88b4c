"""What training changes but no checkpoint holds is noted before the second batch."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import lightning as L
import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine  # type: ignore[import-untyped]  # ships no types
from torch import Tensor, nn
from typing_extensions import override

import assay

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS: dict[str, Callable[[], Any]] = {
    "torch": lambda: torch.Generator().manual_seed(0),
    "numpy": lambda: np.random.default_rng(0),
    "python": lambda: random.Random(0),
    "count": int,
    "list": list,
}


class Net(nn.Module):
    """Attributes that each call changes, and one that stays."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        self.layer, self.kinds = nn.Linear(13, 3), kinds
        for kind in kinds:
            setattr(self, kind, KINDS[kind]())
        self.fixed = np.random.default_rng(0)

    @override
    def forward(self, inputs: Tensor) -> Tensor:
        for kind in self.kinds:
            match getattr(self, kind):
                case torch.Generator() as generator:
                    torch.randn(2, generator=generator)
                case np.random.Generator() | random.Random() as generator:
                    generator.random()
                case list() as seen:
                    seen.append(len(inputs))
                case count:
                    setattr(self, kind, count + 1)
        outputs: Tensor = self.layer(inputs)
        return outputs


class Saving(Net):
    count: Any

    @override
    def get_extra_state(self) -> int:
        return int(self.count)

    @override
    def set_extra_state(self, state: int) -> None:
        self.count = state


class Counting(L.Callback):
    def __init__(self) -> None:
        self.seen = 0

    @override
    def on_train_batch_end(self, *arguments: Any) -> None:
        self.seen += 1


class CountingEpochs(L.Callback):
    def __init__(self) -> None:
        self.seen = 0

    @override
    def on_train_epoch_end(self, *arguments: Any) -> None:
        self.seen += 1


def notes(folder: Path, log: pytest.LogCaptureFixture, model: nn.Module, *callbacks: L.Callback) -> list[str]:
    inputs, targets = load_wine(return_X_y=True)
    words = ["device=cpu", "trainer.max_epochs=3", "baseline=none", f"hydra.run.dir={folder / 'run'}"]
    data = (inputs.astype(np.float32), targets)
    assay.train(words, model=model, data=data, callbacks=callbacks)
    return [record.getMessage() for record in log.records if record.name == "assay.notes"]


def test_what_a_model_changes_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (note,) = notes(tmp_path, caplog, Net(*KINDS))
    names = ", ".join(f"Net.{kind}" for kind in KINDS)
    assert f"training changes {names}, which no checkpoint holds" in note


@pytest.mark.parametrize("kind", [Counting, CountingEpochs])
def test_a_callback_is_named_and_what_saves_itself_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: type[L.Callback]
) -> None:
    (note,) = notes(tmp_path, caplog, Saving("count"), kind())
    assert f"training changes {kind.__name__}.seen, which" in note
