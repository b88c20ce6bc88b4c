"""This machine: where the time of a training step goes, and the settings that train fastest."""

from __future__ import annotations

import math
import re
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, final

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import Profiler
from omegaconf import open_dict
from torch import nn
from typing_extensions import override

from assay.assemble.assembly import assemble
from assay.assemble.model import equal_blocks
from assay.assemble.trainer import silence_lightning
from assay.assemble.trainer_options import num_local_processes
from assay.config.serialize import value_of
from assay.data.core.data_module import DataModule
from assay.data.core.loaders import MemoryLoader
from assay.errors import AssayError, ConfigError
from assay.module import Module
from assay.process import keep_handlers
from assay.quoting import command
from assay.record.provenance import cpu_model, usable_cores
from assay.run.execute import fit_threads, use_threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import lightning as L

    from assay.assemble.assembly import Assembly
    from assay.check.checker import Checker
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
class StepProfile:
    """Where the time of a training step goes.

    Attributes:
        overrides: What was typed.
        device: The processor or GPU that it was measured on.
        batch_size: Samples of each batch; 0 where the data does not say.
        steps: Number of steps that were measured.
        step_ms: Mean milliseconds from one step to the next, without any profiler.
        step_ms_range: The quartiles.
        samples_per_s: Of the mean step.
        parts: What a step consists of, measured with a timer around each.
        memory: Bytes at the peak by kind, as the check computes them; empty where it cannot.
        peak_memory: Bytes at the peak on a GPU, measured; null on a CPU.
        gpu_waits: Share of the time in which the GPU computes and copies nothing; null on a CPU.
        bottleneck: One sentence.
        try_next: Overrides that may shorten the step, each of which needs a measurement.
    """

    overrides: Sequence[str]
    device: str
    batch_size: int
    steps: int
    step_ms: float
    step_ms_range: tuple[float, float]
    samples_per_s: float
    parts: Sequence[Part]
    memory: Mapping[str, int]
    peak_memory: int | None
    gpu_waits: float | None
    bottleneck: str
    try_next: Sequence[str]


WARM_UP = 5
"""Steps that are not measured: buffers are made and kernels chosen in them."""
_FEWEST = 3
_MUCH = 0.3
_HALF = 0.5
_PART_OF = {
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


def profile_job(job: Job, proof: Proof, *, steps: int) -> StepProfile:
    """Train for some steps in a folder that is removed afterwards, and measure them.

    Raises:
        ConfigError: The job trains in several processes, or its module takes the steps by itself.
        AssayError: It ends before two steps could be measured.
    """
    plain = StepTimer(steps)
    assembly = measure(job, proof.datamodule, plain)
    device = assembly.trainer.strategy.root_device
    timed = StepTimer(steps, actions=_Actions(device))
    measure(job, assembly.datamodule, timed)
    step_ms = statistics.fmean(plain.milliseconds)
    low, _, high = statistics.quantiles(plain.milliseconds, n=4)
    parts = _divide(timed)
    report = proof.report
    memory = {}
    if report.step is not None:
        memory = asdict(report.step.memory)
    peak = None
    waits = None
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        waits = _waiting_share(job, assembly.datamodule, steps)
    bottleneck, try_next = _diagnose(parts, assembly, waits or 0.0)
    return StepProfile(
        overrides=list(job.overrides),
        device=name_device(assembly),
        batch_size=report.batch_size,
        steps=len(plain.milliseconds),
        step_ms=step_ms,
        step_ms_range=(low, high),
        samples_per_s=1000 * report.batch_size / step_ms,
        parts=parts,
        memory=memory,
        peak_memory=peak,
        gpu_waits=waits,
        bottleneck=bottleneck,
        try_next=try_next,
    )


def _waiting_share(job: Job, datamodule: L.LightningDataModule | None, steps: int) -> float:
    """Share of the time in which a GPU computes and copies nothing."""
    recorder = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    timer = StepTimer(steps, recorder=recorder)
    measure(job, datamodule, timer)
    recorder.stop()
    busy: float = sum(event.self_device_time_total for event in recorder.key_averages())
    return max(0.0, 1 - busy / 1e6 / timer.recorded)


def name_device(assembly: Assembly) -> str:
    """The processor or GPU that a job runs on."""
    device = assembly.trainer.strategy.root_device
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return cpu_model()


def lies_in_memory(data: L.LightningDataModule) -> bool:
    """Whether batches are taken from memory, which no worker does faster."""
    return isinstance(data, DataModule) and isinstance(data.train_dataloader(), MemoryLoader)


class _EnoughMeasured(Exception):  # noqa: N818 - it is not an error
    """Enough steps were taken."""


def measure(job: Job, datamodule: L.LightningDataModule | None, steps: StepTimer) -> Assembly:
    """Train a job, which was checked, in a folder that is removed, until the timer has seen enough."""
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
                if node is not None and "ProgressBar" not in str(node.get("_target_"))
            }
        assembly = assemble(config, datamodule=datamodule)
        trainer = assembly.trainer
        module = assembly.module
        if not module.automatic_optimization:
            raise ConfigError(
                "a module that takes the optimizer's steps itself cannot be measured",
                key="module",
            )
        assembly.callbacks.append(steps)
        if steps.actions is not None:
            trainer.profiler = steps.actions  # type: ignore[attr-defined]  # a plain attribute
            if isinstance(module, Module) and not config.trainer.get("compile"):
                steps.actions.time_calls(forward=module.model, loss=module.loss)
        # Lightning ignores Ctrl-C once there was one
        with keep_handlers(), suppress(_EnoughMeasured):
            try:
                trainer.fit(module, datamodule=assembly.datamodule)
            except SystemExit as stop:
                if isinstance(stop.__context__, KeyboardInterrupt):
                    raise KeyboardInterrupt from stop
                raise
    if len(steps.milliseconds) < 2:
        raise AssayError(
            f"the run ends after {trainer.global_step} steps, of which the first {WARM_UP} are not measured",
            hint="train longer, such as trainer.max_epochs=100, or lower data.batch_size",
        )
    return assembly


@final
class _Actions(Profiler):
    """Seconds that each action takes without those that it calls, since they were last taken."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._on_gpu = device.type == "cuda"
        self._open: list[tuple[str, float, list[float]]] = []
        self._seconds = defaultdict[str, float](float)

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
            self._seconds[name] += elapsed - sum(inner)
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
        taken = dict(self._seconds)
        self._seconds.clear()
        return taken


@final
class StepTimer(Callback):
    """Measures steps after a warm-up, and ends the run.

    A step lasts from the end of the one before to its own; those with a validation or the end of an epoch
    between are left out.

    Args:
        steps: To measure at most.
        seconds: After which fewer are enough.
        actions: A profiler whose measurements are added up.
        recorder: Started after the warm-up; `recorded` is how many seconds of training it has seen.
    """

    def __init__(
        self,
        steps: int,
        *,
        seconds: float = math.inf,
        actions: _Actions | None = None,
        recorder: torch.profiler.profile | None = None,
    ) -> None:
        self.milliseconds: list[float] = []
        self.seconds = defaultdict[str, float](float)
        self.actions = actions
        self._steps = steps
        self._enough = 1000 * seconds
        self._last: float | None = None
        self.recorded = 0.0
        self._recorder = recorder
        self._start = 0.0

    @override
    def on_train_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize()
        now = time.perf_counter()
        self.recorded = now - self._start
        seconds = {}
        if self.actions is not None:
            seconds = self.actions.take()
        if len(self.milliseconds) == self._steps or (
            len(self.milliseconds) >= _FEWEST and sum(self.milliseconds) > self._enough
        ):
            raise _EnoughMeasured
        step = trainer.fit_loop.epoch_loop.total_batch_idx
        if self._recorder is not None and step == WARM_UP - 1:
            self._recorder.start()
            self._start = time.perf_counter()
        if self._last is not None and step >= WARM_UP:
            self.milliseconds.append(1000 * (now - self._last))
            for action, spent in seconds.items():
                self.seconds[action] += spent
        self._last = time.perf_counter()

    @override
    def on_train_epoch_end(self, *_: Any, **__: Any) -> None:
        self._last = None

    @override
    def on_validation_start(self, *_: Any, **__: Any) -> None:
        self._last = None


def _divide(steps: StepTimer) -> list[Part]:
    """A step as its parts, longest first."""
    number = len(steps.milliseconds)
    whole = sum(steps.milliseconds)
    milliseconds = dict.fromkeys((*_PART_OF, "loop"), 0.0)
    of_callbacks = defaultdict[str, float](float)
    for action, seconds in steps.seconds.items():
        part = next(
            (name for name, pattern in _PART_OF.items() if re.search(pattern, action)), "loop"
        )
        milliseconds[part] += 1000 * seconds
        if part == "callbacks":
            name = action.removeprefix("[Callback]").partition("{")[0].partition(".on_")[0]
            of_callbacks[name] += seconds
    milliseconds["loop"] += max(0.0, whole - sum(milliseconds.values()))
    detail = {"callbacks": max(of_callbacks, key=of_callbacks.__getitem__, default="")}
    parts = [
        Part(name, spent / number, spent / whole, detail.get(name, ""))
        for name, spent in milliseconds.items()
    ]
    return sorted(parts, key=lambda part: -part.ms)


_OVERHEAD = {"callbacks": "callbacks, most of it to ", "metrics": "tracking the metrics"}


def _diagnose(
    parts: Sequence[Part], assembly: Assembly, gpu_waits: float
) -> tuple[str, list[str]]:
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
        hints = []
        if more > workers and not lies_in_memory(assembly.datamodule):
            hints = [f"data.num_workers={more}"]
        if on_gpu and not data.get("pin_memory"):
            hints += ["data.pin_memory=true"]
        return (
            f"{waiting:.0%} of a step is waiting for data and preparing it on the device",
            hints,
        )
    for part in parts:
        if part.name in _OVERHEAD and part.share > _MUCH:
            return f"{part.share:.0%} of a step goes to {_OVERHEAD[part.name]}{part.detail}", []
    hints = []
    if computing < _HALF or gpu_waits > _MUCH:
        batch_size = data.get("batch_size")
        if isinstance(batch_size, int):
            hints = [f"data.batch_size={4 * batch_size}"]
        most = f"only {computing:.0%} of a step is the model's own computing"
        if gpu_waits > _MUCH:
            most = f"the GPU waits for {gpu_waits:.0%} of the time"
            if not trainer.get("compile"):
                hints += ["trainer.compile=reduce-overhead"]
        return f"{most}: its batches are small", hints
    if "16" not in str(trainer.get("precision")):
        hints = ["precision=bf16"]
    if not trainer.get("compile"):
        hints += ["trainer.compile=true"]
    return f"{computing:.0%} of a step is the model's own computing", hints


@final
@dataclass(frozen=True)
class TunedSetting:
    """What was measured of one setting.

    Attributes:
        override: What sets it, such as `data.num_workers=2`; `OMP_NUM_THREADS=1` is typed before `assay`.
        samples_per_s: The median of its repetitions, of batches where the data does not say how large they
            are; null where it was not measured.
        samples_per_s_range: The slowest and the fastest repetition.
        gain: How many times as fast as the best settings before it, from repetitions in turns.
        same_results: Whether the run ends with the same numbers, bit for bit.
        chosen: Whether it belongs to the best settings.
        note: Why it was not measured, or not as often as others.
    """

    override: str
    samples_per_s: float | None = None
    samples_per_s_range: tuple[float, float] | None = None
    gain: float | None = None
    same_results: bool = False
    chosen: bool = False
    note: str = ""


@final
@dataclass(frozen=True)
class Tuning:
    """The settings that train fastest on this machine.

    Attributes:
        overrides: What was typed.
        device: The processor or GPU that it was measured on.
        settings: In the order in which they were measured; the first one is the job as typed.
        fastest: Overrides of the best settings, beside what was typed.
        same_results: Those of them that change no result.
        gain: How many times as fast as the job as typed the best settings are.
        interrupted: Why not all was measured; empty where it was.
        seconds: Time that the measurements took.
    """

    overrides: Sequence[str]
    device: str
    settings: Sequence[TunedSetting]
    fastest: Sequence[str]
    same_results: Sequence[str]
    gain: float
    interrupted: str
    seconds: float


_REPETITIONS = 3
_SECONDS = 0.6
"""That one repetition measures at most, after its warm-up."""
_STEPS = 200
_WORTH = 1.03
"""Gain from which on a setting is chosen, where all its repetitions are faster, too."""
THREADS = "OMP_NUM_THREADS"


def tune_job(checker: Checker, overrides: Sequence[str], budget_s: float) -> Tuning:
    """Measure settings that may make a job faster, and keep what does; nothing is written.

    Raises:
        AssayError: The job cannot run.
    """
    start = time.monotonic()
    tuner = Tuner(checker, overrides, start + budget_s)
    assembly, _ = tuner.measure([])  # what is made once takes longer than all that follow
    _, rate = tuner.measure([])
    as_typed = [rate]
    settings = list[TunedSetting]()
    best = list[str]()
    groups = list(candidates(assembly, tuner.threads))
    for same_results, group in groups:
        measured, winner, before = tuner.compare(best, group, same_results=same_results)
        if not best:
            as_typed += before
        settings += measured
        if winner:
            best += [winner]
    exact = [override for same, group in groups if same for override in group if override in best]
    gain = math.prod(setting.gain or 1.0 for setting in settings if setting.chosen)
    return Tuning(
        overrides=list(overrides),
        device=name_device(assembly),
        settings=[_setting("", as_typed), *settings],
        fastest=best,
        same_results=exact,
        gain=gain,
        interrupted=tuner.stopped,
        seconds=time.monotonic() - start,
    )


def candidates(assembly: Assembly, threads: int) -> Iterator[tuple[bool, list[str]]]:
    """Settings of which one is chosen, and whether they leave the results as they are."""
    config = assembly.config
    module = assembly.module
    data = assembly.datamodule
    on_gpu = assembly.trainer.strategy.root_device.type == "cuda"
    cores = usable_cores()
    size = value_of(config, "data.batch_size")
    if isinstance(size, int):  # first: what pays at one size does not at another
        yield False, [f"data.batch_size={factor * size}" for factor in (2, 4, 8)]
    if not lies_in_memory(data):
        now = int(value_of(config, "data.num_workers") or 0)
        counts = sorted({0, 1, 2, cores // 2, cores, *([2 * cores] if on_gpu else [])} - {now})
        yield True, [f"data.num_workers={count}" for count in counts]
    if not on_gpu and cores > 1:
        counts = sorted({1, cores // 2, cores} - {threads})
        yield False, [f"{THREADS}={count}" for count in counts]
    model = getattr(module, "model", module)
    if any(isinstance(part, nn.Conv2d) for part in model.modules()):
        last = bool(value_of(config, "trainer.channels_last"))
        yield False, [f"trainer.channels_last={str(not last).lower()}"]
    fused = value_of(config, "optimizer.fused")
    if fused is not None:
        yield False, [f"optimizer.fused={str(not fused).lower()}"]
    if str(assembly.trainer.precision) == "32-true":
        yield False, ["precision=bf16", *(["precision=tf32"] if on_gpu else [])]
    if not value_of(config, "trainer.compile"):
        ways = {"true": True, "blocks": equal_blocks(model), "reduce-overhead": on_gpu}
        yield (
            False,
            [f"trainer.compile={way}" for way, is_possible in ways.items() if is_possible],
        )


@final
class Tuner:
    """Measures jobs in turns, and reads the data once."""

    def __init__(self, checker: Checker, overrides: Sequence[str], deadline: float) -> None:
        self._checker = checker
        self._overrides = overrides
        self._deadline = deadline
        self.threads = 1
        """Of the last measurement."""
        self.stopped = ""
        """Why no more is measured; empty as long as it is."""

    def measure(self, settings: Sequence[str]) -> tuple[Assembly, float]:
        """Samples a second of the job with these settings."""
        typed = [override for override in settings if not override.startswith(THREADS)]
        job = self._checker.job([*self._overrides, *typed])
        proof = self._checker.check(job)
        timer = StepTimer(_STEPS, seconds=_SECONDS)
        threads = [int(setting.partition("=")[2]) for setting in settings if setting not in typed]
        self.threads = (threads[-1] if threads else fit_threads(proof)) or torch.get_num_threads()
        with use_threads(self.threads):
            assembly = measure(job, proof.datamodule, timer)
        samples = proof.report.batch_size or 1  # batches, where the data does not say
        return assembly, 1000 * samples / statistics.fmean(timer.milliseconds)

    def compare(
        self, best: Sequence[str], group: Sequence[str], *, same_results: bool
    ) -> tuple[list[TunedSetting], str, list[float]]:
        """Each setting beside the best ones so far, the one that is chosen, and the rates of those."""
        rates: dict[str, list[float]] = {override: [] for override in ("", *group)}
        notes: dict[str, str] = {}
        for setting in [*rates] * _REPETITIONS:
            if time.monotonic() > self._deadline and not self.stopped:
                self.stopped = "the budget ran out before everything was measured; raise --budget"
            if self.stopped or setting in notes:
                continue
            try:
                rates[setting].append(self.measure([*best, *filter(None, [setting])])[1])
            except AssayError as error:
                notes[setting] = error.message
            except (torch.OutOfMemoryError, MemoryError):
                notes[setting] = "out of memory"
            except KeyboardInterrupt:
                self.stopped = "stopped by Ctrl-C"
        before = rates.pop("")
        settings = []
        winner = ""
        highest = _WORTH
        for setting, found in rates.items():
            gains = [now / then for now, then in zip(found, before, strict=False)]
            if not gains:
                note = notes.get(setting, "not measured")
                settings.append(TunedSetting(setting, same_results=same_results, note=note))
                continue
            gain = statistics.median(gains)
            settings.append(
                _setting(
                    setting,
                    found,
                    gain=gain,
                    same_results=same_results,
                    note=notes.get(setting, ""),
                )
            )
            if len(gains) == _REPETITIONS and gain >= highest and min(gains) > 1:
                winner = setting
                highest = gain
        return [replace(one, chosen=one.override == winner) for one in settings], winner, before


def _setting(override: str, rates: Sequence[float], **more: float | bool | str) -> TunedSetting:
    return TunedSetting(override, statistics.median(rates), (min(rates), max(rates)), **more)  # type: ignore[arg-type]  # by name


def commands_of(tuning: Tuning, config_dir: Path | None) -> list[str]:
    """What to type to train with the fastest settings, and with those of them that change no result."""
    typed: dict[str, None] = {}
    for settings in (tuning.same_results, tuning.fastest):
        if settings:
            threads = [setting for setting in settings if setting.startswith(THREADS)]
            others = [setting for setting in settings if setting not in threads]
            words = command("train", *tuning.overrides, *others, config_dir=config_dir)
            typed[" ".join([*threads, words])] = None
    return [*typed]
