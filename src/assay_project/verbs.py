"""A custom project: `assay new`, `assay add` and `assay schema`; another one: `assay convert`."""

from __future__ import annotations

import shlex
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.cli.verb import Document, show_loading
from assay.errors import AssayError
from assay.quoting import command
from assay.terminal import print_lines, print_rows

if TYPE_CHECKING:
    from collections.abc import Iterable


def new(
    document: Document,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the folder and of the package.")
    ],
    *,
    kind: Annotated[
        Literal["image", "table", "text", "blank"],
        typer.Option(metavar="image|table|text|blank", help="Kind of data to learn from."),
    ] = "image",
) -> None:
    """Start a project: a package, configs and a test, ready to train."""
    from assay_project.new import create_project

    path, notes = create_project(name, kind)
    files = sorted(
        str(file.relative_to(path))
        for file in path.rglob("*")
        if file.is_file() and ".git" not in file.parts
    )
    document.say("new", {"project": path, "files": files, "notes": notes})
    document.next = [
        f"cd {shlex.quote(str(path))}",
        "uv run assay train experiment=first",
        "uv run pytest",
        "uv run assay schema",
    ]
    _print(document, new=[f"{path}/{file}" for file in files], note=notes)


def add(
    document: Document,
    kind: Annotated[
        Literal[
            "model",
            "loss",
            "data",
            "task",
            "metric",
            "callback",
            "optimizer",
            "scheduler",
            "augment",
        ],
        typer.Argument(metavar="KIND", help="Kind of component, such as model: see above."),
    ],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the option, in lower case: my_loss.")
    ],
) -> None:
    """Add a component to this project: its class, option and test.

    KIND is model, loss, data, task, metric, callback, optimizer, scheduler or augment.
    """
    from assay_project.new import GROUPS, SCHEMAS, add_component

    files = add_component(kind, name, Path())
    group = GROUPS[kind]
    option = f"{group}={name}"
    if group == "callbacks":
        option = f"{group}=[default,{name}]"
    document.say("add", {"option": option, "files": files})
    document.next = [command("check", option), f"uv run pytest {files[-1]}"]
    if Path(SCHEMAS).is_dir():
        document.next = [*document.next, "assay schema"]
    note = f"{files[0]} holds an example that works; replace it by what you need"
    _print(document, add=map(str, files), note=[note])


def schema(document: Document) -> None:
    """Write JSON Schemas of all config groups, for editors.

    They describe assay's options and those of the project in this folder; write them again after a change of
    your classes.
    """
    with show_loading():
        from assay_project.schema import write_schemas

    written = write_schemas(Path())
    document.say("schema", written)
    wrote = f"{written.folder}: {len(written.files)} schemas, used by {written.settings}"
    _print(document, wrote=[wrote], note=written.notes)


def convert(
    document: Document,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH", help="A project, its folder of configs, or a config.yaml."
        ),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="To write.  [default: PROJECT_assay]")
    ] = None,
) -> None:
    """Convert the configs of lightning-hydra-template or LightningCLI.

    They become those of a new project of assay, in a new folder with a copy of the packages that they name.
    Nothing of the old project is run.
    """
    from assay_project.convert import convert as convert_configs

    converted = convert_configs(path, out)
    document.say("convert", converted)
    folder = shlex.quote(str(converted.folder))
    checks = [command("check", f"experiment={name}") for name in converted.experiments[:1]]
    document.next = [f"cd {folder} && {check}" for check in checks]
    console = document.console
    print_rows(console, [(name, f"→ {becomes}") for name, becomes in converted.mapped.items()])
    for name, doubts in converted.unsure.items():
        print_lines(
            console, [(f"unsure {name}", f"{what}: {hint}") for what, hint in doubts.items()]
        )
    if not converted.experiments:
        raise AssayError(
            "no experiment chooses a module and data that can be converted; nothing was written",
            hint="name the classes in the configs; see docs/convert.md",
        )
    print_lines(console, [("wrote", str(converted.folder)), ("next", document.next[0])])


def _print(document: Document, **lines: Iterable[str]) -> None:
    for label, texts in {**lines, "next": document.next}.items():
        print_lines(document.console, zip(chain([label], repeat("")), texts, strict=False), 5)


VERBS = {"Project": {"new": new, "add": add, "schema": schema, "convert": convert}}
