"""Where the time of a training step goes on this machine, and what would shorten it: `assay profile`."""

from __future__ import annotations

import copy
import math
import os
import re
import statistics
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import Profiler
from omegaconf import open_dict
from torch.profiler import ProfilerActivity
from typing_extensions import override

from assay.build.assembly import assemble
from assay.build.trainer import silence_lightning
from assay.build.trainer_options import num_local_processes
from assay.config.serialize import value_of
from assay.data.data_module import DataModule
from assay.data.loaders import MemoryLoader
from assay.errors import AssayError, ConfigError
from assay.files.atomic import write_together
from assay.module import Module
from assay.process import keep_handlers
from assay.record.provenance import cpu_model, usable_cores
from assay.torch_internals import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import lightning as L

    from assay.build.assembly import Assembly
    from assay.check.report import Proof
    from assay.compose.compose import Job


@final
@dataclass(frozen=True)
class Part:
    """A share of a training step.

    Attributes:
        name: `data`, `copy`, `forward`, `loss`, `backward`, `optimizer`, `metrics`, `callbacks` or `loop`.
        ms: Milliseconds of each step, on average.
        share: Of the step, from 0 to 1.
        detail: What took most of it, where that is one callback.
    """

    name: str
    ms: float
    share: float
    detail: str = ""


@final
@dataclass(frozen=True)
class Operator:
    """One kind of operation, such as a matrix product.

    Attributes:
        name: As PyTorch calls it.
        ms: Milliseconds of each step, without the operators that it calls itself.
        calls: In each step, on average.
    """

    name: str
    ms: float
    calls: float


@final
@dataclass(frozen=True)
class StepProfile:
    """Where the time of a training step goes.

    Attributes:
        overrides: What was typed.
        device: The processor or GPU that it was measured on.
        batch_size: Samples of each batch.
        steps: Number of steps that were measured.
        step_ms: Mean milliseconds from one step to the next, without any profiler.
        step_ms_range: The quartiles.
        samples_per_s: Of the mean step.
        parts: What a step consists of, measured with a timer around each.
        operators: The ten with the longest time.
        memory: Bytes at the peak by kind, as the check computes them; empty where it cannot.
        peak_memory: Bytes at the peak on a GPU, measured; null on a CPU.
        bottleneck: One sentence.
        try_next: Overrides that may shorten the step, each of which needs a measurement.
        trace: Where the trace lies; null where none was asked for.
    """

    overrides: Sequence[str]
    device: str
    batch_size: int
    steps: int
    step_ms: float
    step_ms_range: tuple[float, float]
    samples_per_s: float
    parts: Sequence[Part]
    operators: Sequence[Operator]
    memory: Mapping[str, int]
    peak_memory: int | None
    bottleneck: str
    try_next: Sequence[str]
    trace: Path | None = None


WARM_UP: Final = 5
"""Steps that are not measured: buffers are made and kernels chosen in them."""
_FEWEST: Final = 3
_TRACED: Final = 5
_MOST_OPERATORS: Final = 10
_MUCH: Final = 0.3
_UNEVEN: Final = 3
_HALF: Final = 0.5
_PART_OF: Final = {
    "callbacks": r"^\[Callback\]",
    "data": r"train_dataloader_next",
    "copy": r"batch_to_device|_batch_transfer|transfer_batch_to_device",
    "forward": r"training_step|^forward",
    "loss": r"^loss",
    "backward": r"backward",
    "optimizer": r"optimizer_step|optimizer_zero_grad|gradient_clip",
    "metrics": r"\[LightningModule\].*on_train_batch_end",
}
"""Which actions of Lightning's profilers belong to a part; the first that matches counts, and else `loop`."""


def profile_job(job: Job, proof: Proof, *, steps: int, trace: Path | None) -> StepProfile:
    """Train for some steps in a folder that is removed afterwards, and measure them.

    Raises:
        ConfigError: The job trains in several processes, or its module takes the steps by itself.
        AssayError: It ends before two steps could be measured.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it writes when it starts and stops
    plain = StepTimer(steps, traced=_TRACED, trace=trace)
    assembly = measure(job, proof.datamodule, plain)
    device = assembly.trainer.strategy.root_device
    timed = StepTimer(steps, actions=_Actions(device))
    measure(job, assembly.datamodule, timed)
    step_ms = statistics.fmean(plain.milliseconds)
    low, _, high = statistics.quantiles(plain.milliseconds, n=4)
    parts = _divide(timed)
    batch_size = proof.report.batch_size
    step = proof.report.step
    bottleneck, try_next = _diagnose(parts, assembly)
    if device.type == "cpu" and high > _UNEVEN * low and lies_in_memory(assembly.datamodule):
        bottleneck = f"a quarter of the steps take {high / low:.0f} times as long as another: other programs"
        bottleneck = f"{bottleneck} use these cores, and shares say little until they end"
        try_next = []
    return StepProfile(
        overrides=list(job.overrides),
        device=name_device(assembly),
        batch_size=batch_size,
        steps=len(plain.milliseconds),
        step_ms=step_ms,
        step_ms_range=(low, high),
        samples_per_s=1000 * batch_size / step_ms,
        parts=parts,
        operators=plain.operators,
        memory={} if step is None else asdict(step.memory),
        peak_memory=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        bottleneck=bottleneck,
        try_next=try_next,
        trace=trace,
    )


def name_device(assembly: Assembly) -> str:
    """The processor or GPU that a job runs on."""
    device = assembly.trainer.strategy.root_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_model()


def lies_in_memory(data: L.LightningDataModule) -> bool:
    """Whether batches are taken from memory, which no worker does faster."""
    return isinstance(data, DataModule) and isinstance(data.train_dataloader(), MemoryLoader)


class EnoughMeasured(Exception):  # noqa: N818 - it is not an error
    """Enough steps were taken."""


def measure(job: Job, datamodule: L.LightningDataModule | None, steps: StepTimer) -> Assembly:
    """Train a job, which was checked, until the timer has seen enough."""
    try:
        assembly = train_briefly(job, datamodule, steps)
    finally:
        steps.close()
    if len(steps.milliseconds) < _FEWEST or steps.to_trace:
        traced = f" and {steps.to_trace} more were to be traced" if steps.to_trace else ""
        raise AssayError(
            f"the run ends after {assembly.trainer.global_step} steps, of which the first {WARM_UP} are not "
            f"measured{traced}",
            hint="let it be longer, as by trainer.max_epochs=100, or make data.batch_size smaller",
        )
    return assembly


def train_briefly(
    job: Job, datamodule: L.LightningDataModule | None, watch: StepTimer | Callback, *, alone: bool = False
) -> Assembly:
    """Train a job, which was checked, in a folder that is removed, until a callback raises `EnoughMeasured`.

    Args:
        job: The job.
        datamodule: That of the check.
        watch: The callback.
        alone: Whether it takes the place of all other callbacks.
    """
    config = job.to_config()
    if num_local_processes(config) > 1:
        raise ConfigError(
            "a job of several processes cannot be measured",
            key="trainer.devices",
            hint="trainer.devices=1 measures one of them",
        )
    with tempfile.TemporaryDirectory(prefix="assay-profile-") as folder, silence_lightning():
        with open_dict(config):
            config.run_dir = folder
            config.logger = {}
            config.callbacks = {
                name: node
                for name, node in (config.get("callbacks") or {}).items()
                if node is not None and not alone and "ProgressBar" not in str(node.get("_target_"))
            }
        assembly = assemble(config, datamodule=datamodule)
        trainer = assembly.trainer
        module = assembly.module
        if not module.automatic_optimization:
            raise ConfigError(
                "a module that takes the optimizer's steps itself cannot be measured", key="module"
            )
        assembly.callbacks.append(watch)
        if isinstance(watch, StepTimer) and watch.actions is not None:
            trainer.profiler = watch.actions  # type: ignore[attr-defined]  # a plain attribute
            if isinstance(module, Module) and not config.trainer.get("compile"):
                watch.actions.time_calls(forward=module.model, loss=module.loss)
        with keep_handlers(), suppress(EnoughMeasured):  # Lightning ignores Ctrl-C once there was one
            try:
                trainer.fit(module, datamodule=assembly.datamodule)
            except SystemExit as stop:
                if isinstance(stop.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from stop
                raise
    return assembly


@final
class _Actions(Profiler):
    """Seconds that each action takes without those that it calls, since they were last taken."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._on_gpu = device.type == "cuda"
        self._open: list[tuple[str, float, list[float]]] = []
        self._seconds: dict[str, float] = {}

    @override
    def start(self, action_name: str) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()
        self._open.append((action_name, time.perf_counter(), []))

    @override
    def stop(self, action_name: str) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()
        while self._open:  # an exception leaves some open
            name, start, inner = self._open.pop()
            elapsed = time.perf_counter() - start
            self._seconds[name] = self._seconds.get(name, 0.0) + elapsed - sum(inner)
            if self._open:
                self._open[-1][2].append(elapsed)
            if name == action_name:
                return

    def time_calls(self, **modules: torch.nn.Module) -> None:
        """Make each call of a module an action."""
        for name, module in modules.items():
            module.register_forward_pre_hook(lambda *_, name=name: self.start(name))
            module.register_forward_hook(lambda *_, name=name: self.stop(name))

    def take(self) -> dict[str, float]:
        """What was measured until now, which is forgotten."""
        taken = self._seconds
        self._seconds = {}
        return taken


@final
class StepTimer(Callback):
    """Measures steps after a warm-up, then traces a few, and ends the run.

    A step lasts from the end of the one before to its own; those with a validation or the end of an epoch
    between are left out.

    Args:
        steps: To measure at most.
        seconds: After which fewer are enough.
        actions: A profiler whose measurements are added up.
        traced: Steps to trace after those.
        trace: File that takes the trace.
    """

    def __init__(
        self,
        steps: int,
        *,
        seconds: float = math.inf,
        actions: _Actions | None = None,
        traced: int = 0,
        trace: Path | None = None,
    ) -> None:
        self.milliseconds: list[float] = []
        self.seconds: dict[str, float] = {}
        self.operators: list[Operator] = []
        self.actions = actions
        self._steps = steps
        self._enough = 1000 * seconds
        self._trace = trace
        self.to_trace = traced
        self._last: float | None = None
        self._waits = traced
        self._profile: torch.profiler.profile | None = None

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        seconds = {} if self.actions is None else self.actions.take()
        if self._profile is not None:
            self._trace_on()
        elif len(self.milliseconds) == self._steps or (
            len(self.milliseconds) >= _FEWEST and sum(self.milliseconds) > self._enough
        ):
            self._end(trainer.num_training_batches - batch_idx - 1)
        elif self._last is not None and trainer.fit_loop.epoch_loop.total_batch_idx >= WARM_UP:
            self.milliseconds.append(1000 * (now - self._last))
            for action, spent in seconds.items():
                self.seconds[action] = self.seconds.get(action, 0.0) + spent
        self._last = time.perf_counter()

    def _end(self, left_in_epoch: float) -> None:
        if not self.to_trace:
            raise EnoughMeasured
        if left_in_epoch < self.to_trace and self._waits:
            self._waits -= 1  # for a new epoch: no validation is to be among the steps that are traced
            return
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = torch.profiler.profile(activities=activities, acc_events=True)
        self._profile.start()

    def _trace_on(self) -> None:
        assert self._profile is not None  # noqa: S101 - the caller looked
        self.to_trace -= 1
        if not self.to_trace:
            self._profile.stop()
            self.operators = _operators(self._profile)
            if self._trace is not None:
                with write_together(self._trace) as folder:
                    self._profile.export_chrome_trace(str(folder / self._trace.name))
            raise EnoughMeasured

    def close(self) -> None:
        """Stop tracing, where the run has ended before."""
        if self._profile is not None and self.to_trace:
            self._profile.stop()

    @override
    def on_train_epoch_end(self, *_: Any, **__: Any) -> None:
        self._last = None

    @override
    def on_validation_start(self, *_: Any, **__: Any) -> None:
        self._last = None


def _operators(profile: torch.profiler.profile) -> list[Operator]:
    """Those that took longest, where the time was spent: on a GPU if there is one."""
    events: list[Any] = list(profile.key_averages())
    on_gpu = any(event.self_device_time_total for event in events)
    microseconds = {
        id(event): event.self_device_time_total if on_gpu else event.self_cpu_time_total for event in events
    }
    events = sorted(events, key=lambda event: -microseconds[id(event)])[:_MOST_OPERATORS]
    return [
        Operator(event.key, microseconds[id(event)] / 1000 / _TRACED, event.count / _TRACED)
        for event in events
    ]


def _divide(steps: StepTimer) -> list[Part]:
    """A step as its parts, longest first."""
    number = len(steps.milliseconds)
    whole = sum(steps.milliseconds)
    milliseconds = dict.fromkeys((*_PART_OF, "loop"), 0.0)
    of_callbacks: dict[str, float] = {}
    for action, seconds in steps.seconds.items():
        part = next((name for name, pattern in _PART_OF.items() if re.search(pattern, action)), "loop")
        milliseconds[part] += 1000 * seconds
        if part == "callbacks":
            name = action.removeprefix("[Callback]").partition("{")[0].partition(".on_")[0]
            of_callbacks[name] = of_callbacks.get(name, 0.0) + seconds
    milliseconds["loop"] += max(0.0, whole - sum(milliseconds.values()))
    detail = {"callbacks": max(of_callbacks, key=lambda name: of_callbacks[name])} if of_callbacks else {}
    parts = [
        Part(name, spent / number, spent / whole, detail.get(name, ""))
        for name, spent in milliseconds.items()
    ]
    return sorted(parts, key=lambda part: -part.ms)


def _diagnose(parts: Sequence[Part], assembly: Assembly) -> tuple[str, list[str]]:
    """What most of a step goes to, in a sentence, and what may shorten it."""
    share = {part.name: part.share for part in parts}
    trainer = assembly.config.trainer
    data = assembly.config.data
    on_gpu = assembly.trainer.strategy.root_device.type == "cuda"
    computing = share["forward"] + share["loss"] + share["backward"]
    waiting = share["data"] + share["copy"]
    if waiting > _MUCH:
        workers = int(data.get("num_workers") or 0)
        more = min(usable_cores(), max(2, 2 * workers))
        reads = not lies_in_memory(assembly.datamodule)
        hints = [f"data.num_workers={more}"] if more > workers and reads else []
        hints += ["data.pin_memory=true"] if on_gpu and not data.get("pin_memory") else []
        return f"{waiting:.0%} of a step is waiting for data and preparing it on the device", hints
    if share["callbacks"] > _MUCH:
        name = next(part.detail for part in parts if part.name == "callbacks")
        return f"{share['callbacks']:.0%} of a step goes to callbacks, most of it to {name}", []
    if share["metrics"] > _MUCH:
        return f"{share['metrics']:.0%} of a step goes to tracking the metrics", []
    if computing < _HALF:
        batch_size = data.get("batch_size")
        hints = [f"data.batch_size={4 * batch_size}"] if isinstance(batch_size, int) else []
        return f"only {computing:.0%} of a step is the model's own computing: its batches are small", hints
    hints = [] if "16" in str(trainer.get("precision")) else ["precision=bf16"]
    hints += [] if trainer.get("compile") else ["trainer.compile=true"]
    return f"{computing:.0%} of a step is the model's own computing", hints


_WORTH: Final = 0.8
"""Share of the time from which on another precision is worth a note."""
_TRIALS: Final = 3
_AT_MOST: Final = 0.05
"""Share of a run's seconds that are measured."""


def suggest_precision(assembly: Assembly, seconds: float) -> str:
    """What `precision=bf16` would have gained in a run of so many seconds; empty where that is little.

    A copy of the model takes forward and backward passes of random inputs, in turns with and without.
    """
    module = assembly.module
    spec = assembly.config.get("spec")
    device = assembly.trainer.strategy.root_device
    if not isinstance(module, Module) or spec is None or str(assembly.trainer.precision) != "32-true":
        return ""
    shape = (int(value_of(assembly.config, "data.batch_size")), *spec.input_shape)
    with torch.random.fork_rng(), torch.enable_grad(), torch.inference_mode(mode=False):
        model = copy.deepcopy(module.model).to(device).train()
        inputs = torch.randint(spec.vocab_size, shape) if spec.get("vocab_size") else torch.randn(shape)
        inputs = inputs.to(device)
        if assembly.config.trainer.get("channels_last"):
            inputs = inputs.to(memory_format=torch.channels_last)

        def take_step(*, half: bool) -> float:
            begin = time.perf_counter()
            with torch.autocast(device.type, torch.bfloat16, enabled=half):
                outputs = tree_leaves(model(inputs))
            sum(output.float().sum() for output in outputs).backward()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            return time.perf_counter() - begin

        if take_step(half=False) * 2 * (_TRIALS + 1) > _AT_MOST * seconds:
            return ""
        take_step(half=True)
        share = statistics.median(take_step(half=True) / take_step(half=False) for _ in range(_TRIALS))
    if share > _WORTH:
        return ""
    return (
        f"precision=bf16 would take about {share:.0%} of the time for forward and backward passes here, as "
        "measured; its results differ by rounding"
    )
