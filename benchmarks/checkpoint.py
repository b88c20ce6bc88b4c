"""How long a save holds training up: assay's background writer, copying the tensors, Lightning's own.

    uv run python benchmarks/checkpoint.py

The state is a model's weights and AdamW's two moments. `copy` clones each tensor: no snapshot can take less.
`two` saves the best and the last checkpoint of one step, as the end of an epoch does. Rounds are interleaved;
medians count.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lightning
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from assay.checkpoint.checkpoint_file import CheckpointFile
from assay.record.provenance import cpu_model

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP = 1


def state(megabytes: int) -> dict[str, Any]:
    """A checkpoint of about that size: layers of 4 MB, of each the weights and two moments."""
    number = max(1, megabytes // 12)
    weights = {f"layers.{index}.weight": torch.randn(1024, 1024) for index in range(number)}
    moments = {
        index: {"step": torch.tensor(1.0)}
        | {name: torch.randn(1024, 1024) for name in ("exp_avg", "exp_avg_sq")}
        for index in range(number)
    }
    return {"epoch": 0, "global_step": 1, "state_dict": weights, "optimizer_states": [{"state": moments}]}


def tensors(value: Any) -> list[torch.Tensor]:
    """All of them."""
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [tensor for one in inner for tensor in tensors(one)]


def timed(work: Callable[[], Any]) -> float:
    """Seconds."""
    start = time.perf_counter()
    kept = work()
    seconds = time.perf_counter() - start
    del kept
    return seconds


def a_round(checkpoint: dict[str, Any], folder: Path) -> dict[str, float]:
    """Seconds of each way, one after the other."""
    weights = tensors(checkpoint)
    file = CheckpointFile(background=True)
    seconds = {"copy": timed(lambda: [tensor.clone() for tensor in weights])}
    seconds["assay"] = timed(lambda: file.save_checkpoint(checkpoint, folder / "last.ckpt"))
    seconds["written"] = seconds["assay"] + timed(file.teardown)
    seconds["copy again"] = timed(lambda: [tensor.clone() for tensor in weights])

    def best_and_last() -> None:
        for name in ("best", "last"):
            file.save_checkpoint(checkpoint, folder / f"{name}.ckpt")

    seconds["two"] = timed(best_and_last)
    file.teardown()
    lightnings = TorchCheckpointIO()
    seconds["lightning"] = timed(lambda: lightnings.save_checkpoint(checkpoint, folder / "l.ckpt"))
    return seconds


def main() -> None:
    """Print what each way takes, the ratios, their spread, and what it ran on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    checkpoint = state(options.megabytes)
    folder = Path(tempfile.mkdtemp())
    try:
        rounds = [a_round(checkpoint, folder) for _ in range(WARM_UP + options.rounds)][WARM_UP:]
    finally:
        shutil.rmtree(folder)
    size = sum(tensor.nbytes for tensor in tensors(checkpoint))
    print(f"{cpu_model()}, python {platform.python_version()}, torch {torch.__version__}, ", end="")
    print(f"lightning {lightning.__version__}, {options.threads} thread(s)")
    print(f"{size / 1e6:.0f} MB in {len(tensors(checkpoint))} tensors, {options.rounds} interleaved rounds")
    for way, said in (
        ("copy", "copying the tensors"),
        ("assay", "assay, training waits"),
        ("two", "assay, best and last"),
        ("written", "assay, until on disk"),
        ("lightning", "Lightning, training waits"),
    ):
        print(f"  {said:<26}{1e3 * statistics.median(one[way] for one in rounds):8.0f} ms")
    copies = [(one["copy"] + one["copy again"]) / 2 for one in rounds]
    for way, said in (
        ("assay", "assay / copy"),
        ("two", "best and last / copy"),
        ("lightning", "Lightning / copy"),
    ):
        ratios = [one[way] / copy for one, copy in zip(rounds, copies, strict=True)]
        print(f"  {said:<26}{statistics.median(ratios):8.2f}     ({min(ratios):.2f} to {max(ratios):.2f})")
    noise = [one["copy"] / one["copy again"] for one in rounds]
    print(f"  {'copy / copy':<26}{statistics.median(noise):8.2f}     ({min(noise):.2f} to {max(noise):.2f})")


if __name__ == "__main__":
    main()
