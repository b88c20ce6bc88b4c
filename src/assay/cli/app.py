"""The verbs of the command line. Importing this module imports no torch."""

from __future__ import annotations

import importlib.metadata
import signal
import sys
import textwrap
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.error_report import reported
from assay.errors import AssayError
from assay.paths import CONF_DIR
from assay.terminal import Console, make_printable, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omegaconf import DictConfig

    from assay.run.train import RunResult

_START = """\b
Start with:
  assay train                        handwritten digits and a small network
  assay train data=wine model=mlp    other options of two groups
  assay configs                      every group and its options
  assay train --help                 how to write overrides
"""
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

app = typer.Typer(
    name="assay",
    help="Compose a PyTorch experiment from config, run it, and get it back.",
    epilog=_START,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _groups() -> str:
    """Names of the groups, wrapped by hand: the help text around them keeps its own lines."""
    names = sorted({path.parent.name for path in CONF_DIR.glob("*/*.yaml")})
    return textwrap.fill("  ".join(names), 76, initial_indent="  ", subsequent_indent="  ")


Overrides = Annotated[list[str] | None, typer.Argument(metavar="GROUP=OPTION|KEY=VALUE", hidden=True)]
ConfigDir = Annotated[
    Path | None,
    typer.Option("--config-dir", "-cd", metavar="DIR", help="Your own config groups.  [default: ./conf]"),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"assay {importlib.metadata.version('assay')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command(epilog=_OVERRIDES.format(groups=_groups()))
def train(
    overrides: Overrides = None,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="One job a combination of comma-separated values.")
    ] = False,
    cfg: Annotated[bool, typer.Option("--cfg", "-c", help="Print the composed config and stop.")] = False,
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """Train, test and record one experiment, or a sweep of them."""
    typed = overrides or []
    with reported(debug, typed, config_dir):
        from assay.compose.compose import choices, job_config

        if cfg:
            _print_configs([job_config(job) for job in _composed(typed, config_dir, multirun=multirun)])
            return
        if multirun:
            from assay.sweep.session import start

            code = start(typed, config_dir).exit_code
        else:
            with _loading():
                job = _checked_names(typed, config_dir)
                from assay.run.train import run_job

            result = run_job(job_config(job), typed, choices(job.hydra), raise_errors=debug)
            _say_result(result)
            code = result.exit_code
    if code:
        raise typer.Exit(code)


@app.command(epilog=_OVERRIDES.format(groups=_groups()))
def check(
    overrides: Overrides = None,
    multirun: Annotated[bool, typer.Option("--multirun", "-m", help="Check every job of a sweep.")] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the learning rate into an image.")
    ] = None,
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """Prove that an experiment, or a sweep, can run."""
    typed = overrides or []
    with reported(debug, typed, config_dir):
        if plot is not None and multirun:
            raise AssayError("--plot draws the learning rate of one job", hint="leave out -m")
        console = Console(highlight=False, soft_wrap=True)
        if multirun:
            from assay.sweep.session import check as check_sweep

            reports = check_sweep(typed, config_dir)
            from assay.check.render import show_sweep

            show_sweep(console, reports)
            return
        with _loading():
            job = _checked_names(typed, config_dir)
            from assay.check.all_jobs import check_all
            from assay.check.render import save_curve, show_job

        (report,) = check_all([job], config_dir, curve=True)
        show_job(console, report)
        if plot is not None:
            save_curve(report, plot)


@app.command()
def configs(
    group: Annotated[str, typer.Argument(metavar="GROUP", hidden=True)] = "",
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """The options of every group, or of one, in a line each."""
    with reported(debug):
        from assay.compose.listing import show

        show(group, config_dir)


@app.command()
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY", help="A key, a node, or a group.")],
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """Where a value comes from: who set it, and what that overrode."""
    with reported(debug, overrides or [], config_dir):
        from assay.compose.explain import show

        show(key, overrides or [], config_dir)


@app.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A run directory, a YAML file, or overrides.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another; '' is the default config.")],
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """What differs between runs, config files or quoted overrides.

    Where a run writes to does not count. The exit code is 0 whether they differ or not.
    """
    with reported(debug):
        from assay.report.difference import show

        show(first, second, config_dir)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, or of a sweep.")],
    overrides: Overrides = None,
    failed: Annotated[bool, typer.Option("--failed", help="In a sweep, run failed jobs again too.")] = False,
    config_dir: ConfigDir = None,
    debug: Debug = False,
) -> None:
    """Go on with a run or a sweep, or train a finished run longer.

    A run ends as if it had never been interrupted, bit for bit; RUN trainer.max_epochs=20 trains on. A sweep
    runs what is missing: SWEEP optimizer.lr=0.1,0.2,0.4 is another search space.
    """
    with reported(debug):
        if (run / "journal.jsonl").is_file():
            from assay.sweep.session import go_on as go_on_with_sweep

            code = go_on_with_sweep(run, overrides or [], config_dir, again=failed).exit_code
            if code:
                raise typer.Exit(code)
            return
        if config_dir is not None:
            raise AssayError(
                "--config-dir is about sweeps: a run keeps its whole config", hint=f"assay resume {run}"
            )
        if failed:
            raise AssayError(f"{run} is no sweep, and --failed is about sweeps", hint=f"assay resume {run}")
        from assay.record.run_record import RunRecord

        RunRecord.load(run)  # a mistyped directory costs no wait
        with _loading():
            from assay.run.resume import resume as go_on

        result = go_on(run, overrides or [], raise_errors=debug)
        if result.status == "finished" and result.reason:
            typer.echo(printable(f"{run}: {result.reason}"))
        _say_result(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


@app.command()
def reproduce(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="trusted_packages=[…]", hidden=True)
    ] = None,
    trust_code: Annotated[
        bool,
        typer.Option("--trust-code", help="Let code run that does not lie here: another commit, a patch."),
    ] = False,
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="R", help="Take relative differences up to this for none.")
    ] = 0.0,
    debug: Debug = False,
) -> None:
    """Run a finished run again elsewhere and compare it, bit for bit.

    The exit code is 0 where everything is the same, or within --tolerance, and 1 otherwise. Code that is not
    what lies in the current checkout is brought back beside it: a run of somebody else's is somebody else's
    code.
    """
    with reported(debug):
        from assay.run.reproduce import reproduce as run_again
        from assay.run.reproduce import show

        result = run_again(run, overrides or [], trust_code=trust_code, tolerance=tolerance)
        show(result)
    if result.exit_code:
        raise typer.Exit(result.exit_code)


@app.command()
def info(debug: Debug = False) -> None:
    """What this machine has, and what device=auto would choose."""
    with reported(debug):
        from assay.report.info import machine

        console = Console(highlight=False, soft_wrap=True)
        for section, rows in machine().items():
            console.print(f"[bold]{section}[/bold]")
            for name, value in rows.items():
                console.print(f"  {name:<14} {value}", markup=False)


@contextmanager
def _loading() -> Iterator[None]:
    """Say what is being waited for, on a terminal, in a line that goes again."""
    with Console(stderr=True).status("loading torch and Lightning") if sys.stderr.isatty() else nullcontext():
        yield


def _composed(typed: list[str], config_dir: Path | None, *, multirun: bool) -> list[DictConfig]:
    if multirun:
        from assay.sweep.session import plan

        return plan(typed, config_dir)
    from assay.compose.compose import compose

    return [compose(typed, config_dir)]


def _checked_names(typed: list[str], config_dir: Path | None) -> DictConfig:
    """The job, checked as far as can be without torch: a mistyped word costs no wait."""
    from assay.check.job import check_job
    from assay.compose.compose import compose, job_config
    from assay.config.unread_keys import check_single
    from assay.record.run_directory import refuse_existing

    job = compose(typed, config_dir)
    check_single(typed)
    check_job(job_config(job))
    refuse_existing(Path(job.run_dir))
    if job.get("enforce_clean_git"):
        from assay.record.provenance import check_clean

        check_clean(Path.cwd())
    return job


def _print_configs(jobs: list[DictConfig]) -> None:
    from omegaconf import OmegaConf

    text = "---\n".join(OmegaConf.to_yaml(job) for job in jobs)
    if sys.stdout.isatty():
        from rich.syntax import Syntax

        Console().print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        sys.stdout.write(printable(text))


def _say_result(result: RunResult) -> None:
    from assay.run.summary import say_run

    say_run(Console(highlight=False, soft_wrap=True, stderr=result.status != "finished"), result)


def main() -> None:
    """Entry point of the `assay` command."""
    make_printable()
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        from assay.compose.completion import shell_completion

        shell_completion(arguments[1] if len(arguments) > 1 else "install=bash", _flags())
        return
    try:
        app()
    finally:
        # Everything is said and written: a Ctrl-C from here on ends what is left without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _flags() -> dict[str, list[str]]:
    group = typer.main.get_group(app)
    return {
        name: [flag for parameter in command.params for flag in parameter.opts if flag.startswith("-")]
        for name, command in group.commands.items()
    }
