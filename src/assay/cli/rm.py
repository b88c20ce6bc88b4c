"""Removing runs: `assay rm`."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from assay.cli.documents import Document  # noqa: TC001 - typer reads the annotations
from assay.errors import AssayError
from assay.terminal import single_line


def rm(
    document: Document,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove runs for good; asks first, never one that runs."""
    from assay.record.run_directory import check_removable, remove_run

    directories = [check_removable(run) for run in runs]
    for directory in directories:
        in_sweep = (directory.parent / "journal.jsonl").is_file()
        note = "  (a job of a sweep, whose journal still counts it)" if in_sweep else ""
        typer.echo(single_line(f"{directory}{note}"), err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise AssayError(
                "cannot ask for confirmation: standard input is not a terminal", hint="assay rm --yes RUN"
            )
        if not typer.confirm(
            f"Remove {len(directories)} run{'s' * (len(directories) > 1)} for good?", err=True
        ):
            raise AssayError("nothing was removed")
    for directory in directories:
        remove_run(directory)
    document.say("rm", {"runs": directories})
