"""The verbs of the command line. Importing this module imports no torch."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.run import RunResult

app = typer.Typer(
    name="assay",
    help="Compose a PyTorch experiment from config, run it, and get it back.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[OVERRIDES]...",
        help="GROUP=OPTION and KEY=VALUE, in Hydra's grammar: optimizer=sgd optimizer.lr=0.1 +new.key=1",
        show_default=False,
    ),
]
ConfigDir = Annotated[
    Path | None, typer.Option("--config-dir", "-cd", help="Your own folder of config groups.", show_default="./conf")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def train(
    overrides: Overrides = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="One job for every combination of comma-separated values.")
    ] = False,
    cfg: Annotated[bool, typer.Option("--cfg", "-c", help="Print the composed config and stop.")] = False,
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """Train, test and record one experiment, or a sweep of them.

    [dim]assay train data=wine model=mlp optimizer.lr=0.01[/dim]

    [dim]assay train -m optimizer=sgd,adamw seed=1,2,3[/dim]
    """
    with _reported(debug):
        if cfg:
            _print_config(overrides or [], config_dir)
            return
        from assay.config.compose import compose, compose_sweep

        # A mistyped word is answered before torch is imported.
        if multirun:
            compose_sweep(overrides or [], config_dir)
            from assay.multirun import multirun as run_all

            results = run_all(overrides or [], config_dir)
        else:
            compose(overrides or [], config_dir)
            from assay.run import train as run_one

            results = [run_one(overrides or [], config_dir=config_dir, raise_errors=debug)]
        _say_results(results, sweep=multirun)
    code = max((result.exit_code for result in results), default=0)
    if code:
        raise typer.Exit(code)


@app.command()
def info(debug: Debug = False) -> None:
    """What this machine has, and what device=auto would choose."""
    with _reported(debug):
        from assay.info import machine

        console = Console(highlight=False, soft_wrap=True)
        for section, rows in machine().items():
            console.print(f"[bold]{section}[/bold]")
            for name, value in rows.items():
                console.print(f"  {name:<14} {value}", markup=False)


@app.command()
def configs(
    group: Annotated[str, typer.Argument(help="Only this group.", show_default=False)] = "",
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """Every option of every group, with its one-line description."""
    with _reported(debug):
        from assay.config.listing import show

        show(group, config_dir)


def _print_config(overrides: list[str], config_dir: Path | None) -> None:
    from omegaconf import OmegaConf

    from assay.config.compose import compose, job_config

    text = OmegaConf.to_yaml(job_config(compose(overrides, config_dir)))
    if sys.stdout.isatty():
        from rich.syntax import Syntax

        Console().print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        sys.stdout.write(text)


def _say_results(results: list[RunResult], *, sweep: bool) -> None:
    from assay.summary import say_run, say_sweep

    console = Console(highlight=False, soft_wrap=True)
    if sweep:
        say_sweep(console, results)
    else:
        say_run(console, results[0])


@contextmanager
def _reported(debug: bool) -> Iterator[None]:
    """Turn an error into one message and an exit code; with `debug`, let it through."""
    try:
        yield
    except AssayError as error:
        if debug:
            raise
        _say_error(error)
        raise typer.Exit(error.exit_code) from error
    except typer.Exit:
        raise
    except KeyboardInterrupt as error:
        raise typer.Exit(130) from error
    except BrokenPipeError as error:  # `assay configs | head`
        sys.stderr.close()
        raise typer.Exit(0) from error
    except Exception as error:
        if debug:
            raise
        text = str(error).strip().splitlines()
        summary = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        _say_error(AssayError(summary, hint="the same command with --debug shows where this came from"))
        raise typer.Exit(1) from error


def _say_error(error: AssayError) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print("error:", style="bold red", end=" ")
    console.print(error.message, markup=False)
    if error.hint:
        console.print(f"  → {error.hint}", markup=False, style="cyan")


def main() -> None:
    """Entry point of the `assay` command."""
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        from assay.config.completion import shell_completion

        shell_completion(arguments[1] if len(arguments) > 1 else "install=bash")
        return
    app()
