"""One rank of two that train cases of the parity suite; what differs is written into the folder."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
from tests.loop.parity import ALLOWED, Install, Outcome, differences, install_stock, run
from tests.loop.parity_axes import make_case
from torch import distributed

from assay.loop.fit_loop import install as install_ours

CASES: dict[str, dict[str, str]] = {
    "short": {"callbacks": "checkpoint, best", "accumulation": "3", "logs": "synced", "length": "max_steps"},
    "ema": {"callbacks": "assay ema", "reload": "1"},
    "stop": {"deed": "stop in step", "callbacks": "checkpoint, all"},
    "two loaders": {"data": "two", "observer": "odd"},
    "calls": {"calls": "fit, all", "callbacks": "early stopping on train", "precision": "bf16-mixed"},
    "unwatched": {"observer": "none", "accumulation": "3", "logs": "synced", "callbacks": "timer"},
}


def outcome(name: str, install: Install, folder: Path) -> Outcome:
    """What this rank saw; the folder is that of both."""
    distributed.barrier()
    if distributed.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    distributed.barrier()
    case = make_case(CASES[name])
    case.trainer.update(devices=2, strategy="ddp")
    return run(case, install, folder, clear=False)


def main() -> None:
    """Train each case twice, and write down in what the two differ; the folder and the cases are typed."""
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", timeout=timedelta(seconds=120))
    for name in names:
        stock, ours = (outcome(name, one, folder / "run") for one in (install_stock, install_ours))
        told = [f"{len(stock.entries)} calls, {stock.end['error']}", *differences(stock, ours, ALLOWED)]
        path = folder / f"{name}.{os.environ['RANK']}"
        path.write_text("\n".join(told), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()
