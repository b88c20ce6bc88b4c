"""Training: `assay train`, `assay try`, `assay resume` and `assay reproduce`."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.documents import Document  # noqa: TC001 - typer reads the annotations
from assay.cli.verb import ConfigDir, Overrides, RunDir, show_loading
from assay.errors import ConfigError
from assay.quoting import command, format_duration, pluralize
from assay.run.world import take_world
from assay.terminal import Console, print_lines, printable

if TYPE_CHECKING:
    from assay.run.result import RunResult
    from assay.sweep.summary import SweepResult
    from assay.sweep.tries import Try


def train(
    document: Document,
    overrides: Overrides = None,
    *,
    multirun: Annotated[
        bool, typer.Option("--multirun", "-m", help="One job per combination of comma-separated values.")
    ] = False,
    cfg: Annotated[
        bool, typer.Option("--cfg", "-c", help="Print the composed config and stop: job, hydra or all.")
    ] = False,
    package: Annotated[
        str, typer.Option("--package", "-p", metavar="NODE", help="With --cfg: of this node alone.")
    ] = "",
    info: Annotated[
        bool,
        typer.Option(
            "--info", "-i", help="Print how Hydra composes: defaults, defaults-tree, searchpath, plugins."
        ),
    ] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Train, test and record one experiment, or a sweep of them."""
    typed = overrides or []
    if info:
        if document.as_json:
            raise ConfigError("this is text by Hydra", key="--info", hint="leave out --json")
        from assay.compose.listing import print_info

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
    world = None if multirun else take_world()
    job = None if multirun or world is not None else checker.single_job(typed)
    if job is None and world is None:
        from assay.sweep.session import start_sweep

        _end_sweep(document, start_sweep(typed, config_dir))
        return
    with show_loading():
        from assay.run.train import train_job, train_together

    if world is not None:
        _end_run(document, train_together(world, checker, typed, raise_errors=document.debug))
    elif job is not None:
        _end_run(document, train_job(job, checker.check(job), raise_errors=document.debug))


def _print_config(
    document: Document, words: list[str], package: str, config_dir: Path | None, *, multirun: bool
) -> None:
    """Print what `--cfg` asks for, in Hydra's words: the job, Hydra's own node, or both."""
    from assay.compose.compose import compose, is_multirun, select_parts
    from assay.config.serialize import to_raw_dict, to_yaml
    from assay.sweep.session import plan_sweep

    kinds = [word for word in words if word in ("job", "hydra", "all")]
    typed = [word for word in words if word not in kinds]
    composed = [] if multirun else [compose(typed, config_dir)]
    if multirun or is_multirun(composed[0]):
        composed = plan_sweep(typed, config_dir)
    configs = [to_raw_dict(select_parts(config, kinds[-1:], package)) for config in composed]
    document.say("config", {"configs": configs})
    if not document.as_json:
        header = f"# @package {package}\n" if package else ""
        sys.stdout.write(printable("---\n".join(header + to_yaml(config) for config in configs)))


def resume(
    document: Document,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Directory of a run, or of a sweep.")],
    changes: Overrides = None,
    *,
    failed: Annotated[bool, typer.Option("--failed", help="In a sweep, run failed jobs again too.")] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Resume a run or sweep, or extend a finished run.

    A run ends as if it had never been interrupted, bit for bit; RUN trainer.max_epochs=20 trains on. A sweep
    runs what is missing: SWEEP optimizer.lr=0.1,0.2,0.4 is another search space.
    """
    if (run / "journal.jsonl").is_file():
        from assay.sweep.session import resume_sweep

        _end_sweep(document, resume_sweep(run, changes or [], config_dir, again=failed))
        return
    from assay.record.run_record import RunRecord

    world = take_world()
    if world is None:
        RunRecord.load(run)  # a mistyped directory costs no wait
    if config_dir is not None or failed:
        raise ConfigError(
            f"only valid for a sweep; {run} is a single run, which keeps its whole config",
            key="--failed" if failed else "--config-dir",
            hint=command("resume", run),
        )
    with show_loading():
        from assay.run.resume import resume as go_on
        from assay.run.resume import resume_together

    if world is not None:
        _end_run(document, resume_together(world, run, changes or [], raise_errors=document.debug))
        return
    result = go_on(run, changes or [], raise_errors=document.debug)
    if result.status == "finished" and result.reason:
        typer.echo(printable(f"{run}: {result.reason}"))
    _end_run(document, result)


def reproduce(
    document: Document,
    run: RunDir,
    changes: Annotated[list[str] | None, typer.Argument(metavar="trusted_packages=[…]", hidden=True)] = None,
    *,
    trust_code: Annotated[
        bool,
        typer.Option("--trust-code", help="Let code run that does not lie here: another commit, a patch."),
    ] = False,
) -> None:
    """Run a finished run again elsewhere and compare it, bit for bit.

    The exit code is 0 where everything is the same, and 1 otherwise. Code that is not what lies in the
    current checkout is brought back beside it; trust it only if you know whose it is.
    """
    from assay.run.reproduce import reproduce as run_again
    from assay.run.reproduce import show

    result = run_again(run, changes or [], trust_code=trust_code)
    show(result)
    document.say("reproduce", result)
    if not result.identical:
        document.fail(f"different: {result.different[0]}", code=1)
        raise typer.Exit(1)


def try_change(
    document: Document,
    overrides: Overrides = None,
    *,
    against: Annotated[
        Path,
        typer.Option(metavar="PATH", exists=True, help="The reference: a run, or a sweep over seeds."),
    ],
    budget: Annotated[str, typer.Option(metavar="TIME", help="For all runs of it: 90s, 20m, 1.5h.")] = "20m",
    metric: Annotated[
        str,
        typer.Option(metavar="METRIC", help="Validation metric to compare by.  [default: as compare]"),
    ] = "",
    reveal: Annotated[bool, typer.Option("--reveal", help="Look at the test subset; it is counted.")] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Try a change of a reference, and keep it if it proves better.

    It is trained with the seeds of the reference; where that is promising, both are trained with fresh seeds,
    which decide. Of what is kept over many tries, at most one in twenty is expected to be noise. Without a
    change, --reveal shows the test scores of the reference.
    """
    from assay.sweep.tries import try_change as run_try

    before_word = r"\s+(?=~|[+\w./@]+=)"  # overrides may be typed as one text
    words = [word for text in overrides or [] for word in re.split(before_word, text.strip())]
    result = run_try(words, against, _read_seconds(budget), metric, config_dir, reveal=reveal)
    document.say("try", result)
    document.next = [command("try", "KEY=VALUE", "--against", result.reference, config_dir=config_dir)]
    print_lines(document.console, _describe_try(result, document.next[0]), 8)


def _read_seconds(budget: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if match is None or not float(match[1]):
        raise ConfigError(f"expected a time such as 90s, 20m or 1.5h, got {budget!r}", key="--budget")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _describe_try(result: Try, next_command: str) -> list[tuple[str, str]]:
    lines = []
    if result.overrides:
        lines = [("try", f"{result.number}: {shlex.join(result.overrides)}, against {result.against}")]
        for label, verdict in (("paired", result.paired), ("fresh", result.fresh)):
            lines += [(label, verdict.text)] if verdict else []
        lines.append(("decision", f"{result.decision}: {result.reason}"))
        lines.append(("time", f"{format_duration(result.seconds)} of {format_duration(result.budget_s)}"))
    looks = f"looked at {pluralize(result.looks, 'time')}"
    scores = "  ".join(f"{folder} {score:.4g}" for folder, score in result.test.items())
    counts = ", ".join(f"{count} {word}" for word, count in result.decisions.items()) or "no tries"
    lines.append(("test", f"{scores}  ({looks})" if scores else f"sealed, {looks}"))
    return [*lines, ("journal", f"{result.journal}: {counts}"), ("next", next_command)]


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


def _end_sweep(document: Document, result: SweepResult) -> None:
    from assay.sweep.summary import next_commands

    document.say("sweep", _sweep_document(result))
    document.next = next_commands(result)
    if result.exit_code:
        ended = sum(job.status in ("finished", "pruned") for job in result.jobs)
        failed = sum(job.status == "failed" for job in result.jobs)
        again = command("resume", result.directory, *(["--failed"] if failed else []))
        counts = f"{ended} of {pluralize(result.total, 'job')} finished, {failed} failed"
        document.fail(counts, hint=again, code=result.exit_code)
        raise typer.Exit(result.exit_code)


def _sweep_document(result: SweepResult) -> dict[str, Any]:
    from assay.record.run_record import Outcome

    jobs = []
    for job in result.jobs:
        outcome = job.outcome or Outcome("interrupted")
        fields = {name: getattr(job, name) for name in ("status", "overrides", "seed", "attempts")}
        ended = ("metrics", "best", "seconds", "cause", "reason", "warnings")
        of_outcome = {name: getattr(outcome, name) for name in ended}
        jobs.append({"number": job.number, "run_dir": result.run_dir(job), **fields, **of_outcome})
    best = result.best
    return {
        "directory": result.directory,
        "total": result.total,
        "objectives": {objective.name: objective.direction for objective in result.objectives},
        "best": best.number if best else None,
        "jobs": jobs,
    }
