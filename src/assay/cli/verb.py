"""Shared by all verbs: arguments, and errors as one message with an exit code."""

from __future__ import annotations

import functools
import inspect
import sys
import textwrap
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal

import typer

from assay.cli.documents import Problem, print_document
from assay.errors import ConfigError, explain_write_errors
from assay.paths import CONF_DIR
from assay.process import raise_on_signals
from assay.quoting import quote_letters
from assay.record.secrets import remember_secrets
from assay.rooms import entry, name_source
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from assay.cli.documents import Document
    from assay.figure import Figure


_OVERRIDES = """\b
Overrides, in Hydra's grammar:
  data=wine model=mlp       an option of a group; see `assay configs data`
  optimizer.lr=0.01         a value; `assay train --cfg` shows every key
  callbacks=[default,ema]   several options (callbacks and logger)
  +model.new=1              a new key;  ~scheduler leaves one out

\b
Groups:
{groups}

\b
Examples:
  assay train data=breast_cancer optimizer=sgd optimizer.lr=0.1
  assay train experiment=digits_longtail device=gpu precision=bf16
  assay train -m optimizer=sgd,adamw seed=1,2,3
"""

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="GROUP=OPTION|KEY=VALUE",
        hidden=True,
        callback=lambda words: words and [quote_letters(word) for word in words],
    ),
]
ConfigDir = Annotated[
    Path | None,
    typer.Option(
        "--config-dir",
        "-cd",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Folder of custom config groups, beside ./conf.",
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Checkpoint = Annotated[Literal["best", "last"], typer.Option(help="Which weights.")]
_Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document on stdout, everything else on stderr."),
]
_Debug = Annotated[
    bool,
    typer.Option("--debug", envvar="HYDRA_FULL_ERROR", help="Show the traceback of an error."),
]


def overrides_help() -> str:
    """How overrides are written, and the names of the groups: wrapped by hand, because the lines are kept."""
    names = sorted({path.parent.name for path in CONF_DIR.glob("*/*.yaml")})
    groups = textwrap.fill("  ".join(names), 76, initial_indent="  ", subsequent_indent="  ")
    return _OVERRIDES.format(groups=groups)


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
        expected = f"expected a name that ends in {', '.join(endings)}, got {path.name}"
        raise ConfigError(expected, key=option, hint=f"{option} {path.with_suffix(endings[0])}")


@contextmanager
def show_loading() -> Iterator[None]:
    """Show on a terminal that torch is being loaded."""
    with (
        Console(stderr=True).status("loading torch and Lightning")
        if sys.stderr.isatty()
        else nullcontext()
    ):
        yield


def verb(function: Callable[Concatenate[Document, ...], None]) -> Callable[..., None]:
    """Turn a function into a command with --json and --debug, and one message per error."""
    _, *declared = inspect.signature(function, eval_str=True).parameters.values()
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in (("as_json", _Json), ("debug", _Debug))
    ]

    @functools.wraps(function)
    def run(*, as_json: bool, debug: bool, **arguments: Any) -> None:
        as_json = as_json or arguments.get("form") == "json"
        if "overrides" in arguments:
            typed = arguments["overrides"] or []
        else:
            typed = None
        with report_errors(
            debug, typed, arguments.get("config_dir"), as_json=as_json
        ) as document:
            function(document, **arguments)

    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in declared
    ]
    setattr(run, "__signature__", inspect.Signature([*parameters, *more]))  # noqa: B010 - mypy
    return run


@contextmanager
def report_errors(
    debug: bool,
    overrides: list[str] | None = None,
    config_dir: Path | None = None,
    *,
    as_json: bool = False,
) -> Iterator[Document]:
    """Turn an error into one message and an exit code; with `debug`, let it through."""
    remember_secrets(overrides or [])
    with (
        _print_error(debug),
        print_document(as_json, debug) as document,
        raise_on_signals(),
        _keep_ctrl_c(),
        name_source(overrides, config_dir) if overrides is not None else nullcontext(),
    ):
        yield document


@contextmanager
def _keep_ctrl_c() -> Iterator[None]:
    """Raise Ctrl-C anew where a library that cleans up after it, as OmegaConf does, fails in its place."""
    try:
        yield
    except Exception as error:
        errors: list[BaseException | None] = [error]
        for cause in errors:
            if isinstance(cause, KeyboardInterrupt):
                raise cause from None
            if cause is not None:
                errors += [cause.__cause__, cause.__context__]
        raise


@contextmanager
def _print_error(debug: bool) -> Iterator[None]:
    try:
        yield
    except (
        typer.Exit,
        BrokenPipeError,
    ):  # of the latter the reader has gone, as in `assay configs | head`
        raise
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | typer.Abort)
        if (debug and not interrupted) or isinstance(error.__context__, BrokenPipeError):
            raise
        problem = Problem.of(error)
        if not interrupted:
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            console.print("error:", style="bold red", end=" ")
            console.print(problem.message, markup=False)
            if problem.hint:
                console.print(f"  → {problem.hint}", markup=False, style="cyan")
        raise typer.Exit(problem.code) from error
