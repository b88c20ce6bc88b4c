"""From which epoch on a callback acts."""

from __future__ import annotations

import lightning as L
import pytest

from assay.callbacks.swa import start_epoch


def trainer(max_epochs: int | None) -> L.Trainer:
    return L.Trainer(max_epochs=max_epochs, max_steps=5, accelerator="cpu", logger=False, barebones=True)


def test_an_epoch_wins_over_a_share() -> None:
    assert start_epoch(trainer(10), 3, 0.9, "ema") == 3


def test_a_share_of_the_epochs_is_not_rounded() -> None:
    assert start_epoch(trainer(5), None, 0.5, "ema") == 2.5


@pytest.mark.parametrize("max_epochs", [None, -1])
def test_a_share_of_a_run_without_a_number_of_epochs_is_refused(max_epochs: int | None) -> None:
    with pytest.raises(ValueError, match=r"give callbacks\.ema\.start_epoch or trainer\.max_epochs"):
        start_epoch(trainer(max_epochs), None, 0.5, "ema")
