"""A custom project: `assay new`, `assay add` and `assay schema`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from assay.cli.documents import Document  # noqa: TC001 - typer reads the annotations
from assay.cli.verb import print_lines, show_loading
from assay.terminal import Console


def new(
    document: Document,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the folder and the package.")],
    *,
    kind: Annotated[
        Literal["image", "table", "text", "blank"],
        typer.Option(
            "--kind", metavar="image|table|text|blank", help="What is learned from; blank: no model."
        ),
    ] = "image",
) -> None:
    """Start a project: a package, options, an experiment and a test, ready to train."""
    from assay.project.new import create_project

    path, notes = create_project(name, kind)
    files = sorted(
        str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and ".git" not in file.parts
    )
    document.say("new", {"project": path, "files": files, "notes": notes})
    document.next = [
        f"cd {path}",
        "uv run assay train experiment=first",
        "uv run pytest",
        "uv run assay schema",
    ]
    if not document.as_json:
        lines = [
            ("new", f"{path}/{file}") if not index else ("", f"{path}/{file}")
            for index, file in enumerate(files)
        ]
        lines += [("note", note) for note in notes]
        lines += [("next" if not index else "", line) for index, line in enumerate(document.next)]
        print_lines(Console(highlight=False, soft_wrap=True), lines, 5)


def add(
    document: Document,
    kind: Annotated[
        Literal["model", "loss", "data", "task", "metric", "callback", "optimizer", "scheduler", "augment"],
        typer.Argument(
            metavar="KIND", help="model, loss, data, task, metric, callback, optimizer, scheduler or augment."
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the option, in lower case: my_loss.")],
) -> None:
    """Add a component to the project in this folder: its class, its option and its test."""
    from assay.project.new import GROUPS, SCHEMAS, add_component

    files = add_component(kind, name, Path())
    group = GROUPS[kind]
    option = f"{group}=[default,{name}]" if group == "callbacks" else f"{group}={name}"
    document.say("add", {"option": option, "files": files})
    document.next = [f"assay check {option}", f"pytest {files[-1]}"]
    if Path(SCHEMAS).is_dir():
        document.next = [*document.next, "assay schema"]
    if not document.as_json:
        lines = [("add" if not index else "", str(file)) for index, file in enumerate(files)]
        lines += [("next" if not index else "", line) for index, line in enumerate(document.next)]
        print_lines(Console(highlight=False, soft_wrap=True), lines, 5)


def schema(document: Document) -> None:
    """Write JSON Schemas of all config groups, by which editors complete and check YAML.

    They describe assay's options and those of the project in this folder; write them again after a change of
    your classes.
    """
    with show_loading():
        from assay.project.schema import write_schemas

    written = write_schemas(Path())
    document.say("schema", written)
    if not document.as_json:
        lines = [
            ("wrote", f"{written.folder}: {len(written.files)} schemas"),
            ("used", f"by {written.settings}"),
        ]
        print_lines(
            Console(highlight=False, soft_wrap=True), [*lines, *(("note", one) for one in written.notes)], 5
        )
