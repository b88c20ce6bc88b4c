"""Looking at results: `assay report`."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from assay.cli.arguments import Debug, Json  # noqa: TC001 - typer reads the annotations
from assay.cli.error_report import reported
from assay.terminal import Console


def report(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH…", help="A run, a sweep, or any folders that hold runs.")
    ],
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The page.  [default: PATH/report.html]")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="DIR", help="Write each figure as a picture, too.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="DIR", help="Write the numbers of each figure, too.")
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write one HTML page about a run, a sweep or several runs.

    It opens offline.
    """
    with reported(debug, as_json=as_json) as document:
        from assay.report.report import report as write_report
        from assay.run.summary import labelled, predicting

        written = write_report(paths, out, png, csv)
        document.say("report", written)
        console = Console(highlight=False, soft_wrap=True)
        size = written.page.stat().st_size / 1e6
        lines = [("page", f"{written.page}  ({len(written.figures)} figures, {size:.1f} MB)")]
        lines += [("png", f"{len(written.pictures)} pictures in {png}")] if png else []
        lines += [("csv", f"{len(written.tables)} tables in {csv}")] if csv else []
        run, above = shlex.quote(str(paths[0])), shlex.quote(str(paths[0].parent))
        if written.of == "run":
            commands = [*predicting(paths[0]), f"assay compare {above}"]
        else:
            commands = [f"assay compare {shlex.join(map(str, paths))}", f"assay best {run}"]
        lines += labelled(commands)
        for name, text in lines:
            console.print(f"[bold]{name:<6}[/bold]", end="")
            console.print(text, markup=False)
        if show:
            import webbrowser

            if not webbrowser.open(written.page.resolve().as_uri()):
                console.print("note  no browser could be opened; open the page by hand")
