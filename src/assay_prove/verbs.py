"""Checking before training: `assay check`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.verb import ConfigDir, Document, Overrides, show_loading
from assay.errors import ConfigError, explain_write_errors
from assay.rooms import entries, entry

if TYPE_CHECKING:
    from assay.figure import Figure


def check(
    document: Document,
    overrides: Overrides = None,
    *,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="Check every job of a sweep.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the learning rate to an image file.")
    ] = None,
    config_dir: ConfigDir = None,
) -> None:
    """Prove that an experiment, or a sweep, can run."""
    typed = overrides or []
    from assay.check.checker import Checker

    checker = Checker(config_dir, curve=plot is not None or not document.as_json)
    if multirun:
        job = None
    else:
        job = checker.single_job(typed)
    if plot is not None and job is None:
        raise ConfigError(
            "this draws the learning rate of a single job", key="--plot", hint="leave out -m"
        )
    check_ending("--plot", plot, ".png", ".svg", ".pdf")
    if job is None:
        entry("multirun", "--multirun", "a sweep").check(document, typed, config_dir)
        return
    with show_loading():
        from assay_prove.show import draw_curve, show_job

        entries("prove")  # torch and Lightning, which take seconds

    report = checker.report(job)
    document.say("check", report)
    show_job(document.console, report)
    if plot is not None:
        save_plot(draw_curve(report), plot)


VERBS = {"Look": {"check": check}}


def save_plot(figure: Figure, path: Path) -> None:
    """Draw a figure into the file of `--plot`."""
    from assay.files.atomic import write_bytes

    draw = entry("draw", "--plot", "a picture")
    image = draw(figure, path.suffix.lstrip("."))
    with explain_write_errors(path, "--plot FILE writes it somewhere else"):
        write_bytes(path, image)


def check_ending(option: str, path: Path | None, *endings: str) -> None:
    """Refuse an output file whose name says another format."""
    if path is not None and path.suffix.lower() not in endings:
        raise ConfigError(
            f"expected a name that ends in {', '.join(endings)}, got {path.name}",
            key=option,
            hint=f"{option} {path.with_suffix(endings[0])}",
        )
