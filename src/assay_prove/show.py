"""What `assay check` prints of a job, and of the jobs of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.markup import escape
from rich.text import Text

from assay.figure import Figure, Line
from assay.quoting import format_number
from assay.task.task_of import find_task
from assay.terminal import make_table, single_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.check.report import Report, Step
    from assay.terminal import Console


_MOST_NAMED = 10
"""Classes, or targets, in a line."""


def show_job(console: Console, report: Report) -> None:
    """Print what is known of one job."""
    rows = [("data", _data(report))]
    if distribution := _distribution(report):
        title = "targets"
        if report.spec.get("class_counts"):
            title = "classes"
        rows.append((title, distribution))
    rows.append(("model", _model(report)))
    if report.step is not None:
        rows += [("step", _step(report, report.step)), ("memory", _memory(report.step))]
    if report.unproven:
        rows.append(
            ("step", f"[yellow]unproven[/yellow]: {escape(report.unproven)}; the run will show")
        )
    if report.spec:
        an_epoch = report.spec["steps_per_epoch"]
        total = report.spec["total_steps"]
        in_all = "until time or a callback ends the run"
        if total is not None:
            bound = ""
            if report.may_end_early:
                bound = "at most "
            in_all = f"{bound}{total:,} in all"
        each = "an unknown number per epoch"
        if an_epoch is not None:
            each = f"{an_epoch:,} per epoch"
        rows.append(("steps", f"{each}, {in_all}"))
    if report.lr:
        first, last = report.lr[0], report.lr[-1]
        rates = f"lr {first:.3g} at first, {max(report.lr):.3g} at most, {last:.3g} at the end"
        rows.append(("schedule", f"{escape(_schedule(report))}: {rates}; --plot FILE draws it"))
    rows += [("[yellow]note[/yellow]", escape(note)) for note in report.notes]
    console.print(f"[bold]{escape(report.name)}[/bold]  {escape(' '.join(report.overrides))}")
    for name, text in rows:
        console.print(f"  [dim]{name:<10}[/dim] {text}")
    for warning in report.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    console.print(
        f"[bold green]ready[/bold green], checked in {report.seconds:.1f} s; nothing was run or written"
    )


def show_sweep(console: Console, reports: Sequence[Report]) -> None:
    """Print a table of jobs: what differs, and what each takes."""
    common = set(reports[0].overrides).intersection(*(report.overrides for report in reports))
    numeric = ("parameters", "a step", "memory", "steps")
    table = make_table(("job", "overrides", *numeric), ("job", *numeric))
    for number, report in enumerate(reports):
        overrides = " ".join(override for override in report.overrides if override not in common)
        step = report.step
        flops = "unproven"
        peak = ""
        if step:
            flops = format_flops(step.flops)
            peak = format_bytes(step.memory.peak)
        table.add_row(
            str(number),
            Text(overrides),
            _number(report.parameters),
            flops,
            peak,
            _number(report.spec.get("total_steps")),
        )
    wide = 1000
    if console.is_terminal:
        wide = max(console.width, 20)
    console.print(table, width=wide, soft_wrap=not console.is_terminal)
    if common:
        in_order = [override for override in reports[0].overrides if override in common]
        console.print(f"[dim]all with[/dim] {escape(' '.join(in_order))}")
    texts = {
        "unproven": [
            f"{report.unproven}; the run will show" for report in reports if report.unproven
        ],
        "note": [note for report in reports for note in report.notes],
        "warning": [warning for report in reports for warning in report.warnings],
    }
    for name, lines in texts.items():
        for line in dict.fromkeys(lines):
            console.print(f"[yellow]{name}[/yellow]: {escape(line)}")
    seconds = sum(report.seconds for report in reports)
    console.print(
        f"[bold green]ready[/bold green]: {len(reports)} jobs, checked in {seconds:.1f} s; "
        "nothing was run or written"
    )


def draw_curve(report: Report) -> Figure:
    """The learning rate over the steps."""
    line = Line("lr", range(len(report.lr)), report.lr)
    return Figure("lr", f"{report.name}: {_schedule(report)}", (line,), "step", "learning rate")


def _number(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count:,}"


def _data(report: Report) -> str:
    spec = report.spec
    if not spec:
        return "a custom datamodule without a spec"
    shape = "×".join(map(str, spec["input_shape"]))
    if vocab_size := spec.get("vocab_size"):
        shape = f"up to {shape} tokens, vocabulary {vocab_size:,}"
    # one of the user's own may have been imported by another process
    task = find_task(spec["task"])
    parts = f"{spec['num_train']:,} + {spec['num_val']:,} + {spec['num_test']:,} samples"
    read = "not read"
    if report.data_read:
        read = "read"
    description = ""
    if task is not None:
        description = f", {task.in_words(spec)}"
    return f"{spec['task']}, {shape}{description}; {parts} to train, validate, test ({read})"


def _distribution(report: Report) -> str:
    """Training samples of each class, or mean and deviation of each target."""
    spec = report.spec
    names = spec.get("class_names") or ()
    counts = spec.get("class_counts") or ()
    if counts and len(names) == len(counts):
        order = sorted(range(len(counts)), key=lambda index: -counts[index])
        parts = [
            f"{single_line(str(names[index]))} {counts[index]:,}" for index in order[:_MOST_NAMED]
        ]
        more = ""
        if len(order) > _MOST_NAMED:
            more = f", … {len(order) - _MOST_NAMED} more"
        return escape(f"{', '.join(parts)}{more} to train")
    pairs = zip(spec.get("target_mean") or (), spec.get("target_std") or (), strict=False)
    parts = [f"mean {mean:.4g}, deviation {std:.4g}" for mean, std in list(pairs)[:_MOST_NAMED]]
    return "; ".join(parts)


def _model(report: Report) -> str:
    name = report.targets.get("model", "a custom LightningModule")
    if report.parameters is None:
        return f"{name}, whose parameters are known after the first batch"
    frozen = ""
    if report.trainable != report.parameters:
        frozen = f", {_number(report.trainable)} of them trained"
    return f"{name}, {report.parameters:,} parameters{frozen}"


def _step(report: Report, step: Step) -> str:
    parts = [report.targets.get(key, "") for key in ("loss", "optimizer", "scheduler")]
    each = ""
    if report.devices > 1:
        each = f" on each of {report.devices} devices"
    return (
        f"{format_flops(step.flops)} for a batch of {report.batch_size}{each}: forward, "
        f"{', '.join(part for part in parts if part)}"
    )


def _memory(step: Step) -> str:
    memory = step.memory
    return (
        f"about {format_bytes(memory.peak)} at its peak: weights {format_bytes(memory.weights)}, gradients "
        f"{format_bytes(memory.gradients)}, optimizer {format_bytes(memory.optimizer)}, activations "
        f"{format_bytes(memory.activations)}"
    )


def _schedule(report: Report) -> str:
    name = report.targets.get("scheduler", "constant")
    if report.lr_note:
        return f"{name} ({report.lr_note})"
    return name


_FLOPS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


def format_flops(count: int) -> str:
    """A number of floating-point operations with three digits."""
    return _scale(count, 1000, _FLOPS)


def format_bytes(count: int) -> str:
    """A size with three digits."""
    return _scale(count, 1024, _BYTES)


def _scale(count: int, base: int, units: Sequence[str]) -> str:
    value, power = float(count), 0
    while value >= 999.5 and power < len(units) - 1:  # three digits would be 1e+03
        value /= base
        power += 1
    return f"{format_number(value, 3)} {units[power]}"
