"""How fast shards are streamed, and what memory a run over them takes, beside a loop by hand.

    uv run python benchmarks/stream.py --gigabytes 20

Makes Parquet shards whose rows repeat, so that many of them take little disk. `by hand` decodes them with
pyarrow in order, without an index, an encoder or a shuffle: no loader can be faster. `run` trains an epoch by
`assay.train`. Memory is the largest resident size less what there was after the imports.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # pyarrow ships no types
import torch

import assay
from assay.data.core.data_module import DataModule
from assay.data.shards.table_shards import TableShards
from assay.record.provenance import cpu_model

GROUP, GROUPS = 20_000, 5
"""Rows of a row group, and row groups of a shard."""


def write_shards(folder: Path, gigabytes: float, columns: int) -> int:
    """Write shards that decode to so many gigabytes; how many rows they have."""
    draws = np.random.default_rng(0)
    names = [f"x{number}" for number in range(columns)]
    shards = max(1, round(gigabytes * 1e9 / (4 * columns) / (GROUP * GROUPS)))
    for shard in range(shards):
        values = draws.normal(size=(256, columns)).astype(np.float32)
        rows = values[np.arange(GROUP * GROUPS) % 256]  # pages of a dictionary, a byte a value at most
        frame = pa.table(
            {**dict(zip(names, rows.T, strict=True)), "label": (rows[:, 0] > 0).astype(np.int64)}
        )
        pq.write_table(frame, folder / f"part-{shard:05}.parquet", row_group_size=GROUP, compression="zstd")
    return shards * GROUP * GROUPS


def by_hand(folder: Path, size: int) -> int:
    """Decode all rows into batches of tensors."""
    count = 0
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(size):
            values = [torch.tensor(column.to_numpy()) for column in batch.columns]
            count += len(torch.stack(values[:-1], 1))
    return count


def loader(folder: Path, size: int, workers: int) -> tuple[int, float]:
    """Samples that the loader gives in its first epoch, and the seconds from its first batch on."""
    data = DataModule(
        TableShards(str(folder), "label"),
        "auto",
        size,
        {"val": 0.01, "test": 0.01},
        {"train": [], "eval": [], "normalize": "data"},
        drop_last=True,
        global_batch_size=size,
        num_workers=workers,
    )
    data.setup()
    batches = iter(data.train_dataloader())
    next(batches)
    start = time.perf_counter()
    count = sum(len(inputs) for inputs, _ in batches)
    return count, time.perf_counter() - start


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    options = parser.parse_args()
    size = options.batch_size
    before = psutil.Process().memory_info().rss
    print(f"{cpu_model()}, {os.cpu_count()} cores, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shards"
        folder.mkdir()
        rows = write_shards(folder, options.gigabytes, options.columns)
        on_disk = sum(path.stat().st_size for path in folder.glob("*.parquet"))
        print(f"{rows:,} rows, {options.gigabytes:g} GB decoded, {on_disk / 1e6:,.0f} MB on disk")
        start = time.perf_counter()
        print(f"by hand    {by_hand(folder, size) / (time.perf_counter() - start):12,.0f} samples/s")
        for workers in options.workers:
            count, seconds = loader(folder, size, workers)
            print(f"{workers} workers  {count / seconds:12,.0f} samples/s")
        words = (
            f"data=table_shards data.source.path={folder} data.source.target=label model=linear device=cpu"
        )
        words += f" data.global_batch_size={size} trainer.max_epochs=1 baseline=none"
        start = time.perf_counter()
        result = assay.train([*words.split(), f"hydra.run.dir={place}/run"])
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(f"run        {rows / (time.perf_counter() - start):12,.0f} samples/s, test {result.metrics}")
        print(f"memory     {(most - before) / 1e6:12,.0f} MB beyond {before / 1e6:,.0f} MB of imports")


if __name__ == "__main__":
    main()
