"""Parts of the page of a run: how it went, what it was made of, and the way back."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.analysis.objective import is_share
from assay.analysis.read_runs import Curve
from assay.config.source_location import shortened
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.figure.figure import Figure, Line, is_logarithmic
from assay.files.checksum import yaml_is_whole
from assay.files.symlinks import check_inside, read_whole
from assay.record.run_directory import RunDirectory
from assay.report.difference import values_of
from assay.report.page import Block, Cell, Code, Facts, Note, Table, Tone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.record.run_record import RunRecord


_LR: Final = "lr-"
_STATS: Final = "DeviceStatsMonitor."
_MEMORY: Final = re.compile(
    r"(allocated_bytes\.all\.(current|peak)|reserved_bytes\.all\.current|cpu_vm_percent)$"
)
_EPOCH: Final = re.compile(r"^(\S+) INFO +assay\.progress: epoch +(\d+)/", re.MULTILINE)
_FIRST: Final = ("loss", "accuracy")


def subset_and_metric(name: str) -> tuple[str, str]:
    """The subset that a logged name begins with, and the rest; no subset where it has no `/`.

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
    """One figure per metric with a line per subset, those of the loss and the accuracy first."""
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
    """What `callbacks=device_stats` has logged of memory."""
    found = {
        name: curve for name, curve in curves.items() if name.startswith(_STATS) and _MEMORY.search(name)
    }
    shown = {name: curve for name, curve in found.items() if "batch_end" in name} or found
    figures = []
    for name, title, unit, of_device in (
        ("memory", "Memory of the device", "MiB", True),
        ("memory_of_machine", "Memory of the machine", "percent", False),
    ):
        lines = [
            _line(key.rpartition("/")[2].removeprefix("cpu_"), curve, 2**-20 if of_device else 1.0)
            for key, curve in shown.items()
            if ("bytes" in key) == of_device
        ]
        figures += [Figure(name, title, tuple(lines), "step", unit)] if lines else []
    return figures


def throughput_figure(log: str, num_train: int) -> Figure | None:
    """Training samples per second in each epoch, by the times in the log; of fewer than two epochs none."""
    ends = [(int(epoch), time) for at, epoch in _EPOCH.findall(log) if (time := time_of(at)) is not None]
    spent = [
        (epoch, (end - before).total_seconds())
        for (previous, before), (epoch, end) in pairwise(ends)
        if epoch == previous + 1 and end > before
    ]
    if not spent:
        return None
    epochs, seconds = np.array(spent, dtype=float).T
    caption = "From the end of one epoch to the end of the next, validation and checkpoints included."
    title, label, values = "Time of each epoch", "seconds", seconds
    if num_train:
        title, label, values = "Throughput", "training samples per second", num_train / seconds
    return Figure("throughput", title, (Line("", epochs, values),), "epoch", label, caption=caption)


def time_of(text: str) -> datetime | None:
    """The time of a line of a log; None of a damaged one."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _upright(kept: tuple[str, int] | None, lines: Sequence[Line]) -> list[Line]:
    """A line where the checkpoint that was tested stands, as high as the others."""
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
    values = values[np.isfinite(values)]
    if kept is None or not len(values):
        return []
    name, step = kept
    return [Line(name, [step, step], [values.min(), values.max()], is_reference=True)]


def at_epoch(curves: Mapping[str, Curve], best: Mapping[str, Any]) -> tuple[int, dict[str, float]] | None:
    """The step of the best checkpoint, and each metric as it stood there; None where that was not logged."""
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


def _not_finite(lines: Sequence[Line]) -> str:
    values: Any = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
    missing = int((~np.isfinite(values)).sum())
    return f"{missing:,} of {len(values):,} values are not finite: gaps." if missing else ""


_PACKAGES: Final = ("assay", "torch", "torchvision", "lightning", "torchmetrics", "hydra-core", "numpy")

_INTO_TRAINER = ("trainer", "device", "precision")


def read_values(run_dir: Path) -> tuple[dict[str, str], str]:
    """Values as they stand in the file: an interpolation in somebody's config is not resolved here."""
    path = RunDirectory(run_dir).config
    try:
        check_inside(path, run_dir)
        whole = yaml_is_whole(read_whole(path))
        return values_of(load_mapping(path)), "" if whole else f"{path} is not as the run has written it"
    except OSError as error:
        return {}, f"{path} cannot be read: {error.strerror}"
    except AssayError as error:
        return {}, error.message


def config_blocks(values: dict[str, str], problem: str, record: RunRecord) -> list[Block]:
    """What was typed, and every value of the config with where it came from."""
    typed = Code(shlex.join(record.overrides) or "nothing: all defaults", "Typed")
    warnings = [Note(problem, "warn")] if problem else []
    if not values:
        return [*warnings, typed]
    kept = {key: value for key, value in values.items() if not key.startswith("hydra.")}
    tones: dict[str, Tone] = {"typed": "best", "option": "", "follows": "dim", "default": "dim"}
    rows: list[list[Cell | str]] = [
        [key, Cell(shortened(value), title=value), Cell(source, tone=tones[kind]), Cell(kind, tone="dim")]
        for key, value, source, kind in config_sources(kept, record)
    ]
    caption = (
        "typed: on the command line, as a value or as an option of a group. option: of a group that nobody "
        "chose by hand. follows: from the data or another value. default: of the main config."
    )
    return [
        *warnings,
        typed,
        Table(("key", "value", "from", "how"), rows, caption, filtered=True, wraps=True),
    ]


def environment_blocks(record: RunRecord) -> list[Block]:
    """The machine, the packages, and what the code and the data were."""
    machine, git = record.machine, record.git or {}
    gpus = machine.get("gpus") or []
    memory = machine.get("memory_bytes")
    state = (
        f"{str(git.get('commit'))[:12]}{', with changes' if git.get('dirty') else ''}"
        if git
        else "no repository"
    )
    facts = [
        ("machine", str(machine.get("hostname", ""))),
        ("system", str(machine.get("platform", ""))),
        ("processor", f"{machine.get('cpu', '')}, {machine.get('cores', '?')} cores"),
        ("memory", f"{memory / 2**30:.1f} GiB" if isinstance(memory, int | float) else ""),
        ("GPU", ", ".join(map(str, gpus)) if isinstance(gpus, list) and gpus else "none"),
        ("Python", str(machine.get("python", ""))),
        *((name, str(record.packages[name])) for name in _PACKAGES if name in record.packages),
        ("code", state),
        ("branch", str(git.get("branch") or "")),
        ("data", record.data_sha256[:16]),
        ("weights", record.weights_sha256[:16]),
    ]
    packages = "\n".join(f"{name}=={version}" for name, version in sorted(record.packages.items()))
    blocks: list[Block] = [Facts([(name, value) for name, value in facts if value])]
    return (
        [*blocks, Code(packages, f"All {len(record.packages)} packages", folded=True)] if packages else blocks
    )


def reproduce_blocks(run_dir: Path, record: RunRecord) -> list[Block]:
    """What to type to do it again."""
    kept = [word for word in record.overrides if not word.startswith("hydra.run.dir=")]
    lines = [
        "# the same run again, bit for bit where the machine allows it",
        f"assay reproduce {shlex.quote(str(run_dir))}",
        "",
        "# a new run with the same words, and with other seeds",
        shlex.join(["assay", "train", *kept]),
        shlex.join(
            ["assay", "train", "-m", *(word for word in kept if not word.startswith("seed=")), "seed=1,2,3"]
        ),
    ]
    git = record.git or {}
    notes: list[Block] = []
    if not git.get("commit"):
        notes.append(Note("The code was not in a git repository: only the config says what ran."))
    elif git.get("dirty"):
        whole = git.get("patch_complete")
        notes.append(
            Note("The code had changes; code.patch has them" + (", as a whole." if whole else " in part."))
        )
    return [Code("\n".join(lines)), *notes]


def config_sources(values: Mapping[str, str], record: RunRecord) -> list[tuple[str, str, str, str]]:
    """Key, value, where it came from, and in which of four ways: `typed`, `follows`, `option`, `default`."""
    again = (str(word) for entry in record.resumed for word in entry.get("overrides", ()))
    typed = {
        word.partition("=")[0].lstrip("+~").partition("@")[0]: word for word in (*record.overrides, *again)
    }
    return [(key, value, *_source(key, typed, record)) for key, value in values.items()]


def _source(key: str, typed: Mapping[str, str], record: RunRecord) -> tuple[str, str]:
    whole = key.partition("[")[0]
    parts = whole.split(".")
    above = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    above = [one for one in above if one not in record.choices]
    if word := next((typed[one] for one in above if one in typed), ""):
        return word, "typed"
    if whole in record.interpolations:
        return record.interpolations[whole], "follows"
    if parts[0] == "spec":
        return "the data", "follows"
    if option := next((record.set_by[one] for one in above if one in record.set_by), ""):
        return option, "typed" if option.partition("=")[0] in typed else "option"
    groups = _INTO_TRAINER if parts[0] == "trainer" else (f"{parts[0]}/{'/'.join(parts[1:2])}", parts[0])
    chosen = [group for group in groups if record.choices.get(group)]
    chosen = chosen if parts[0] == "trainer" else chosen[:1]
    if not chosen:
        return "default", "default"
    told = []
    for group in chosen:
        option = record.choices[group]
        text = f"[{','.join(map(str, option))}]" if isinstance(option, list) else str(option)
        of = f" of {record.set_by[group]}" if group in record.set_by else ""
        told.append(f"{group}={text}{of}")
    return " ".join(told), "typed" if any(group in typed for group in chosen) else "option"
