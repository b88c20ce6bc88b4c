"""The settings that train fastest on this machine, and a learning rate by a range test: `assay tune`."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from hydra.core.override_parser.overrides_parser import OverridesParser
from lightning.pytorch.callbacks import Callback
from scipy.ndimage import gaussian_filter1d, median_filter  # type: ignore[import-untyped]  # scipy ships no types
from torch import nn
from typing_extensions import override

from assay.build.model import equal_blocks
from assay.config.serialize import is_number, to_yaml, value_of
from assay.errors import AssayError, ConfigError
from assay.figure.figure import Figure, Line, Points
from assay.quoting import command
from assay.record.provenance import usable_cores
from assay.run.execute import fit_threads, use_threads
from assay.run.profile import EnoughMeasured, StepTimer, lies_in_memory, measure, name_device, train_briefly

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import lightning as L

    from assay.build.assembly import Assembly
    from assay.check.checker import Checker


@final
@dataclass(frozen=True)
class TunedSetting:
    """What was measured of one setting.

    Attributes:
        override: What sets it, such as `data.num_workers=2`; `OMP_NUM_THREADS=1` is typed before `assay`.
        samples_per_s: The median of its repetitions; null where it was not measured.
        samples_per_s_range: The slowest and the fastest repetition.
        gain: How many times as fast as the best settings before it, from repetitions in turns.
        same_results: Whether the run ends with the same numbers, bit for bit.
        chosen: Whether it belongs to the best settings.
        note: Why it was not measured.
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


_REPETITIONS: Final = 3
_SECONDS: Final = 0.6
"""That one repetition measures at most, after its warm-up."""
_STEPS: Final = 200
_WORTH: Final = 1.03
"""Gain from which on a setting is chosen, where all its repetitions are faster, too."""
THREADS: Final = "OMP_NUM_THREADS"


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
        as_typed += before if not best else []
        settings += measured
        best += [winner] if winner else []
    exact = [override for same, group in groups if same for override in group if override in best]
    gain = 1.0
    for setting in settings:
        gain *= setting.gain if setting.chosen and setting.gain else 1.0
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
        yield False, [f"trainer.compile={way}" for way, is_possible in ways.items() if is_possible]


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
        return assembly, 1000 * proof.report.batch_size / statistics.fmean(timer.milliseconds)

    def compare(
        self, best: Sequence[str], group: Sequence[str], *, same_results: bool
    ) -> tuple[list[TunedSetting], str, list[float]]:
        """Each setting beside the best ones so far, the one that is chosen, and the rates of those."""
        rates: dict[str, list[float]] = {override: [] for override in ("", *group)}
        notes: dict[str, str] = {}
        for setting in [*rates] * _REPETITIONS:
            if time.monotonic() > self._deadline and not self.stopped:
                self.stopped = "the budget was spent before all was measured; --budget gives more"
            if self.stopped or setting in notes:
                continue
            try:
                rates[setting].append(self.measure([*best, *filter(None, [setting])])[1])
            except AssayError as error:
                notes[setting] = error.message
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
            settings.append(_setting(setting, found, gain=gain, same_results=same_results))
            if len(gains) == _REPETITIONS and gain >= highest and min(gains) > 1:
                winner = setting
                highest = gain
        return [replace(one, chosen=one.override == winner) for one in settings], winner, before


def _setting(override: str, rates: Sequence[float], **more: float | bool) -> TunedSetting:
    return TunedSetting(override, statistics.median(rates), (min(rates), max(rates)), **more)  # type: ignore[arg-type]  # by name


def commands_of(tuning: Tuning, config_dir: Path | None = None) -> list[str]:
    """What to type to train with the fastest settings, and with those of them that change no result."""
    typed: dict[str, None] = {}
    for settings in (tuning.same_results, tuning.fastest):
        if settings:
            threads = [setting for setting in settings if setting.startswith(THREADS)]
            others = [setting for setting in settings if setting not in threads]
            words = command("train", *tuning.overrides, *others, config_dir=config_dir)
            typed[" ".join([*threads, words])] = None
    return [*typed]


def experiment_of(tuning: Tuning, folders: Sequence[Path]) -> str:
    """The job with its fastest settings, as the YAML of an experiment; groups lie in these folders.

    Raises:
        ConfigError: What was typed leaves a key out, which no YAML can.
    """
    settings = [setting for setting in tuning.fastest if not setting.startswith(THREADS)]
    config: dict[str, Any] = {}
    defaults: list[Any] = []
    for parsed in OverridesParser.create().parse_overrides([*tuning.overrides, *settings]):
        key = parsed.key_or_group
        value = parsed.value()
        if parsed.is_delete():
            raise ConfigError(
                f"an experiment cannot leave out ~{key}", key="--write", hint="type it each time"
            )
        if key == "experiment":
            defaults.insert(0, value)
        elif any((folder / key).is_dir() for folder in folders):
            defaults.append({f"/{key}" if parsed.is_add() else f"override /{key}": value})
        elif not key.startswith("hydra"):
            node = config
            *parents, name = key.split(".")
            for parent in parents:
                node = node.setdefault(parent, {})
            node[name] = value
    body = {**({"defaults": defaults} if defaults else {}), **config}
    head = f"# @package _global_\n# Fastest on {tuning.device}, as `assay tune` has measured.\n"
    return head + to_yaml(body)


# -- assay tune --lr -----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class RangeTest:
    """What the loss makes of a learning rate that rises from step to step.

    Attributes:
        overrides: What was typed.
        lr: Where the smoothed loss falls fastest.
        lr_typed: Of the job as typed; null where its optimizer has none of that name.
        lrs: Of each step.
        losses: Of each step, before it; smoothed.
        seconds: Time that it took.
    """

    overrides: Sequence[str]
    lr: float
    lr_typed: float | None
    lrs: Sequence[float]
    losses: Sequence[float]
    seconds: float


_LOWEST: Final = 1e-7
_HIGHEST: Final = 10.0
_RISE_STEPS: Final = 200
_FEWEST: Final = 50
_SMOOTHING: Final = 4.0
"""Standard deviation in steps: the rate has grown by a half then."""
_CLEAR: Final = 5.0
"""Standard deviations of the smoothed loss by which it has to fall."""
_NOISY: Final = 9
_DIVERGED: Final = 3.0
"""Times as much above the first loss as it has fallen below that: nothing is learnt any more."""


def find_lr(checker: Checker, overrides: Sequence[str]) -> RangeTest:
    """Train a job with a rising learning rate, as Smith (2017, https://arxiv.org/abs/1506.01186) does.

    Raises:
        AssayError: The job cannot run, ends too early, or its loss never falls.
    """
    start = time.monotonic()
    job = checker.job(overrides)
    rise = _RisingLR()
    train_briefly(job, checker.check(job).datamodule, rise, alone=True)
    if not rise.is_finite and len(rise.losses) < _FEWEST:
        lr = f"{rise.lrs[-1]:.1g}" if rise.lrs else f"{_LOWEST:.0e}"
        message = f"the loss is not finite after {len(rise.losses)} steps, at a learning rate of {lr}"
        raise AssayError(message, hint="look with assay train debug=anomaly")
    if len(rise.losses) < _FEWEST:
        raise AssayError(
            f"the run ends after {len(rise.losses)} steps, and the learning rate needs {_FEWEST} to rise",
            hint="let it be longer, as by trainer.max_epochs=100, or make data.batch_size smaller",
        )
    # The median first: a single batch of outliers is no rise.
    losses = gaussian_filter1d(median_filter(rise.losses, _NOISY, mode="nearest"), _SMOOTHING, mode="nearest")
    at_first = losses[: _FEWEST // 2]  # where nothing is learnt yet
    steepest = int(np.gradient(losses[: max(2, int(losses.argmin()) + 1)]).argmin())
    if at_first.mean() - losses.min() < _CLEAR * at_first.std() or steepest < len(at_first):
        raise AssayError(
            f"the loss falls by {at_first.mean() - losses.min():.3g} at most, and differs by "
            f"{at_first.std():.3g} where nothing is learnt: no learning rate stands out",
            hint="make data.batch_size larger, or try some: assay train -m optimizer.lr=0.0001,0.001,0.01",
        )
    lr_typed = value_of(job.to_config(), "optimizer.lr")
    return RangeTest(
        overrides=list(overrides),
        lr=float(f"{rise.lrs[steepest]:.2g}"),
        lr_typed=float(lr_typed) if is_number(lr_typed) else None,
        lrs=rise.lrs,
        losses=losses.tolist(),
        seconds=time.monotonic() - start,
    )


def draw_range(test: RangeTest) -> Figure:
    """The loss over the learning rate."""
    marks = [Line("smoothed loss", test.lrs, test.losses)]
    for name, lr in (("falls fastest", test.lr), ("as typed", test.lr_typed)):
        if lr is not None:
            loss = float(np.interp(lr, test.lrs, test.losses))
            marks.append(Points(f"{name}: {lr:.2g}", [lr], [loss]))  # type: ignore[arg-type]  # a mark as well
    lowest = min(test.losses)
    first = test.losses[0]
    shown = (lowest - 0.1 * abs(first - lowest), max(test.losses[0], lowest) + 0.5 * abs(first - lowest))
    return Figure(
        "lr",
        "Loss as the learning rate rises",
        tuple(marks),
        *("learning rate", "training loss"),
        log="x",
        y_range=shown,
    )


@final
class _RisingLR(Callback):
    """Multiplies the learning rate with each step, whatever the schedule says, until the loss diverges."""

    def __init__(self) -> None:
        self.lrs: list[float] = []
        self.losses: list[float] = []
        self.is_finite = True
        self._lowest = math.inf

    @override
    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        lr = _LOWEST * (_HIGHEST / _LOWEST) ** (trainer.global_step / (_RISE_STEPS - 1))
        if not self.lrs or lr > self.lrs[-1]:
            self.lrs.append(lr)
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr

    @override
    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, *_: Any
    ) -> None:
        loss = float(outputs["loss"]) * trainer.accumulate_grad_batches
        if len(self.losses) < len(self.lrs):  # of several batches of a step, the first one
            self.losses.append(loss)
        self.is_finite = math.isfinite(loss)
        # Medians: a batch of few samples may be far easier or harder than others.
        first = statistics.median(self.losses[:_NOISY])
        recent = statistics.median(self.losses[-_NOISY:])
        self._lowest = min(self._lowest, recent)
        above = _DIVERGED * max(first - self._lowest, 0.1 * abs(first))
        diverges = len(self.losses) > _FEWEST and recent > first + above
        if not self.is_finite or diverges or trainer.global_step >= _RISE_STEPS:
            if not self.is_finite:
                self.losses.pop()
            del self.lrs[len(self.losses) :]
            raise EnoughMeasured
