"""This machine: `assay profile`, `assay tune` and `assay cache`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.cli.documents import Document  # noqa: TC001 - typer reads the annotations
from assay.cli.verb import ConfigDir, Overrides, check_ending, save_plot, show_loading
from assay.errors import ConfigError
from assay.files.atomic import write_text
from assay.paths import CONF_DIR, project_conf
from assay.quoting import command
from assay.terminal import print_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.check.checker import Checker
    from assay.run.profile import StepProfile
    from assay.run.tune import Tuning


def profile(
    document: Document,
    overrides: Overrides = None,
    *,
    steps: Annotated[int, typer.Option(metavar="N", min=2, help="Steps to measure after the warm-up.")] = 50,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a trace, which ui.perfetto.dev opens."),
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Measure where the time of a training step goes.

    The job trains for some steps, in a folder that is removed afterwards; what would shorten a step is said.
    """
    check_ending("--trace", trace, ".json")
    with show_loading():
        from assay.check.checker import Checker

        checker = Checker(config_dir)
        job = checker.job(overrides or [])
        from assay.run.execute import fit_threads, use_threads
        from assay.run.profile import profile_job

    proof = checker.check(job)
    with use_threads(fit_threads(proof)):
        measured = profile_job(job, proof, steps=steps, trace=trace)
    document.say("profile", measured)
    document.next = [
        command("profile", *job.overrides, override, config_dir=config_dir) for override in measured.try_next
    ]
    _print_profile(document, measured)


def _print_profile(document: Document, measured: StepProfile) -> None:
    from rich.table import Table

    from assay.quoting import format_bytes, format_number

    console = document.console
    low, high = measured.step_ms_range
    step = f"{measured.step_ms:.3g} ms ({low:.3g} to {high:.3g}) for {measured.batch_size} samples"
    lines = [
        ("device", measured.device),
        ("step", f"{step}: {format_number(measured.samples_per_s, 3)} samples/s"),
    ]
    if measured.memory:
        kinds = ", ".join(f"{name} {format_bytes(count)}" for name, count in measured.memory.items())
        lines.append(("memory", f"about {format_bytes(sum(measured.memory.values()))}: {kinds}"))
    if measured.peak_memory is not None:
        lines.append(("peak", f"{format_bytes(measured.peak_memory)} on the GPU"))
    print_lines(console, lines)
    for title, columns, rows in (
        ("part", ("ms", "share"), [(part.name, part.ms, f"{part.share:.0%}") for part in measured.parts]),
        ("operator", ("ms", "calls"), [(op.name, op.ms, f"{op.calls:g}") for op in measured.operators]),
    ):
        table = Table(title, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for column in columns:
            table.add_column(column, justify="right")
        for name, milliseconds, last in rows:
            table.add_row(name, f"{milliseconds:.3f}", last)
        console.print(table)
    lines = [("most", measured.bottleneck), *(("try", command) for command in document.next)]
    trace = f"{measured.trace}, for" if measured.trace else "--trace trace.json writes one for"
    print_lines(console, [*lines, ("trace", f"{trace} ui.perfetto.dev")])


def tune(
    document: Document,
    overrides: Overrides = None,
    *,
    budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Seconds to measure.  [default: 60]")
    ] = None,
    write: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write conf/experiment/NAME.yaml with the fastest settings."),
    ] = None,
    lr: Annotated[
        bool, typer.Option("--lr", help="Find the learning rate at which the loss falls fastest instead.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --lr: draw the loss into an image.")
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Measure which settings train fastest on this machine.

    Workers, threads, memory format, precision, compilation and batch size are tried one after another, each
    in turns with the best settings before it. Settings that change results, if only by rounding, are marked.
    """
    check_ending("--plot", plot, ".png", ".svg", ".pdf")
    if plot is not None and not lr:
        raise ConfigError("this draws the loss of --lr", key="--plot", hint="add --lr")
    if lr:
        if write is not None:
            raise ConfigError("--lr writes no experiment", key="--write", hint="leave it out")
        if budget is not None:
            raise ConfigError("--lr takes as long as its steps", key="--budget", hint="leave it out")
    path = None if write is None else _new_experiment(write, config_dir)
    with show_loading():
        from assay.check.checker import Checker

        checker = Checker(config_dir)
        checker.job(overrides or [])
        from assay.run.tune import commands_of, experiment_of, tune_job

    if lr:
        _find_lr(document, checker, overrides or [], plot, config_dir)
        return
    tuning = tune_job(checker, overrides or [], budget or 60.0)
    document.say("tune", tuning)
    document.next = commands_of(tuning, config_dir)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        folders = [folder for folder in (CONF_DIR, config_dir or project_conf()) if folder is not None]
        write_text(path, experiment_of(tuning, folders))
    _print_tuning(document, tuning)


def _find_lr(
    document: Document, checker: Checker, overrides: Sequence[str], plot: Path | None, config_dir: Path | None
) -> None:
    from assay.config.serialize import drop_override
    from assay.quoting import format_number
    from assay.run.tune import draw_range, find_lr

    test = find_lr(checker, overrides)
    document.say("tune_lr", test)
    typed = [*drop_override(overrides, "optimizer.lr"), f"optimizer.lr={test.lr:g}"]
    document.next = [command("train", *typed, config_dir=config_dir)]
    if plot is not None:
        save_plot(draw_range(test), plot)
    as_typed = "" if test.lr_typed is None else f"; as typed {format_number(test.lr_typed, 2)}"
    until = f"{len(test.lrs)} steps, from {test.lrs[0]:.1g} to {test.lrs[-1]:.2g}"
    lines = [("lr", f"{test.lr:g}, where the loss falls fastest{as_typed}"), ("range", until)]
    print_lines(document.console, [*lines, ("next", document.next[0])])


def _new_experiment(name: str, config_dir: Path | None) -> Path:
    """Where an experiment of this name will lie; refused where there is one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"expected a name of letters, digits, - and _, got {name!r}", key="--write", hint="--write fast"
        )
    path = (config_dir or project_conf() or Path("conf")) / "experiment" / f"{name}.yaml"
    if path.exists():
        raise ConfigError(f"{path} exists; refusing to overwrite", key="--write", hint="choose another name")
    return path


def cache(
    document: Document,
    action: Annotated[Literal["ls", "clear"], typer.Argument(help="List, or remove all.")] = "ls",
) -> None:
    """List or remove the decoded pictures that jobs share.

    They lie in the user's folder for caches or in that of ASSAY_CACHE, and take at most ASSAY_CACHE_GB (20)
    gigabytes.
    """
    with show_loading():
        from assay.data.picture_cache import clear_cache, list_cached
        from assay.data.source_files import cache_folder
    from assay.quoting import format_bytes

    files = list_cached() if action == "ls" else clear_cache()
    total = sum(file.num_bytes for file in files)
    document.say("cache", {"folder": cache_folder(), "num_bytes": total, "files": files})
    removed = "" if action == "ls" else " removed"
    lines = [("cache", f"{cache_folder()}: {format_bytes(total)} of decoded pictures{removed}")]
    for file in files:
        size = f"{file.num_pictures:,} of {file.size[0]}×{file.size[1]} ({file.form})"
        used = f"last used {file.used[:16].replace('T', ' ')} UTC"
        lines.append(("", f"{file.root}: {size}, {format_bytes(file.num_bytes)}, {used}"))
    print_lines(document.console, lines)


_NAME = re.compile(r"[\w-]+", re.ASCII)


def _print_tuning(document: Document, tuning: Tuning) -> None:
    from rich.table import Table

    from assay.quoting import format_number

    console = document.console
    print_lines(console, [("device", tuning.device)])
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("setting", overflow="fold", min_width=24)
    for column in ("samples/s", "slowest", "fastest", "gain"):
        table.add_column(column, justify="right")
    table.add_column("results")
    table.add_column("")
    for setting in tuning.settings:
        rates = [setting.samples_per_s, *(setting.samples_per_s_range or ())]
        numbers = ["" if rate is None else format_number(rate, 3) for rate in rates]
        gain = "" if setting.gain is None else f"{setting.gain:.2f}"
        results = "" if not setting.override else "the same" if setting.same_results else "differ"
        mark = "chosen" if setting.chosen else setting.note.partition("\n")[0]
        table.add_row(
            setting.override or "as typed", *numbers, *[""] * (3 - len(numbers)), gain, results, mark
        )
    console.print(table)
    lines = [("note", tuning.interrupted)] if tuning.interrupted else []
    if tuning.fastest:
        lines.append(("gain", f"{tuning.gain:.2f} times as fast as typed: {' '.join(tuning.fastest)}"))
    else:
        lines.append(("gain", "nothing that was measured is faster than the job as typed"))
    print_lines(console, [*lines, *(("next", command) for command in document.next)])
