"""Checking before training: `assay check`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from assay.cli.verb import (
    ConfigDir,
    Document,
    Overrides,
    check_ending,
    save_plot,
    show_loading,
)
from assay.errors import ConfigError
from assay.rooms import entries, entry


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
