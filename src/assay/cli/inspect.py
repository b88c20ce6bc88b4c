"""Looking before training: `assay check`, `data`, `configs`, `explain`, `diff` and `info`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from assay.cli.documents import Document  # noqa: TC001 - typer reads the annotations
from assay.cli.verb import ConfigDir, Overrides, check_ending, save_plot, show_loading
from assay.errors import ConfigError
from assay.quoting import command
from assay.terminal import Console, print_lines


def check(
    document: Document,
    overrides: Overrides = None,
    *,
    multirun: Annotated[bool, typer.Option("--multirun", "-m", help="Check every job of a sweep.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the learning rate into an image.")
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Prove that an experiment, or a sweep, can run."""
    typed = overrides or []
    from assay.check.checker import Checker

    checker = Checker(config_dir, curve=plot is not None or not document.as_json)
    job = None if multirun else checker.single_job(typed)
    if plot is not None and job is None:
        raise ConfigError("this draws the learning rate of a single job", key="--plot", hint="leave out -m")
    check_ending("--plot", plot, ".png", ".svg", ".pdf")
    if job is None:
        from assay.sweep.session import check_sweep

        reports = check_sweep(typed, config_dir)
        from assay.check.report import show_sweep

        document.say("check_sweep", {"jobs": reports})
        show_sweep(document.console, reports)
        return
    with show_loading():
        import assay.check.prove  # noqa: F401 - torch and Lightning, which take seconds
        from assay.check.report import draw_curve, show_job

    report = checker.report(job)
    document.say("check", report)
    show_job(document.console, report)
    if plot is not None:
        save_plot(draw_curve(report), plot)


def data(
    document: Document,
    overrides: Overrides = None,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page with samples, too.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Read all of a stream, not a sample of it.")] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Look at the data of an experiment before it is trained."""
    typed = overrides or []
    check_ending("--out", out, ".html")
    with show_loading():
        from assay.check.checker import Checker

        job = Checker(config_dir).job(typed)
        from assay.report.data_page import print_survey, survey_job
    survey = survey_job(job, out, full=full)
    document.say("data", survey)
    document.next = [command("train", *job.overrides, config_dir=config_dir)]
    if not document.as_json:
        print_survey(Console(highlight=False), survey)
    page = str(out or "--out data.html writes one, with samples")
    print_lines(document.console, [("page", page), ("next", document.next[0])], 5)


def configs(
    document: Document,
    group: Annotated[str, typer.Argument(metavar="GROUP", hidden=True)] = "",
    config_dir: ConfigDir = None,
) -> None:
    """The options of every group, or of one, in a line each."""
    from assay.compose.listing import options_of, print_options

    options = options_of(group, config_dir)
    document.say("configs", {"options": options})
    if not document.as_json:
        print_options(options)


def explain(
    document: Document,
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, a node, or a group.")],
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Where a value comes from: who set it, and what that overrode."""
    from assay.compose import origin

    explanation = origin.explain(key, overrides or [], config_dir)
    document.say("explain", explanation)
    origin.print_explanation(document.console, explanation)


def diff(
    document: Document,
    first: Annotated[str, typer.Argument(metavar="A", help="A run directory, a YAML file, or overrides.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another; '' is the default config.")],
    config_dir: ConfigDir = None,
) -> None:
    """What differs between runs, config files or quoted overrides.

    Where a run writes to does not count. The exit code is 0 whether they differ or not.
    """
    from assay.report.difference import difference, print_difference

    differences = difference(first, second, config_dir)
    document.say("diff", differences)
    if not document.as_json:
        print_difference(differences)


def info(document: Document) -> None:
    """What this machine has, and what device=auto would choose."""
    from assay.report.info import machine

    sections = machine()
    document.say("info", {name.removeprefix("device="): rows for name, rows in sections.items()})
    console = document.console
    for section, rows in sections.items():
        console.print(f"[bold]{section}[/bold]")
        for name, value in rows.items():
            console.print(f"  {name:<14} {value}", markup=False)
