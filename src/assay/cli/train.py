"""Training: `assay train` and `assay resume`."""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.verb import (
    ConfigDir,
    Document,
    Overrides,
    show_loading,
)
from assay.errors import ConfigError
from assay.files.read_once import read_once
from assay.quoting import command
from assay.record.run_directory import JOURNAL
from assay.rooms import entries, entry
from assay.terminal import Console, printable

if TYPE_CHECKING:
    from assay.run.result import RunResult


def train(
    document: Document,
    overrides: Overrides = None,
    *,
    multirun: Annotated[
        bool,
        typer.Option(
            "--multirun", "-m", help="One job per combination of comma-separated values."
        ),
    ] = False,
    cfg: Annotated[
        bool,
        typer.Option(
            "--cfg", "-c", help="Print the composed config and stop: job, hydra or all."
        ),
    ] = False,
    package: Annotated[
        str,
        typer.Option("--package", "-p", metavar="NODE", help="With --cfg: print this node only."),
    ] = "",
    info: Annotated[
        bool,
        typer.Option(
            "--info",
            "-i",
            help="Print how Hydra composes: defaults, defaults-tree, searchpath, plugins.",
        ),
    ] = False,
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Take a finished run that is this one, if there is one."),
    ] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Train, test and record one experiment, or a sweep of them."""
    typed = overrides or []
    if info:
        if document.as_json:
            raise ConfigError("Hydra prints text", key="--info", hint="leave out --json")
        from assay.compose.compose import print_info

        print_info(typed, config_dir)
        return
    if cfg:
        _print_config(document, typed, package, config_dir, multirun=multirun)
        return
    if package:
        raise ConfigError(
            "chooses a node for --cfg to print", key="--package", hint="--cfg job --package data"
        )
    from assay.check.checker import Checker

    checker = Checker(config_dir)
    world = None
    if not multirun:
        world = _take_world()
    if world is not None and not reuse:
        together = entry("processes", "", "a job in several processes")
        _end_run(
            document, together.train_together(world, checker, typed, raise_errors=document.debug)
        )
        return
    with read_once():  # a table, by what finds the task and by the data
        job = None
        if not multirun:
            job = checker.single_job(typed)
        if reuse and (job is None or world is not None):
            message = "only valid for one run in one process; a sweep reuses runs by itself"
            raise ConfigError(message, key="--reuse", hint="leave it out")
        if job is not None:
            with show_loading():
                from assay.run.train import find_reuse, train_job
            checked = checker.check(job)
    if job is None:
        entry("multirun", "--multirun", "a sweep").train(document, typed, config_dir)
    else:
        ask = find_reuse(job, take=reuse)
        _end_run(document, train_job(job, checked, raise_errors=document.debug, reuse=ask))


def _take_world() -> Any:
    """Who this process is among those of one job; None where it was started alone."""
    worlds = (take_world() for take_world in entries("world"))
    return next((world for world in worlds if world is not None), None)


def _print_config(
    document: Document, words: list[str], package: str, config_dir: Path | None, *, multirun: bool
) -> None:
    """Print what `--cfg` asks for, in Hydra's words: the job, Hydra's own node, or both."""
    from assay.compose.compose import compose, is_multirun, select_parts
    from assay.config.serialize import to_raw_dict, to_yaml

    kinds = [word for word in words if word in ("job", "hydra", "all")]
    typed = [word for word in words if word not in kinds]
    composed = []
    if not multirun:
        composed = [compose(typed, config_dir)]
    if multirun or is_multirun(composed[0]):
        composed = entry("multirun", "--multirun", "a sweep").plan_sweep(typed, config_dir)
    configs = [to_raw_dict(select_parts(config, kinds[-1:], package)) for config in composed]
    document.say("config", {"configs": configs})
    if not document.as_json:
        header = ""
        if package:
            header = f"# @package {package}\n"
        sys.stdout.write(printable("---\n".join(header + to_yaml(config) for config in configs)))


def resume(
    document: Document,
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="Directory of a run, or of a sweep.")
    ],
    changes: Overrides = None,
    *,
    failed: Annotated[
        bool, typer.Option("--failed", help="Also run the failed jobs of a sweep again.")
    ] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Resume a run or sweep, or extend a finished run.

    A run ends as if it had never been interrupted, bit for bit; RUN trainer.max_epochs=20 trains on. A sweep
    runs what is missing: SWEEP optimizer.lr=0.1,0.2,0.4 is another search space.
    """
    if (run / JOURNAL).is_file():
        sweep = entry("multirun", str(run), "a sweep")
        sweep.resume(document, run, changes or [], config_dir, failed=failed)
        return
    from assay.record.run_record import RunRecord

    world = _take_world()
    if world is None:
        RunRecord.load(run)  # a mistyped directory costs no wait
    if config_dir is not None or failed:
        option = "--config-dir"
        if failed:
            option = "--failed"
        raise ConfigError(
            f"only valid for a sweep; {run} is a single run, which keeps its whole config",
            key=option,
            hint=command("resume", run),
        )
    with show_loading():
        from assay.run.resume import resume as go_on

    if world is not None:
        together = entry("processes", "", "a run in several processes")
        _end_run(
            document,
            together.resume_together(world, run, changes or [], raise_errors=document.debug),
        )
        return
    result = go_on(run, changes or [], raise_errors=document.debug)
    if result.status == "finished" and result.reason:
        typer.echo(printable(f"{run}: {result.reason}"))
    _end_run(document, result)


def _end_run(document: Document, result: RunResult | int) -> None:
    from assay.run.result import print_run

    if isinstance(result, int):  # of several processes the first one tells how it ended
        document.is_silent = True
        raise typer.Exit(result)
    document.say("run", result)
    console = Console(highlight=False, soft_wrap=True, stderr=result.status != "finished")
    document.next = print_run(console, result)
    if result.exit_code:
        hint = "".join(document.next)
        document.fail(result.reason or result.status, hint=hint, code=result.exit_code)
        raise typer.Exit(result.exit_code)
