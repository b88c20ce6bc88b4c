"""The `assay` command. Importing this module imports no torch."""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from assay.cli.train import resume, train
from assay.cli.verb import Problem, overrides_help, print_problem, verb
from assay.errors import describe_error
from assay.process import COLLECT
from assay.rooms import ROOMS, entries, entry
from assay.terminal import make_printable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

_START = """\b
Start with:
  assay train                        handwritten digits and a small network
  assay train data=wine model=mlp    other options of two groups
  assay configs                      every group and its options
  assay train --help                 how to write overrides
"""

Verbs = Mapping[str, Mapping[str, Callable[..., None]]]
"""Verbs by the title they stand under in `assay --help`, and by their name."""
_TITLES = ("Train", "Look", "Compare", "Use", "Project")
VERBS: Verbs = {
    "Train": {"train": train, "resume": resume},
}


def _gather_verbs() -> dict[str, dict[str, Callable[..., None]]]:
    gathered: dict[str, dict[str, Callable[..., None]]] = {title: {} for title in _TITLES}
    added: list[Verbs] = entries("verbs")
    for verbs in (VERBS, *added):
        for title, named in verbs.items():
            usable = {name: one for name, one in named.items() if _is_command(name, one)}
            gathered.setdefault(title, {}).update(usable)
    return {title: named for title, named in gathered.items() if named}


def _is_command(name: str, function: Callable[..., None]) -> bool:
    """Whether a verb can be a command; of one that another package adds, a warning says why not."""
    if function.__module__.partition(".")[0] in ("assay", *ROOMS):
        return True
    alone = typer.Typer()
    try:
        alone.command(name)(verb(function))
        typer.main.get_command(alone)
    except Exception as error:  # whatever the annotations of others raise
        where = f"{function.__module__} adds no verb {name}"
        sys.stderr.write(printable(f"warning: {where}: {describe_error(error)}\n"))
        return False
    return True


_GROUPS = _gather_verbs()


@final
class _Verbs(TyperGroup):
    """The verbs; a command line that cannot be parsed is reported as JSON if requested."""

    @override
    def main(self, args: Any = None, *rest: Any, **more: Any) -> Any:
        words = args
        if args is None:
            words = sys.argv[1:]
        self._words = list(words)
        return super().main(args, *rest, **more)

    @override
    def make_context(self, *arguments: Any, **more: Any) -> Any:
        with self._report_refusal():
            return super().make_context(*arguments, **more)

    @override
    def invoke(self, ctx: Any) -> Any:
        with self._report_refusal():
            return super().invoke(ctx)

    @override
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, verbs in _GROUPS.items():
            with formatter.section(title):
                helps = {
                    name: str(verb.__doc__).partition("\n")[0] for name, verb in verbs.items()
                }
                formatter.write_dl([(f"{name:9}", text) for name, text in helps.items()])

    @contextmanager
    def _report_refusal(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # typer names only kinds of click's errors; every verb tells its own ones itself.
            if hasattr(error, "format_message"):
                print_problem(
                    self._words, Problem(error.format_message(), hint="assay --help", code=2)
                )
            raise


app = typer.Typer(
    name="assay",
    cls=_Verbs,
    help="Compose a PyTorch experiment from config, run it and reproduce it.",
    epilog=_START,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        from assay.record.provenance import assay_commit

        commit = assay_commit() or "unknown: neither a checkout nor built in one"
        typer.echo(f"assay {importlib.metadata.version('assay')} (commit {commit})")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print version and commit."
        ),
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _named in _GROUPS.values():
    for _name, _verb in _named.items():
        _takes_overrides = (
            "overrides" in inspect.signature(_verb).parameters and _name != "explain"
        )
        _epilog = None
        if _takes_overrides:
            _epilog = overrides_help()
        app.command(_name, epilog=_epilog)(verb(_verb))


def main() -> None:
    """Entry point of the `assay` command."""
    gc.set_threshold(*COLLECT)  # else a seventh of the time to the first step goes there
    make_printable()
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        complete = entry("completion", "-sc", "completion in the shell")
        shell = "install=bash"
        if len(arguments) > 1:
            shell = arguments[1]
        complete(shell, _flags())
        return
    try:
        app()
    finally:
        # All output is written: a Ctrl-C from here on ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _flags() -> dict[str, list[str]]:
    group = typer.main.get_group(app)
    return {
        name: [
            flag
            for parameter in command.params
            for flag in parameter.opts
            if flag.startswith("-")
        ]
        for name, command in group.commands.items()
    }
