"""Parts of the page of a run: how it went, what it was made of, and the way back."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from assay.analysis.objective import is_share
from assay.analysis.read_runs import Curve
from assay.config.yaml_file import load_mapping
from assay.errors import AssayError
from assay.figure.figure import Figure, Line, is_logarithmic
from assay.files.checksum import yaml_is_whole
from assay.files.symlinks import check_inside, read_whole
from assay.record.run_directory import RunDirectory
from assay.report.difference import values_of
from assay.report.page import Block, Cell, Code, Facts, Note, Table
from assay.terminal import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.record.run_record import RunRecord


_LR: Final = "lr-"
_STATS: Final = "DeviceStatsMonitor."
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


def _line(name: str, curve: Curve) -> Line:
    return Line(name, np.asarray(curve.steps), np.asarray(curve.values, dtype=float))


def _not_finite(lines: Sequence[Line]) -> str:
    values: Any = np.concatenate([np.asarray(line.y, dtype=float) for line in lines])
    missing = int((~np.isfinite(values)).sum())
    return f"{missing:,} of {len(values):,} values are not finite: gaps." if missing else ""


_PACKAGES: Final = ("assay", "torch", "torchvision", "lightning", "torchmetrics", "hydra-core", "numpy")


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
    """What was typed, and every value of the config."""
    typed = Code(shlex.join(record.overrides) or "nothing: all defaults", "Typed")
    warnings = [Note(problem, "warn")] if problem else []
    if not values:
        return [*warnings, typed]
    words = [*record.overrides, *(word for entry in record.resumed for word in entry.get("overrides", ()))]
    given = {str(word).partition("=")[0].lstrip("+~").partition("@")[0] for word in words}
    rows: list[list[Cell | str]] = []
    for key, value in values.items():
        parts = key.partition("[")[0].split(".")
        is_typed = not given.isdisjoint(".".join(parts[:end]) for end in range(1, len(parts) + 1))
        if parts[0] != "hydra":
            rows.append([Cell(key, tone="best" if is_typed else ""), Cell(shortened(value), title=value)])
    caption = "What was typed, as a value or as an option of its group, stands out."
    return [*warnings, typed, Table(("key", "value"), rows, caption, filtered=True, wraps=True)]


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
