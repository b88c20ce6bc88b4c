"""The `assay` command. Importing this module imports no torch."""

from __future__ import annotations

import gc
import signal
import sys
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from assay.cli.documents import Problem, print_problem
from assay.cli.inspect import check, configs, data, diff, explain, info
from assay.cli.measure import cache, profile, tune
from assay.cli.project import add, convert, new, schema
from assay.cli.results import best, compare, ls, report, rm
from assay.cli.train import reproduce, resume, train, try_change
from assay.cli.use import evaluate, export, predict
from assay.cli.verb import overrides_help, verb
from assay.process import COLLECT
from assay.terminal import make_printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_START = """\b
Start with:
  assay train                        handwritten digits and a small network
  assay train data=wine model=mlp    other options of two groups
  assay configs                      every group and its options
  assay train --help                 how to write overrides
"""

_GROUPS: dict[str, Sequence[Callable[..., None]]] = {
    "Train": (train, try_change, resume, reproduce),
    "Look": (check, data, configs, explain, profile, tune, info, cache),
    "Compare": (ls, compare, best, report, diff, rm),
    "Use": (evaluate, predict, export),
    "Project": (new, add, schema, convert),
}
_COMPOSING = (train, try_change, check, data, profile, tune)
"""They take overrides of a whole config."""


def _name_of(function: Callable[..., None]) -> str:
    return {evaluate: "eval", try_change: "try"}.get(function, function.__name__)


@final
class _Verbs(TyperGroup):
    """The verbs; a command line that cannot be parsed is reported as JSON if requested."""

    @override
    def main(self, args: Any = None, *rest: Any, **more: Any) -> Any:
        self._words = list(sys.argv[1:] if args is None else args)
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
                helps = {_name_of(verb): str(verb.__doc__).partition("\n")[0] for verb in verbs}
                formatter.write_dl([(f"{name:9}", text) for name, text in helps.items()])

    @contextmanager
    def _report_refusal(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # typer names only kinds of click's errors; every verb tells its own ones itself.
            if hasattr(error, "format_message"):
                print_problem(self._words, Problem(error.format_message(), hint="assay --help", code=2))
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
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print version and commit.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for _verb in chain.from_iterable(_GROUPS.values()):
    _epilog = overrides_help() if _verb in _COMPOSING else None
    app.command(_name_of(_verb), epilog=_epilog)(verb(_verb))


def main() -> None:
    """Entry point of the `assay` command."""
    gc.set_threshold(*COLLECT)  # else a seventh of the time to the first step goes there
    make_printable()
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        from assay.compose.listing import shell_completion

        shell_completion(arguments[1] if len(arguments) > 1 else "install=bash", _flags())
        return
    try:
        app()
    finally:
        # All output is written: a Ctrl-C from here on ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _flags() -> dict[str, list[str]]:
    group = typer.main.get_group(app)
    return {
        name: [flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")]
        for name, command in group.commands.items()
    }
