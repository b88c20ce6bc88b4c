"""Shared by all verbs: arguments, and errors as one message with an exit code."""

from __future__ import annotations

import functools
import inspect
import json
import os
import sys
import textwrap
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, TextIO, final

import typer

from assay.errors import AssayError, ConfigError, describe_error
from assay.paths import CONF_DIR
from assay.process import Stopped, raise_on_signals
from assay.quoting import quote_letters
from assay.record.run_record import exit_code_of, stop_reason, to_json_numbers
from assay.record.secrets import redact, redact_tree, remember_secrets
from assay.rooms import name_source
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


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


SCHEMA_VERSION = 1
"""Of every document. It rises when a field goes or comes to mean something else, not when one is added."""


@final
@dataclass(frozen=True)
class Problem:
    """Why a command did not do what it was asked to.

    Attributes:
        message: One or two sentences, as on standard error.
        key: Full config key of the value at fault, such as `optimizer.lr`; empty where it is none.
        file: Where that value was written: a YAML file, or `command line`; empty where unknown.
        line: In that file; null where unknown.
        hint: What to type or do next; may be empty.
        code: The exit code of the command.
    """

    message: str
    key: str = ""
    file: str = ""
    line: int | None = None
    hint: str = ""
    code: int = 1

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """The problem that an exception describes."""
        if isinstance(error, typer.Exit):
            problem = cls(f"the exit code is {error.exit_code}")
            if error.__cause__:
                problem = cls.of(error.__cause__)
            return replace(problem, code=error.exit_code)
        if isinstance(error, AssayError):
            if isinstance(error, ConfigError):
                key, file = (error.key, error.file)
            else:
                key, file = ("", "")
            name, _, line = file.rpartition(":")
            if not line.isdecimal():
                name = file
                line = ""
            hint = redact(error.hint)
            return cls(
                redact(error.message),
                key,
                name,
                int(line) if line else None,
                hint,
                error.exit_code,
            )
        # the latter is Ctrl-C or Ctrl-D as an answer
        if isinstance(error, KeyboardInterrupt | typer.Abort):
            name = "SIGINT"
            if isinstance(error, Stopped):
                name = error.name
            return cls(stop_reason(name), code=exit_code_of(name))
        hint = "the same command with --debug shows where this came from"
        return cls(redact(describe_error(error)), hint=hint)


@final
@dataclass
class Document:
    """What a verb prints under `--json`, gathered until its end."""

    as_json: bool = False
    debug: bool = False
    body: dict[str, Any] = field(default_factory=dict)
    error: Problem | None = None
    next: Sequence[str] = ()
    is_silent: bool = False
    """Whether another process prints it."""

    @property
    def console(self) -> Console:
        """Where a verb prints for people; under `--json` nothing is printed."""
        return Console(highlight=False, soft_wrap=True, quiet=self.as_json)

    def say(self, kind: str, value: Any) -> None:
        """Set what is printed at the end; without `--json` it is ignored."""
        self.body = {"kind": kind, "schema_version": SCHEMA_VERSION, **to_plain(value)}

    def fail(self, message: str, *, hint: str = "", code: int = 1) -> None:
        """Set the reason of a nonzero exit code although there is a result."""
        self.error = Problem(redact(message), hint=redact(hint), code=code)

    def to_json(self) -> str:
        """One line of ASCII, so that no untrusted control character reaches a terminal."""
        document = self.body or {"kind": "error", "schema_version": SCHEMA_VERSION}
        if self.next:
            document = {**document, "next": to_plain(self.next)}
        if self.error is not None:
            document = {**document, "error": to_plain(self.error)}
        text = json.dumps(to_json_numbers(redact_tree(document)), allow_nan=False)
        return text.replace("\x7f", "\\u007f")


@contextmanager
def print_document(as_json: bool, debug: bool = False) -> Iterator[Document]:
    """Point standard output at standard error in this block, and print one document where it ends."""
    document = Document(as_json, debug)
    if not as_json:
        yield document
        return
    stream = sys.stdout
    try:
        with _stdout_on_stderr(stream):
            try:
                yield document
            except BaseException as error:
                if not isinstance(error, typer.Exit) or error.exit_code:
                    document.error = document.error or Problem.of(error)
                raise
    finally:
        if not document.is_silent:
            _print(stream, document.to_json())


def print_problem(words: list[str], problem: Problem) -> None:
    """Print what keeps a verb from beginning, such as a command line that it does not take."""
    if "--json" in words[: words.index("--") if "--" in words else None]:
        _print(sys.stdout, Document(error=problem).to_json())


def to_plain(value: Any) -> Any:
    """Convert a value to JSON's types."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: to_plain(getattr(value, item.name)) for item in fields(value) if item.repr
        }
    if hasattr(value, "items"):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, list | tuple):
        return [to_plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # arrays and scalars of numpy
        return to_plain(value.tolist())
    raise TypeError(f"a document cannot hold {type(value).__name__}")


@contextmanager
def _stdout_on_stderr(stream: TextIO | None) -> Iterator[None]:
    if stream is None:
        raise AssayError("standard output is closed, but --json prints to it")
    stream.flush()
    duplicate = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
        stream.flush()
    finally:
        os.dup2(duplicate, 1)
        os.close(duplicate)


def _print(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        try:
            descriptor = stream.fileno()
        except (OSError, ValueError):  # not a file: the output of a test
            stream.write(f"{text}\n")
            return
        # Not through the stream, which would try once more at the end of the process.
        with open(descriptor, "w", encoding="ascii", closefd=False) as file:
            file.write(f"{text}\n")
    except BrokenPipeError:
        raise
    except OSError as error:
        raise AssayError(f"standard output cannot be written: {error.strerror}") from error
