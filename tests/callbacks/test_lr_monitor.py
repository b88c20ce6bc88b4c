"""Every run has its learning rate in metrics.csv, however short it is."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from assay.callbacks.lr_monitor import LRMonitor

if TYPE_CHECKING:
    from tests.conftest import Train


@pytest.mark.parametrize("scheduler", ["warmup_cosine", "step"])
def test_a_short_run_has_its_learning_rate(train: Train, scheduler: str) -> None:
    trained = train(
        "data=wine",
        "model=linear",
        "callbacks=[lr_monitor]",
        f"scheduler={scheduler}",
        "trainer.max_epochs=3",
    )
    with (trained.run_dir / "metrics.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rates = [float(value) for row in rows for name, value in row.items() if name.startswith("lr-") and value]
    assert len(rates) >= 3, "one per epoch"
    assert set(rates) <= {lr for step in trained.watch.lrs for lr in step} | {rates[0]}
    monitor = next(one for one in trained.trainer.callbacks if isinstance(one, LRMonitor))
    one_epoch = len(trained.watch.lrs) // 3
    assert max(map(len, monitor.lrs.values())) <= one_epoch + 1, "a long run does not fill the memory"
