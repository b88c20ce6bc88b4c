"""How a run went: learning curves, learning rate, throughput and memory."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.figure.figure import Figure, Line, is_logarithmic
from assay.record.objective import is_share
from assay.record.runs.read_runs import Curve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LR: Final = "lr-"
_STATS: Final = "DeviceStatsMonitor."
_MEMORY: Final = re.compile(
    r"(allocated_bytes\.all\.(current|peak)|reserved_bytes\.all\.current|cpu_vm_percent)$"
)
_EPOCH: Final = re.compile(r"^(\S+) INFO +assay\.progress: epoch +(\d+)/", re.MULTILINE)
_FIRST: Final = ("loss", "accuracy")


def subset_and_metric(name: str) -> tuple[str, str]:
    """The subset that a logged name begins with, and the rest; no subset where it has no `/`.

    Args:
        name: Such as `val/loss`; of one target of several `val/alcohol/mae`.

    >>> subset_and_metric("val/alcohol/mae"), subset_and_metric("drift")
    (('val', 'alcohol/mae'), ('', 'drift'))
    """
    subset, slash, metric = name.partition("/")
    return (subset, metric) if slash else ("", name)


def curve_figures(
    curves: Mapping[str, Curve],
    titles: Callable[[str], str] = str,
    kept: tuple[str, int] | None = None,
) -> list[Figure]:
    """One figure per metric with a line per subset, those of the loss and the accuracy first.

    Args:
        curves: From `metrics.csv`; values of the test, which are single ones, are left out.
        titles: What a metric is called.
        kept: What the checkpoint that was tested is called, and its step; None where that is not known.
    """
    metrics: dict[str, list[Line]] = {}
    for name, curve in curves.items():
        subset, metric = subset_and_metric(name)
        if subset == "test" or name.startswith((_LR, _STATS)):
            continue
        told, metric = (
            (f"{subset}, each batch", metric[:-5]) if metric.endswith("_step") else (subset, metric)
        )
        metrics.setdefault(metric, []).append(_line(told or metric, curve))
    order = sorted(metrics, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name))
    figures = [
        Figure(
            f"curve_{index}",
            titles(metric),
            (*metrics[metric], *_upright(kept, metrics[metric])),
            "step",
            titles(metric),
            shares="y" * is_share(metric),
            caption=_not_finite(metrics[metric]),
        )
        for index, metric in enumerate(order)
    ]
    rates = [_line(name.removeprefix(_LR), curve) for name, curve in curves.items() if name.startswith(_LR)]
    if rates:
        log = "y" * is_logarithmic(np.concatenate([line.y for line in rates]).tolist())
        figures.append(
            Figure("learning_rate", "Learning rate", tuple(rates), "step", "learning rate", log=log)
        )
    return figures


def memory_figures(curves: Mapping[str, Curve]) -> list[Figure]:
    """What `callbacks=device_stats` has logged of memory.

    Args:
        curves: From `metrics.csv`.
    """
    found = {
        name: curve for name, curve in curves.items() if name.startswith(_STATS) and _MEMORY.search(name)
    }
    shown = {name: curve for name, curve in found.items() if "batch_end" in name} or found
    of_device = [_line(_short(name), curve, 2**-20) for name, curve in shown.items() if "bytes" in name]
    of_machine = [_line(_short(name), curve) for name, curve in shown.items() if "bytes" not in name]
    figures = []
    if of_device:
        figures.append(Figure("memory", "Memory of the device", tuple(of_device), "step", "MiB"))
    if of_machine:
        figures.append(
            Figure("memory_of_machine", "Memory of the machine", tuple(of_machine), "step", "percent")
        )
    return figures


def throughput_figure(log: str, num_train: int) -> Figure | None:
    """Training samples per second in each epoch, by the times in the log; of fewer than two epochs none.

    Args:
        log: `log.txt`.
        num_train: Samples of the training subset; 0: not known.
    """
    ends: list[tuple[int, float]] = []
    for at, epoch in _EPOCH.findall(log):
        try:
            ends.append((int(epoch), datetime.fromisoformat(at).timestamp()))
        except ValueError:  # a damaged line
            continue
    spent = [
        (epoch, end - before)
        for (previous, before), (epoch, end) in zip(ends[:-1], ends[1:], strict=True)  # noqa: RUF007 - a list
        if epoch == previous + 1 and end > before
    ]
    if not spent:
        return None
    epochs, seconds = (np.array(column, dtype=float) for column in zip(*spent, strict=True))
    if num_train:
        line = Line("", epochs, num_train / seconds)
        title, label = "Throughput", "training samples per second"
    else:
        line, title, label = Line("", epochs, seconds), "Time of each epoch", "seconds"
    caption = "From the end of one epoch to the end of the next, validation and checkpoints included."
    return Figure("throughput", title, (line,), "epoch", label, caption=caption)


def _upright(kept: tuple[str, int] | None, lines: Sequence[Line]) -> list[Line]:
    """A line where the checkpoint that was tested stands, as high as the others."""
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
    values = values[np.isfinite(values)]
    if kept is None or not len(values):
        return []
    name, step = kept
    return [Line(name, [step, step], [values.min(), values.max()], is_reference=True)]


def at_epoch(curves: Mapping[str, Curve], best: Mapping[str, Any]) -> tuple[int, dict[str, float]] | None:
    """The step of the best checkpoint, and each metric as it stood there; None where that was not logged.

    Args:
        curves: From `metrics.csv`.
        best: Of the record: `monitor`, its `value`, and the `epoch`.
    """
    monitor, value = curves.get(str(best.get("monitor")), Curve()), best.get("value")
    places = [at for at, epoch in enumerate(monitor.epochs) if epoch == best.get("epoch")]
    if not places or not isinstance(value, int | float):
        return None
    step = monitor.steps[min(places, key=lambda at: abs(monitor.values[at] - value))]
    found: dict[str, float] = {}
    for name, curve in curves.items():
        logged = [
            (at_step, one)
            for epoch, at_step, one in zip(curve.epochs, curve.steps, curve.values, strict=True)
            if epoch == best["epoch"]
        ]
        before = [one for at_step, one in logged if at_step <= step]
        if logged:  # of training after it, where validation came within the epoch
            found[name] = before[-1] if before else logged[0][1]
    return step, found


def _line(name: str, curve: Curve, factor: float = 1.0) -> Line:
    return Line(name, np.asarray(curve.steps), np.asarray(curve.values, dtype=float) * factor)


def _short(name: str) -> str:
    return name.rpartition("/")[2].removeprefix("cpu_")


def _not_finite(lines: Sequence[Line]) -> str:
    values: Any = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
    missing = int((~np.isfinite(values)).sum())
    return f"{missing:,} of {len(values):,} values are not finite: gaps." if missing else ""
