"""Measuring and proving: `assay try`, `reproduce`, `profile`, `tune` and `cache`."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from assay.cli.verb import (
    ConfigDir,
    Document,
    Overrides,
    RunDir,
    show_loading,
)
from assay.errors import ConfigError
from assay.quoting import command, format_duration, pluralize
from assay.terminal import make_table, print_lines

if TYPE_CHECKING:
    from assay_lab.measure import StepProfile, Tuning
    from assay_lab.tries import Try


def profile(
    document: Document,
    overrides: Overrides = None,
    *,
    steps: Annotated[
        int,
        typer.Option("--steps", metavar="N", min=2, help="Steps to measure after the warm-up."),
    ] = 50,
    config_dir: ConfigDir = None,
) -> None:
    """Measure where the time of a training step goes.

    The job trains for some steps, in a folder that is removed afterwards; what would shorten a step is said.
    """
    with show_loading():
        from assay.check.checker import Checker

        checker = Checker(config_dir)
        job = checker.job(overrides or [])
        from assay.run.execute import fit_threads, use_threads
        from assay_lab.measure import profile_job

    proof = checker.check(job)
    with use_threads(fit_threads(proof)):
        measured = profile_job(job, proof, steps=steps)
    document.say("profile", measured)
    document.next = [
        command("profile", *job.overrides, override, config_dir=config_dir)
        for override in measured.try_next
    ]
    _print_profile(document, measured)


def _print_profile(document: Document, measured: StepProfile) -> None:
    from assay.quoting import format_number
    from assay_prove.show import format_bytes

    console = document.console
    low, high = measured.step_ms_range
    step = f"{measured.step_ms:.3g} ms ({low:.3g} to {high:.3g})"
    if measured.batch_size:
        rate = format_number(measured.samples_per_s, 3)
        step = f"{step} for {measured.batch_size} samples: {rate} samples/s"
    lines = [("device", measured.device), ("step", step)]
    if measured.memory:
        kinds = ", ".join(
            f"{name} {format_bytes(count)}" for name, count in measured.memory.items()
        )
        lines.append(("memory", f"about {format_bytes(sum(measured.memory.values()))}: {kinds}"))
    if measured.peak_memory is not None:
        waits = f"which waits for {measured.gpu_waits:.0%} of the time"
        lines.append(("peak", f"{format_bytes(measured.peak_memory)} on the GPU, {waits}"))
    print_lines(console, lines)
    table = make_table(("part", "ms", "share"), ("ms", "share"))
    for part in measured.parts:
        table.add_row(part.name, f"{part.ms:.3f}", f"{part.share:.0%}")
    console.print(table)
    print_lines(
        console, [("most", measured.bottleneck), *(("try", command) for command in document.next)]
    )


def tune(
    document: Document,
    overrides: Overrides = None,
    *,
    budget: Annotated[
        float,
        typer.Option(
            "--budget", metavar="SECONDS", min=1, help="Seconds to measure.  [default: 60]"
        ),
    ] = 60.0,
    config_dir: ConfigDir = None,
) -> None:
    """Measure which settings train fastest on this machine.

    Workers, threads, memory format, precision, compilation and batch size are tried one after another, each
    in turns with the best settings before it. Settings that change results, if only by rounding, are marked.
    """
    with show_loading():
        from assay.check.checker import Checker

        checker = Checker(config_dir)
        checker.job(overrides or [])
        from assay_lab.measure import commands_of, tune_job

    tuning = tune_job(checker, overrides or [], budget)
    document.say("tune", tuning)
    document.next = commands_of(tuning, config_dir)
    _print_tuning(document, tuning)


def cache(
    document: Document,
    action: Annotated[Literal["ls", "clear"], typer.Argument(help="List, or remove all.")] = "ls",
) -> None:
    """List or remove decoded pictures and environments that runs share.

    They lie in the user's folder for caches or in that of ASSAY_CACHE, and take at most ASSAY_CACHE_GB (20)
    gigabytes.
    """
    with show_loading():
        from assay.data.core.source_files import cache_folder
        from assay.data.image.image_cache import clear_cache, list_cached
        from assay_lab.environment import list_environments
    from assay_prove.show import format_bytes

    environments = list_environments()
    if action == "ls":
        files = list_cached()
    else:
        files = clear_cache()
        for folder in environments:
            shutil.rmtree(folder)
    total = sum(file.num_bytes for file in files)
    found = {"folder": cache_folder(), "num_bytes": total, "files": files}
    document.say("cache", {**found, "environments": environments})
    removed = " removed" * (action == "clear")
    lines = [("cache", f"{cache_folder()}: {format_bytes(total)} of decoded pictures{removed}")]
    for file in files:
        pixels = "several sizes"
        if file.size[0]:
            pixels = f"{file.size[0]}×{file.size[1]}"
        size = f"{file.num_images:,} of {pixels} ({file.form})"
        used = f"last used {file.used[:16].replace('T', ' ')} UTC"
        lines.append(("", f"{file.root}: {size}, {format_bytes(file.num_bytes)}, {used}"))
    for folder, num_bytes in environments.items():
        line = f"{folder}: an environment of reproduce --environment, {format_bytes(num_bytes)}{removed}"
        lines.append(("", line))
    print_lines(document.console, lines)


def _print_tuning(document: Document, tuning: Tuning) -> None:
    from assay.quoting import format_number

    console = document.console
    print_lines(console, [("device", tuning.device)])
    numeric = ("samples/s", "slowest", "fastest", "gain")
    table = make_table(("setting", *numeric, "results", ""), numeric)
    for setting in tuning.settings:
        rates = [setting.samples_per_s, *(setting.samples_per_s_range or ())]
        numbers = ["" if rate is None else format_number(rate, 3) for rate in rates]
        gain = ""
        if setting.gain is not None:
            gain = f"{setting.gain:.2f}"
        results = ""
        if setting.override:
            results = "the same" if setting.same_results else "differ"
        mark = "chosen"
        if not setting.chosen:
            mark = setting.note.partition("\n")[0]
        table.add_row(
            setting.override or "as typed",
            *numbers,
            *[""] * (3 - len(numbers)),
            gain,
            results,
            mark,
        )
    console.print(table)
    lines = []
    if tuning.interrupted:
        lines = [("note", tuning.interrupted)]
    gain = "nothing that was measured is faster than the job as typed"
    if tuning.fastest:
        gain = f"{tuning.gain:.2f} times as fast as typed: {' '.join(tuning.fastest)}"
    lines.append(("gain", gain))
    print_lines(console, [*lines, *(("next", command) for command in document.next)])


def try_change(
    document: Document,
    overrides: Overrides = None,
    *,
    against: Annotated[
        Path,
        typer.Option(
            metavar="PATH[@REF]",
            help="The reference: a run, or a sweep over seeds; of --code also its commit, else HEAD.",
        ),
    ],
    code: Annotated[
        str | None,
        typer.Option(
            metavar="REF|PATCH", help="Try the code of a commit, branch or patch file, too."
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for all its runs: 90s, 20m, 1.5h.")
    ] = "20m",
    metric: Annotated[
        str,
        typer.Option(
            metavar="METRIC", help="Validation metric to compare by.  [default: as compare]"
        ),
    ] = "",
    reveal: Annotated[
        bool, typer.Option("--reveal", help="Score the test subset; each look is counted.")
    ] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Try a change of a reference, and keep it if it proves better.

    It is trained with the seeds of the reference; where that is promising, both are trained with fresh seeds,
    which decide. Of what is kept over many tries, at most one in twenty is expected to be noise. With --code,
    reference and change are commits of this project, each checked out and run beside it; nothing here is
    touched. Without a change, --reveal shows the test scores of the reference.
    """
    from assay_lab.tries import try_change as run_try

    before_word = r"\s+(?=~|[+\w./@]+=)"  # overrides may be typed as one text
    words = [word for text in overrides or [] for word in re.split(before_word, text.strip())]
    commits = None
    if code is not None:
        path, _, reference = str(against).rpartition("@")
        if path and not against.exists():
            against = Path(path)
        else:
            reference = "HEAD"
        commits = (code, reference)
    if not against.exists():
        raise ConfigError(
            f"there is no folder {against}", key="--against", hint="assay ls outputs"
        )
    result = run_try(
        words, against, _read_seconds(budget), metric, config_dir, reveal=reveal, code=commits
    )
    document.say("try", result)
    following = ["KEY=VALUE", "--against", str(result.reference)]
    if result.code:
        commit = result.against_code
        if result.decision == "kept":
            commit = result.code
        place = f"{result.reference}@{commit[:12]}"
        following = ["--code", "REF", "--against", place]
    if metric:
        following += ["--metric", metric]
    document.next = [command("try", *following, config_dir=config_dir)]
    print_lines(document.console, _describe_try(result, document.next[0]), 8)
    if result.decision == "failed":
        document.fail(result.reason)
        raise typer.Exit(1)


def _read_seconds(budget: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if match is None or not float(match[1]):
        raise ConfigError(
            f"expected a time such as 90s, 20m or 1.5h, got {budget!r}", key="--budget"
        )
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def _describe_try(result: Try, next_command: str) -> list[tuple[str, str]]:
    lines = []
    if result.decision:
        parts = [*result.overrides]
        against = str(result.against)
        if result.code:
            parts = [f"commit {result.code[:12]}", *map(shlex.quote, parts)]
            against = f"{against}@{result.against_code[:12]}"
        lines = [("try", f"{result.number}: {' '.join(parts)}, against {against}")]
        lines += [("note", note) for note in result.notes]
        for label, verdict in (("paired", result.paired), ("fresh", result.fresh)):
            if verdict:
                lines += [(label, verdict.text)]
        lines.append(("decision", f"{result.decision}: {result.reason}"))
        lines.append(
            ("time", f"{format_duration(result.seconds)} of {format_duration(result.budget_s)}")
        )
    looks = f"looked at {pluralize(result.looks, 'time')}"
    scores = "  ".join(f"{folder} {score:.4g}" for folder, score in result.test.items())
    counts = (
        ", ".join(f"{count} {word}" for word, count in result.decisions.items()) or "no tries"
    )
    lines.append(("test", f"{scores}  ({looks})" if scores else f"sealed, {looks}"))
    return [*lines, ("journal", f"{result.journal}: {counts}"), ("next", next_command)]


def reproduce(
    document: Document,
    run: RunDir,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="trusted_packages=[…]", hidden=True)
    ] = None,
    *,
    trust_code: Annotated[
        bool,
        typer.Option(
            "--trust-code",
            help="Allow code to run that differs from the code here: another commit, a patch.",
        ),
    ] = False,
    environment: Annotated[
        bool,
        typer.Option(
            "--environment", help="Run it with the packages that it had, installed by uv."
        ),
    ] = False,
) -> None:
    """Run a finished run again elsewhere and compare it, bit for bit.

    The exit code is 0 where everything is the same, and 1 otherwise. Code that is not what lies in the
    current checkout is restored beside it; trust it only if you know its author.
    """
    from assay_lab.reproduce import reproduce as run_again
    from assay_lab.reproduce import show

    result = run_again(run, changes or [], trust_code=trust_code, in_environment=environment)
    show(result)
    document.say("reproduce", result)
    if not result.identical:
        document.fail(f"different: {result.different[0]}", code=1)
        raise typer.Exit(1)


VERBS = {
    "Train": {"try": try_change, "reproduce": reproduce},
    "Look": {"profile": profile, "tune": tune, "cache": cache},
}
