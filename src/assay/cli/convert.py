"""From another project: `assay convert`."""

from __future__ import annotations

import shlex
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated

import typer

from assay.cli.documents import Document  # noqa: TC001 - typer reads the annotations
from assay.cli.verb import print_lines
from assay.errors import AssayError
from assay.terminal import Console, print_rows


def convert(
    document: Document,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A project, its folder of configs, or a config.yaml.")
    ],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="To write.  [default: PROJECT_assay]"),
    ] = None,
) -> None:
    """Convert the configs of lightning-hydra-template or LightningCLI.

    They become those of a new project of assay, in a new folder with a copy of the packages that they name.
    Nothing of the old project is run.
    """
    from assay.compose.convert import convert as convert_configs

    converted = convert_configs(path, out)
    document.say("convert", converted)
    folder = shlex.quote(str(converted.folder))
    document.next = [f"cd {folder} && assay check experiment={name}" for name in converted.experiments[:1]]
    console = Console(highlight=False, soft_wrap=True, quiet=document.as_json)
    print_rows(console, [(name, f"→ {becomes}") for name, becomes in converted.mapped.items()])
    for name, doubts in converted.unsure.items():
        print_lines(console, [(f"unsure {name}", f"{what}: {hint}") for what, hint in doubts.items()])
    if not converted.experiments:
        raise AssayError(
            "no experiment chooses a module and data that can be taken over; nothing was written",
            hint="name the classes in the configs; see docs/convert.md",
        )
    print_lines(console, [("wrote", str(converted.folder)), ("next", document.next[0])])
