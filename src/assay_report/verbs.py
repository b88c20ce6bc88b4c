"""Looking at data and results: `assay data`, `info`, `ls`, `compare`, `best`, `report` and `diff`."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from assay.cli.verb import ConfigDir, Document, Overrides, show_loading
from assay.errors import AssayError
from assay.files.atomic import is_temporary, remove_unfinished, temporary_name
from assay.files.symlinks import OWN_FILES
from assay.quoting import command, pluralize
from assay.record.run_lock import is_written, lock_error, lock_run
from assay.record.run_record import RunRecord, no_run_error
from assay.terminal import Console, print_lines, printable, single_line
from assay_prove.verbs import check_ending
from assay_report.follow import REWRITTEN_AFTER, Follow, check_form, follow, follow_text

if TYPE_CHECKING:
    from assay_analysis.comparison import Comparison, Ranking
    from assay_report.report import Report

Format = Literal["table", "csv", "json", "markdown", "latex"]
Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PATH", help="Runs, sweeps, or folders of either.  [default: outputs]"
    ),
]
Sort = Annotated[
    str,
    typer.Option(
        metavar="METRIC", help="Best first; METRIC:min or METRIC:max states the direction."
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE", help="Only these runs; also !=, <, <=, >, >=. Repeat for more."
    ),
]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY", help="One row per value. Repeat for more.  [default: repetitions]"
    ),
]
Metric = Annotated[
    list[str] | None, typer.Option(metavar="METRIC", help="Scores to show. Repeat for more.")
]
Formats = Annotated[Format, typer.Option("--format", help="Format of the output.")]
Limit = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Maximum number of rows; 0 shows all.  [default: 50 in a table of ls]",
    ),
]
Offset = Annotated[int, typer.Option(metavar="N", min=0, help="Number of rows to skip first.")]
_LIMIT = 50
_OUTPUTS = Path("outputs")


def ls(
    document: Document,
    paths: Paths = None,
    *,
    sort: Sort = "",
    where: Where = None,
    metric: Metric = None,
    limit: Limit = None,
    offset: Offset = 0,
    form: Formats = "table",
    following: Follow = False,
) -> None:
    """List runs, one per line: settings, scores and status.

    The newest comes first.
    """
    choice = {"sort": sort, "where": where or (), "metrics": metric or (), "each": True}
    if limit is None and form == "table" and not document.as_json:
        limit = _LIMIT
    _show("ls", paths, choice, form, document, shown=(limit or 0, offset), following=following)


def compare(
    document: Document,
    paths: Paths = None,
    *,
    sort: Sort = "",
    where: Where = None,
    group_by: GroupBy = None,
    metric: Metric = None,
    limit: Limit = None,
    offset: Offset = 0,
    form: Formats = "table",
    following: Follow = False,
) -> None:
    """Compare the settings and the scores of runs.

    Runs of one configuration, each with another seed, become one row: mean, 95 % interval (Student's t) and
    n. Of two rows, or of two PATHs, the first is judged against the second: better, worse, or no significant
    difference, by a paired t-test where they share seeds, Welch's t-test where not, and over the same folds
    the corrected resampled t-test (Nadeau and Bengio).
    """
    choice = {
        "sort": sort,
        "where": where or (),
        "group_by": group_by or (),
        "metrics": metric or (),
    }
    _show(
        "compare", paths, choice, form, document, shown=(limit or 0, offset), following=following
    )


def best(
    document: Document,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A sweep, or a folder of runs.")],
    metric: Annotated[
        str,
        typer.Argument(metavar="METRIC", help="Score to compare by. [default: the monitor]"),
    ] = "",
    where: Where = None,
) -> None:
    """Print the directory of the best run.

    That is the best repetition of the configuration with the best mean.
    """
    from assay_analysis.comparison import compare as compared
    from assay_analysis.read_runs import read_runs
    from assay_report.comparison_formats import Best, to_document

    comparison = compared(read_runs([path]), sort=metric, where=where or ())
    best = comparison.best_run
    ranking = comparison.ranking
    if ranking is None:
        raise AssayError(
            f"{path}: no run has a score", hint=f"{command('ls', path)} shows what there is"
        )
    if best is None or comparison.best is None:
        raise _no_best_error(path, ranking)
    run = best.path
    row = to_document(comparison).rows[comparison.best]
    document.say("best", Best(run, ranking.metric, ranking.direction, row))
    for note in (*best.warnings, *comparison.notes):
        typer.echo(single_line(f"note: {note}"), err=True)
    if not document.as_json:
        typer.echo(str(run) if sys.stdout.isatty() is False else printable(str(run)))


def _no_best_error(path: Path, ranking: Ranking) -> AssayError:
    name = single_line(ranking.metric)
    if ranking.losses or ranking.data:
        other = "name another METRIC"
        if not ranking.losses:
            other = f"compare them anyway: {command('best', path, name)}"
        hint = f"select some of them: --where KEY=VALUE; or {other}"
        return AssayError(f"{path}: {single_line(ranking.notes[-1])}", hint=hint)
    why = ""
    hint = f"{command('ls', path)} shows how they ended"
    if not ranking.direction:
        why = f"; it is not known whether a higher or a lower {name} is better"
        hint = command("best", path, f"{name}:max")
    return AssayError(f"{path}: no finished run has the best {name}{why}", hint=hint)


def _show(
    kind: Literal["ls", "compare"],
    paths: list[Path] | None,
    choice: dict[str, Any],
    form: Format,
    document: Document,
    *,
    shown: tuple[int, int],
    following: bool,
) -> None:
    from assay_analysis.comparison import compare as compared
    from assay_analysis.comparison import page
    from assay_analysis.read_runs import read_runs
    from assay_report import comparison_formats as formats

    sides = {str(path): _expand(path) for path in paths or [_OUTPUTS]}
    folders = [folder for side in sides.values() for folder in side]
    if kind == "compare" and len(sides) == 2:
        choice["sides"] = sides

    def read() -> Comparison:
        newest_first = kind == "ls" and not choice["sort"]
        return page(
            compared(read_runs(folders, lost=True), **choice), *shown, newest_first=newest_first
        )

    if document.as_json:
        form = "json"
    print_table = functools.partial(formats.print_comparison, each=kind == "ls")
    if following:
        check_form(form)
        follow_text(folders, lambda console: print_table(console, read()))
    elif form == "json":
        document.say(kind, formats.to_document(read()))
    elif form == "table":
        print_table(Console(highlight=False), read())
    else:
        write = {
            "csv": formats.to_csv,
            "markdown": formats.to_markdown,
            "latex": formats.to_latex,
        }[form]
        sys.stdout.write(write(read()))


def _expand(path: Path) -> list[Path]:
    """The paths that a quoted pattern stands for; any other path alone."""
    if path.exists():
        return [path]
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) or [path]


def report(
    document: Document,
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help="A run, a sweep, or any folders that hold runs."),
    ],
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page.  [default: PATH/report.html]")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    png: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write each figure as a picture, too.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the numbers of each figure, too.")
    ] = None,
    following: Follow = False,
) -> None:
    """Write one HTML page about a run, a sweep or several runs.

    It opens offline. With --follow it reloads in the browser as long as a run is running.
    """
    console = document.console
    if following:
        check_form("json" if document.as_json else "table")

    def write(is_running: bool) -> Path:
        from assay_report.report import report as write_report

        written = write_report(paths, out, png, csv, reloads_for=3 * REWRITTEN_AFTER * is_running)
        is_first = not document.body
        document.say("report", written)
        if not is_running:
            _print_report(console, paths, written, png, csv)
        elif is_first:
            print_lines(
                console, [("page", f"{written.page}  (reloads until the runs have ended)")], 5
            )
        if show and is_first:
            import webbrowser

            if not webbrowser.open(written.page.resolve().as_uri()):
                typer.echo("note  no browser could be opened; open the page by hand", err=True)
        return written.page

    if following:
        follow(paths, write)
    else:
        write(False)


def _print_report(
    console: Console,
    paths: list[Path],
    written: Report,
    png: Path | None,
    csv: Path | None,
) -> None:
    from assay.run.result import label_commands, predict_commands

    size = written.page.stat().st_size / 1e6
    lines = [("page", f"{written.page}  ({len(written.figures)} figures, {size:.1f} MB)")]
    if png:
        lines += [("png", f"{len(written.pictures)} pictures in {png}")]
    if csv:
        lines += [("csv", f"{len(written.tables)} tables in {csv}")]
    if written.of == "run":
        commands = [*predict_commands(paths[0]), command("compare", paths[0].parent)]
    else:
        commands = [command("compare", *paths), command("best", paths[0])]
    print_lines(console, [*lines, *label_commands(commands)], 5)


def data(
    document: Document,
    overrides: Overrides = None,
    *,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML page with samples, too.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read the whole stream instead of a sample of it.")
    ] = False,
    config_dir: ConfigDir = None,
) -> None:
    """Look at the data of an experiment before it is trained."""
    typed = overrides or []
    check_ending("--out", out, ".html")
    with show_loading():
        from assay.check.checker import Checker

        job = Checker(config_dir).job(typed)
        from assay_report.data_page import print_survey, survey_job
    survey = survey_job(job, out, full=full)
    document.say("data", survey)
    document.next = [command("train", *job.overrides, config_dir=config_dir)]
    if not document.as_json:
        print_survey(Console(highlight=False), survey)
    page = str(out or "--out data.html writes one, with samples")
    print_lines(document.console, [("page", page), ("next", document.next[0])], 5)


def diff(
    document: Document,
    first: Annotated[
        str, typer.Argument(metavar="A", help="A run directory, a YAML file, or overrides.")
    ],
    second: Annotated[
        str, typer.Argument(metavar="B", help="The second one; '' is the default config.")
    ],
    config_dir: ConfigDir = None,
) -> None:
    """Show how runs, config files or quoted overrides differ.

    Where a run writes to does not count. The exit code is 0 whether they differ or not.
    """
    from assay_report.difference import difference, print_difference

    differences = difference(first, second, config_dir)
    document.say("diff", differences)
    if not document.as_json:
        print_difference(differences)


def info(document: Document) -> None:
    """Show this machine's hardware and what device=auto chooses."""
    from assay_report.info import machine

    sections = machine()
    document.say("info", {name.removeprefix("device="): rows for name, rows in sections.items()})
    console = document.console
    for section, rows in sections.items():
        console.print(f"[bold]{section}[/bold]")
        for name, value in rows.items():
            console.print(f"  {name:<14} {value}", markup=False)


def rm(
    document: Document,
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run directories.")],
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
    ] = False,
) -> None:
    """Remove runs for good, after asking; refuse running ones."""
    directories = list(dict.fromkeys(map(check_removable, runs)))
    for directory in directories:
        in_sweep = (directory.parent / "journal.jsonl").is_file()
        note = ""
        if in_sweep:
            note = "  (a job of a sweep, whose journal still counts it)"
        typer.echo(single_line(f"{directory}{note}"), err=True)
    if not yes:
        if not sys.stdin.isatty():
            raise AssayError(
                "cannot ask for confirmation: standard input is not a terminal",
                hint="assay rm --yes RUN",
            )
        if not typer.confirm(f"Remove {pluralize(len(directories), 'run')} for good?", err=True):
            raise AssayError("nothing was removed")
    for directory in directories:
        remove_run(directory)
    document.say("rm", {"runs": directories})


VERBS = {
    "Look": {"data": data, "info": info},
    "Compare": {
        "ls": ls,
        "compare": compare,
        "best": best,
        "report": report,
        "diff": diff,
        "rm": rm,
    },
}


def check_removable(path: Path) -> Path:
    """Make sure that a directory can be removed."""
    if path.is_symlink():
        raise AssayError(
            f"{path} is a link; links are not followed",
            hint=f"name its target: {os.path.realpath(path)}",
        )
    if not path.is_dir():
        raise no_run_error(path)
    if (path / "journal.jsonl").exists():
        raise AssayError(
            f"{path} is a sweep, and assay rm removes runs",
            hint=f"assay rm {shlex.quote(str(path))}/NUMBER",
        )
    record = RunRecord.load(path)
    others = (entry.name for entry in path.iterdir() if entry.name not in _REMOVABLE)
    if foreign := sorted(
        name for name in others if not (is_temporary(name) or _OTHERS.fullmatch(name))
    ):
        shown = ", ".join(foreign[:5]) + ", …" * (len(foreign) > 5)
        raise AssayError(
            f"{path} contains files that assay did not write: {shown}",
            hint=f"move it away, or remove the directory yourself: rm -r {shlex.quote(str(path))}",
        )
    if is_written(path):
        raise lock_error(path)
    host = record.machine.get("hostname")
    if record.status == "running" and host not in (None, socket.gethostname()):
        raise AssayError(
            f"{path} may still be running on {host}, which cannot be seen from here",
            hint=f"remove it on {host}",
        )
    return path.resolve()


def remove_run(path: Path) -> None:
    """Remove a run directory, and what a killed removal beside it has left."""
    remove_unfinished(path.parent)
    with lock_run(path):
        gone = temporary_name(path)
        try:
            path.rename(gone)
            shutil.rmtree(gone)  # removes links, and follows none
        except OSError as error:
            raise AssayError(
                f"{path} cannot be removed: {error.strerror}: {error.filename}"
            ) from error


_REMOVABLE = (
    *("checkpoints", "evaluations", "export", "figures", "tensorboard", "wandb"),
    *(*OWN_FILES, ".lock", "report.html", ".assay_figures"),
)
_OTHERS = re.compile(r"code\.\d+\.patch|.*profile.*")
"""These and temporary files are what a run, and the verbs that take one, write into its directory."""
