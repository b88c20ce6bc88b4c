"""An error as the command line tells it: one message, what to type, an exit code."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from assay.cli.documents import printed_document
from assay.errors import AssayError, ConfigError, exit_place, one_line_of
from assay.process.stop_signals import Stopped, stopped_by_signals
from assay.record.outcome import exit_code_of
from assay.record.secrets import note_given, redact
from assay.terminal import Console

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from assay.cli.documents import Document


@contextmanager
def reported(
    debug: bool,
    overrides: list[str] | None = None,
    config_dir: Path | None = None,
    *,
    as_json: bool = False,
) -> Iterator[Document]:
    """Turn an error into one message and an exit code; with `debug`, let it through.

    Args:
        debug: Let it through.
        overrides: What is wrong with a job composed from these is told with the file and line of its key.
        config_dir: The user's folder of config groups.
        as_json: Print one JSON document on standard output, and everything else on standard error.

    Returns:
        The document; the verb has it say what came of it.

    Raises:
        typer.Exit: With the exit code, where there was an error.
    """
    note_given(overrides or [])
    with _told(debug), printed_document(as_json) as document, stopped_by_signals(), _interrupts_kept():
        try:
            yield document
        except ConfigError as error:
            if overrides is not None:
                from assay.compose.origin import locate

                locate(error, overrides, config_dir)
            raise


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    """Raise Ctrl-C anew where a library that cleans up after it, as OmegaConf does, fails in its place."""
    try:
        yield
    except Exception as error:
        errors: list[BaseException | None] = [error]
        for one in errors:
            if isinstance(one, KeyboardInterrupt):
                raise one from None
            if one is not None:
                errors += [one.__cause__, one.__context__]
        raise


@contextmanager
def _told(debug: bool) -> Iterator[None]:
    try:
        yield
    except AssayError as error:
        if debug:
            raise
        _say_error(error)
        raise typer.Exit(error.exit_code) from error
    except typer.Exit:
        raise
    except typer.Abort as error:  # Ctrl-C or Ctrl-D as an answer
        raise typer.Exit(exit_code_of("SIGINT")) from error
    except KeyboardInterrupt as error:
        name = error.name if isinstance(error, Stopped) else "SIGINT"
        raise typer.Exit(exit_code_of(name)) from error
    except SystemExit as stop:  # code of the user's own, such as the constructor of a model
        if debug or isinstance(stop.__context__, BrokenPipeError):
            raise
        _say_error(AssayError(exit_place(stop), hint="raise an exception that says what is wrong"))
        raise typer.Exit(1) from stop
    except BrokenPipeError:
        raise  # the reader has gone, as in `assay configs | head`; see main()
    except Exception as error:
        if debug:
            raise
        _say_error(
            AssayError(one_line_of(error), hint="the same command with --debug shows where this came from")
        )
        raise typer.Exit(1) from error


def _say_error(error: AssayError) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(redact(error.message), markup=False)
    if error.hint:
        console.print(f"  → {redact(error.hint)}", markup=False, style="cyan")
