"""A table of numbers, categories and a date: to the first step, memory and a step, beside a loop by hand.

    uv run python benchmarks/table.py                   # 10,000, 100,000 and 1,000,000 rows
    uv run python benchmarks/table.py --rows 1000000 --pairs 1
    uv run python benchmarks/table.py --predict         # 200,000 and 1,000,000 rows
    uv run python benchmarks/table.py --stream 10 50    # million rows

Both sides train the same network on batches of 128, in a process each, interleaved, one thread. Seconds are
those of the CPU beyond what a table of 200 rows takes, which leaves out imports, and in assay the check of
the job; that is printed once. A step is the median, so validation and checkpoints, which only assay has, do
not count. Memory is the peak of the whole process at the end. `--predict` measures what comes after the model
is loaded, from rows of a file to those of a CSV file, by four members on both sides.
`--stream` takes 1,500 steps of 1,024 rows from Parquet shards of a million rows each, which are one file with
several names, beside the same steps of one of them in memory.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.record.provenance import cpu_model

FEW = 200
STEPS = 300
STREAM_STEPS = 1500
LEAST = 0.5
"""Seconds by hand that a ratio is taken of; the seconds of imports differ by as much from run to run."""
CATEGORIES = (5, 10, 25, 50, 80, 105)
MEASURE = """
import resource, statistics, sys, time, torch
steps, clock = int(sys.argv[1]), []
step = torch.optim.AdamW.step
def timed(self, *given, **options):
    clock.append(time.process_time())
    done = step(self, *given, **options)
    if len(clock) > steps:
        import json, os
        pairs = list(zip(clock, clock[1:]))[len(clock) // 3 :]
        each = statistics.median(after - before for before, after in pairs)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        os.write(1, ("\\n" + json.dumps({"first": clock[0], "step": each, "peak": peak}) + "\\n").encode())
        os._exit(0)
    return done
torch.optim.AdamW.step = timed
"""
ASSAY = (
    MEASURE
    + """
from assay.cli.app import main
sys.argv = ["assay", "train", *sys.argv[2:]]
main()
"""
)
HAND = (
    MEASURE
    + """
import numpy as np, pandas as pd
from assay.model.table_mlp import TableMLP
path = sys.argv[2]
frame = pd.read_parquet(path) if path.endswith("parquet") else pd.read_csv(path, parse_dates=["day"])
target = torch.from_numpy(frame.pop("y").to_numpy("float32"))[:, None]
day = frame.pop("day").dt
parts = [day.year, day.month, day.dayofweek, day.dayofyear]
texts = [name for name in frame if name.startswith("c")]
codes, sizes = [], []
for name in texts:
    places, values = pd.factorize(frame[name])
    codes.append(places)
    sizes.append(len(values))
numbers = [frame[name] for name in frame if name not in texts] + parts
inputs = torch.from_numpy(np.column_stack([*numbers, *codes]).astype("float32"))
del frame, numbers, codes
order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
train = order[: int(0.7 * len(order))]
count = inputs.shape[1] - len(sizes)
known = inputs[train, :count]
inputs[:, :count] = (inputs[:, :count] - known.mean(0)) / known.std(0)
target = (target - target[train].mean()) / target[train].std()
network = TableMLP([inputs.shape[1]], 1, sizes, hidden=[256, 256], dropout=0.15, clip=4.0, waves=3)
optimizer = torch.optim.AdamW(network.parameters(), 1e-3, fused=True)
while True:
    for rows in train[torch.randperm(len(train))].split(128):
        loss = torch.nn.functional.mse_loss(network(inputs[rows]), target[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
)
PREDICT = """
import json, os, resource, sys, time, torch
torch.set_num_threads(1)
def report(count, start):
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    figures = {"rate": count / (time.process_time() - start), "peak": peak}
    os.write(1, ("\\n" + json.dumps(figures) + "\\n").encode())
"""
PREDICT_ASSAY = (
    PREDICT
    + """
import assay
from pathlib import Path
from assay_serve.predict import predict
_, _, run, path = sys.argv
predictor = assay.load(run)
start = time.process_time()
found = predict(predictor, Path(run), [Path(path)], out=Path("assay.csv"))
assert not found.num_failed
report(found.num_samples, start)
"""
)
PREDICT_HAND = (
    PREDICT
    + """
import numpy as np, pandas as pd
import pyarrow.parquet as pq
from assay.model.table_mlp import TableMLP
_, _, sample, path = sys.argv
names = [f"n{place}" for place in range(20)]
known = {f"c{place}": sorted(pd.read_csv(sample)[f"c{place}"].unique()) for place in range(6)}
def encode(frame):
    day = frame["day"].dt
    parts = [day.year, day.month, day.day_of_week, day.day_of_year]
    codes = [pd.Categorical(frame[name], categories=texts).codes for name, texts in known.items()]
    columns = [*(frame[name] for name in names), *parts, *codes]
    return torch.from_numpy(np.column_stack(columns).astype("float32"))
first = encode(pd.read_csv(sample, parse_dates=["day"]))[:, :24]
mean, std = first.mean(0), first.std(0)
sizes = [len(texts) for texts in known.values()]
network = TableMLP([30], 1, sizes, hidden=[256, 256], clip=4.0, waves=3, members=4).eval()
start, count = time.process_time(), 0
if path.endswith("csv"):
    frames = pd.read_csv(path, parse_dates=["day"], chunksize=32768)
else:
    frames = (batch.to_pandas() for batch in pq.ParquetFile(path).iter_batches(32768))
with torch.no_grad(), open("hand.csv", "w") as out:
    for frame in frames:
        inputs = encode(frame)
        inputs[:, :24] = (inputs[:, :24] - mean) / std
        outputs = torch.cat([network(rows) for rows in inputs.split(4096)])
        rows = range(count, count + len(outputs))
        written = pd.DataFrame({"row": rows, "prediction": outputs[:, 0].numpy()})
        written.to_csv(out, index=False, header=not count)
        count += len(outputs)
report(count, start)
"""
)


def make_table(rows: int) -> pd.DataFrame:
    """Draw 20 numbers, 6 categories, a date, and a target that follows from some of them."""
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, 20))
    columns: dict[str, Any] = {
        f"n{place}": np.round(values[:, place] * 10.0 ** (place % 4), 6) for place in range(20)
    }
    effects = np.zeros(rows)
    for place, size in enumerate(CATEGORIES):
        codes = random.integers(0, size, rows)
        columns[f"c{place}"] = np.char.add(f"v{place}_", codes.astype(str))
        effects += np.sin(1.7 * codes + place)
    days = pd.to_timedelta(random.integers(0, 4 * 365, rows), unit="D")
    target = values[:, 0] + 1.5 * np.sin(2 * values[:, 1]) + values[:, 2] * values[:, 3] + effects / 2
    noise = 0.3 * random.normal(size=rows)
    return pd.DataFrame(columns).assign(day=pd.Timestamp("2020-01-01") + days, y=np.round(target + noise, 5))


def measure(code: str, folder: str, words: list[str], steps: int = STEPS) -> dict[str, float]:
    """Run a side until it has taken its steps."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ASSAY_CACHE": f"{folder}/cache"}
    command = [sys.executable, "-c", code, str(steps), *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - of this file
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    figures: dict[str, float] = json.loads(
        next(line for line in done.stdout.splitlines() if line.startswith("{"))
    )
    return figures


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--stream", type=int, nargs="+")
    arguments = parser.parse_args()
    print(f"{cpu_model()}, {os.cpu_count()} cores", flush=True)
    if arguments.predict:
        compare_predictions(arguments.rows or [200_000, 1_000_000], arguments.pairs)
        return
    if arguments.stream:
        compare_streams(arguments.stream)
        return
    with tempfile.TemporaryDirectory() as folder:
        floor: dict[str, float] = {}
        for rows in (FEW, *(arguments.rows or [10_000, 100_000, 1_000_000])):
            write_table(rows, folder)
            for kind in ("csv", "parquet"):
                path = f"{folder}/table.{kind}"
                options = [
                    "device=cpu",
                    "model.members=1",
                    "data.batch_size=128",
                    "trainer.max_epochs=1000",
                    "callbacks=[default]",
                ]
                words = ["data=table", f"data.source.path={path}", "data.source.target=y", *options]
                found: dict[str, list[dict[str, float]]] = {"hand": [], "assay": []}
                for _ in range(arguments.pairs):
                    found["hand"].append(measure(HAND, folder, [path]))
                    found["assay"].append(measure(ASSAY, folder, words))
                middle = {
                    side: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                    for side, runs in found.items()
                }
                report(kind, rows, middle, floor)
                shutil.rmtree(f"{folder}/outputs")


def write_table(rows: int, folder: str) -> None:
    """Write a made table in both formats."""
    table = make_table(rows)
    table.to_csv(f"{folder}/table.csv", index=False)
    table.to_parquet(f"{folder}/table.parquet", index=False)


def compare_predictions(numbers: list[int], pairs: int) -> None:
    """Predict files of several sizes with a run that was trained on a few rows, and by hand."""
    with tempfile.TemporaryDirectory() as folder:
        sample = f"{folder}/sample.csv"
        make_table(10_000).to_csv(sample, index=False)
        words = ["data=table", f"data.source.path={sample}", "data.source.target=y", "baseline=none"]
        words += ["trainer.max_epochs=1", "model.members=4", f"hydra.run.dir={folder}/run", "device=cpu"]
        subprocess.run([sys.executable, "-m", "assay", "train", *words], check=True, capture_output=True)  # noqa: S603 - of this file
        for rows in numbers:
            write_table(rows, folder)
            for kind in ("csv", "parquet"):
                path = f"{folder}/table.{kind}"
                hand, ours = [], []
                for _ in range(pairs):
                    hand.append(measure(PREDICT_HAND, folder, [sample, path]))
                    ours.append(measure(PREDICT_ASSAY, folder, [f"{folder}/run", path]))
                rates = [statistics.median(one["rate"] for one in of) for of in (hand, ours)]
                peaks = [max(one["peak"] for one in of) / 1e9 for of in (hand, ours)]
                print(
                    f"predict {kind} {rows:,} rows: {rates[1]:,.0f} rows a second of the processor, "
                    f"{rates[1] / rates[0]:.2f} of by hand; peak {peaks[1]:.2f} GB, by hand {peaks[0]:.2f}",
                    flush=True,
                )


def compare_streams(millions: list[int]) -> None:
    """Train on shards of so many million rows, and on a million in memory."""
    options = ["data.source.target=y", "device=cpu", "model.members=1", "data.batch_size=1024"]
    options += ["trainer.max_epochs=1000", "callbacks=[default]", "baseline=none"]
    with tempfile.TemporaryDirectory() as folder:
        shard = Path(folder) / "shard.parquet"
        make_table(1_000_000).to_parquet(shard, index=False)
        words = ["data=table", f"data.source.path={shard}", *options]
        memory = measure(ASSAY, folder, words, STREAM_STEPS)
        print(
            f"in memory: a step {memory['step'] * 1e3:.1f} ms, peak {memory['peak'] / 1e9:.2f} GB", flush=True
        )
        for number in millions:
            shards = Path(folder) / f"shards-{number}"
            shards.mkdir()
            for place in range(number):
                (shards / f"{place:03}.parquet").hardlink_to(shard)
            words = ["data=table_shards", f"data.source.path={shards}", *options]
            stream = measure(ASSAY, folder, words, STREAM_STEPS)
            step = stream["step"] / memory["step"]
            print(
                f"stream of {number} million rows: a step {step:.2f} of in memory, "
                f"peak {stream['peak'] / 1e9:.2f} GB; to the first step {stream['first']:.1f} s",
                flush=True,
            )


def report(kind: str, rows: int, middle: dict[str, dict[str, float]], floor: dict[str, float]) -> None:
    """Print a line; of the smallest table what is subtracted from the others."""
    hand, assay = middle["hand"], middle["assay"]
    if rows == FEW:
        floor |= {f"{side}/{kind}": middle[side]["first"] for side in middle}
        print(f"{kind} {rows} rows: by hand {hand['first']:.2f} s, assay {assay['first']:.2f} s; subtracted")
        return
    first = {side: middle[side]["first"] - floor[f"{side}/{kind}"] for side in middle}
    ratios = {key: assay[key] / hand[key] for key in ("peak", "step")}
    if first["hand"] > LEAST:
        beside = f"{first['assay'] / first['hand']:.2f} of by hand"
    else:
        beside = f"by hand {first['hand']:.2f}, within the noise of imports"
    print(
        f"{kind} {rows:,} rows: to the first step {first['assay']:.2f} s, {beside};"
        f" peak {assay['peak'] / 1e9:.2f} GB, {ratios['peak']:.2f};"
        f" a step {assay['step'] * 1e3:.2f} ms, {ratios['step']:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
