"""What `assay check` predicts of a step, against what the step of a run then takes.

    uv run python benchmarks/check_prediction.py

The run is a real one: Lightning trains on the data, and a callback watches its fourth and fifth steps. FLOPs
are counted by torch's counter; memory is what torch's profiler saw CPU tensors take at once, on top of the
weights, gradients and optimizer state that were there before.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from assay.assemble.assembly import assemble
from assay.assemble.trainer import silence_lightning
from assay.check.checker import check_job
from assay.compose.compose import compose, job_config
from assay_prove.prove import Prover

NO_CALLBACKS = tuple(
    f"callbacks.{name}=null"
    for name in ("checkpoint", "last_checkpoint", "lr_monitor", "non_finite", "progress_bar")
)
ALWAYS = ("device=cpu", *NO_CALLBACKS, "trainer.max_epochs=1", "trainer.limit_val_batches=0")
RUNS = (
    (),
    ("model=mlp",),
    ("data=iris",),
    ("data=breast_cancer", "optimizer=sgd"),
    ("data=diabetes", "optimizer=muon"),
    ("loss=ldam", "augment=mixup", "optimizer=rmsprop"),
    ("precision=bf16",),
    ("precision=fp64",),
    ("model=resnet18", "trainer.limit_train_batches=5"),
    ("model=torchvision", "model.name=mobilenet_v3_small", "trainer.limit_train_batches=5"),
    (
        *("model=torchvision", "model.name=convnext_tiny"),
        *("data=synthetic", "data.source.num_samples=400", "data.batch_size=16"),
    ),
    ("model=small_cnn", "data=synthetic", "data.source.num_samples=1500", "data.batch_size=128"),
    ("model=resnet18", "data=synthetic", "data.source.num_samples=500", "data.batch_size=32"),
)


@dataclass(frozen=True)
class Took:
    """What a run showed."""

    parameters: int
    flops: int
    memory: int
    steps: int


class Watch(L.Callback):
    """Counts the FLOPs of the fourth step and the memory of the fifth."""

    def __init__(self) -> None:
        self.flops = self.memory = 0
        self._counter = FlopCounterMode(display=False)
        self._profiler = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self._before = 0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start counting."""
        if batch_idx == 3:
            self._counter.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if batch_idx == 4:
            state = [value for kept in trainer.optimizers[0].state.values() for value in kept.values()]
            tensors = [*pl_module.parameters(), *pl_module.buffers(), *state, *batch]
            tensors += [p.grad for p in pl_module.parameters() if p.grad is not None]
            self._before = sum(t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor))
            self._profiler.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def on_train_batch_end(self, *hook: Any) -> None:
        """Stop counting."""
        *_, batch_idx = hook
        if batch_idx == 3:
            self._counter.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self.flops = self._counter.get_total_flops()
        if batch_idx == 4:
            self._profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            self.memory = self._before + _most_at_once(self._profiler)


def _most_at_once(profiler: profile) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = sorted(
        (event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"
    )
    now = most = 0
    for _, size in changes:
        now += size
        most = max(most, now)
    return most


def predict(overrides: tuple[str, ...]) -> Took:
    """By the check alone."""
    job = job_config(compose([*ALWAYS, *overrides]))
    check_job(job)
    report = Prover().prove(job).report
    if report.step is None or report.parameters is None:
        raise SystemExit(f"{overrides}: {report.unproven}")
    return Took(
        report.parameters, report.step.flops, report.step.memory.peak, int(report.spec["total_steps"])
    )


def run(overrides: tuple[str, ...]) -> Took:
    """By training."""
    with tempfile.TemporaryDirectory() as folder, silence_lightning():
        assembly = assemble(job_config(compose([*ALWAYS, *overrides, f"hydra.run.dir={folder}"])))
        watch = Watch()
        assembly.trainer.callbacks.append(watch)  # type: ignore[attr-defined]  # a plain list
        assembly.trainer.fit(assembly.module, datamodule=assembly.datamodule)
        parameters = sum(p.numel() for p in assembly.module.parameters())
        return Took(parameters, watch.flops, watch.memory, assembly.trainer.global_step)


def main() -> None:
    """Print a line per run."""
    print(f"torch {torch.__version__}, lightning {L.__version__}; predicted / seen in the run")
    for overrides in RUNS:
        said, took = predict(overrides), run(overrides)
        print(
            f"{' '.join(overrides) or 'default':<70} "
            f"parameters {said.parameters:,} / {took.parameters:,}  "
            f"FLOPs {said.flops:,} / {took.flops:,}  "
            f"memory {said.memory / 2**20:.2f} / {took.memory / 2**20:.2f} MiB = "
            f"{said.memory / took.memory:.3f}  "
            f"steps {said.steps} / {took.steps}",
            flush=True,
        )


if __name__ == "__main__":
    main()
