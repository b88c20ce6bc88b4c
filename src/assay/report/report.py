"""`assay report`: the page of a run, a sweep or several, its figures as pictures, and venues' checklists."""

from __future__ import annotations

import shlex
import stat
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from assay.analysis.comparison import compare, default_metric
from assay.analysis.objective import describe_baseline
from assay.analysis.read_runs import read_runs
from assay.analysis.run import ConfigValues, plain_value, value_of
from assay.config.serialize import REPETITIONS, is_number, is_whole
from assay.errors import AssayError, ConfigError
from assay.figure.figure import to_frame, to_png
from assay.files.atomic import write_bytes
from assay.quoting import format_duration, join_first, spreadsheet_frame
from assay.record.journal import Journal
from assay.record.run_directory import find_runs
from assay.record.run_record import FILE, RunRecord
from assay.report.comparison_formats import best_run, to_markdown
from assay.report.page import load_templates, write
from assay.report.run_page import run_page
from assay.report.sweep_page import is_sweep, read_contents, sweep_page
from assay.terminal import escape_markdown, printable, single_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from assay.analysis.comparison import Comparison
    from assay.analysis.run import Run
    from assay.figure.figure import Figure
    from assay.report.page import Page

    Totals: TypeAlias = dict[str, tuple[int, float, float]]


_START: Final = b"<!doctype html>\n<html lang="
"""Of every page."""


@final
@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        of: What it is a report of: `run`, `sweep` or `runs`; of a checklist `checklist`.
        title: Of whom; of a checklist the venue.
        page: The HTML file, or the checklist in Markdown.
        figures: Their names, in the order of the page.
        pictures: Files of figures, from `--png`.
        tables: Files of their numbers, from `--csv`.
    """

    of: str
    title: str
    page: Path
    figures: Sequence[str]
    pictures: Sequence[Path] = ()
    tables: Sequence[Path] = ()


def report(
    paths: Sequence[Path], out: Path | None = None, png: Path | None = None, csv: Path | None = None
) -> Report:
    """Write a report."""
    check_folders(paths)
    file = out or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    check_overwrite(file)
    for option, folder in (("--png", png), ("--csv", csv)):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise ConfigError(f"{folder} is not a folder", key=option, hint=f"{option} {folder.parent}")
    run_dir = paths[0]
    if len(paths) == 1 and (run_dir / FILE).exists() and not is_sweep(run_dir):
        page = run_page(run_dir)
    else:
        page = sweep_page(read_contents(paths), file.absolute().parent)
    pictures = _write_each(page, png, ".png", to_png)
    tables = _write_each(page, csv, ".csv", _csv)
    write_or_explain(file, partial(write, page, file), "--out FILE")
    names = [figure.name for figure in page.figures]
    return Report(page.kind.lower(), page.title, file, names, pictures, tables)


def report_checklist(venue: str, paths: Sequence[Path], out: Path | None = None) -> Report:
    """Write a checklist."""
    check_folders(paths)
    file = out or (paths[0] if len(paths) == 1 else Path()) / f"checklist_{venue}.md"
    check_overwrite(file, TITLE.encode(), ".md")
    text = write_checklist(venue, paths)
    write_or_explain(file, partial(write_bytes, file, f"{text}\n".encode()), "--out FILE")
    return Report("checklist", venue, file, ())


def _csv(figure: Figure) -> bytes:
    text: str = spreadsheet_frame(to_frame(figure)).to_csv(index=False, lineterminator="\n")
    return printable(text).encode(errors="backslashreplace")


def _write_each(page: Page, folder: Path | None, suffix: str, draw: Callable[[Figure], bytes]) -> list[Path]:
    files = {folder / f"{fig.name}{suffix}": fig for fig in page.figures} if folder is not None else {}
    for path, figure in files.items():
        option = f"--{suffix.removeprefix('.')} DIR"
        write_or_explain(path, partial(write_bytes, path, draw(figure)), option)
    return list(files)


def check_folders(paths: Sequence[Path]) -> None:
    """Refuse what is no folder."""
    for path in paths:
        if not path.is_dir():
            message = f"there is no folder {path}"
            raise AssayError(message, hint="name a run directory, such as outputs/NAME/DATE/TIME")


def check_overwrite(file: Path, start: bytes = _START, suffix: str = ".html") -> None:
    """Refuse to replace a file that is not a report: it may be data, or the run's own record."""
    if file.is_dir() or file.suffix != suffix:
        name = file.with_suffix(suffix)
        raise ConfigError(f"{file}: expected a name that ends in {suffix}", key="--out", hint=f"--out {name}")
    try:
        is_other = not stat.S_ISREG(file.stat().st_mode)  # a pipe would never end
        if not is_other:
            with file.open("rb") as opened:
                is_other = opened.read(len(start)) not in (b"", start)
    except OSError:  # nothing is there, or the error is reported when it is written
        return
    if is_other:
        message = f"{file} exists and is not a report; refusing to replace it"
        raise ConfigError(message, hint="--out FILE writes it somewhere else")


def write_or_explain(path: Path, write_it: Callable[[], None], option: str) -> None:
    """Call `write_it`, and raise an error that names the file if it cannot be written."""
    try:
        write_it()
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise AssayError(message, hint=f"{option} writes it somewhere else") from error


TITLE: Final = "# Checklist"
"""How every checklist begins; nothing else is replaced by one."""
_SHOWN: Final = 12


def write_checklist(venue: str, paths: Sequence[Path]) -> str:
    """The checklist of a venue as Markdown: a template, in which each value is escaped.

    Raises:
        AssayError: The paths hold no run that has finished.
    """
    from markupsafe import Markup

    runs, configs = read_runs(paths, lost=True), ConfigValues()
    comparison = compare(runs, sort=default_metric(paths, runs), configs=configs)
    records = dict(_load_records(runs))
    finished = [run for run in runs if run.status == "finished" and run.path in records]
    if not finished:
        raise AssayError("no run has finished", hint=f"assay ls {shlex.join(map(str, paths))} shows why")
    best = best_run(comparison)
    chosen = next((run for run in finished if run.path == best), finished[-1])
    record = records[chosen.path]

    def escape(value: Any) -> Markup:  # before HTML would be escaped, which leaves `Markup` as it is
        return value if isinstance(value, Markup) else Markup(escape_markdown(value))  # noqa: S704 - escaped

    template = load_templates().overlay(finalize=escape).get_template(f"checklist_{venue}.md")
    return template.render(
        all_runs=runs,
        places=join_first(paths),
        comparison=comparison,
        scores=Markup(to_markdown(comparison).strip()),  # noqa: S704 - escaped
        tried=list(_list_tried(comparison)),
        searches=list(_list_searches(paths)),
        devices=_add_up(runs, records, configs).items(),
        duration=format_duration,
        models=dict.fromkeys(map(_describe_model, records.values())),
        sources=Counter((_name_source(run, configs), run.data_sha256) for run in runs).most_common(_SHOWN),
        path=chosen.path,
        repeat=Markup(single_line(f"assay reproduce {shlex.quote(str(chosen.path))}")),  # noqa: S704 - a block of code
        record=record,
        value=partial(value_of, chosen, configs=configs),
        baseline=describe_baseline(record.baseline) if record.baseline else "",
    )


def _load_records(runs: Iterable[Run]) -> Iterable[tuple[Path, RunRecord]]:
    for run in runs:
        with suppress(AssayError):  # a job that never had a directory, or a damaged record
            yield run.path, RunRecord.load(run.path)


def _list_tried(comparison: Comparison) -> Iterable[tuple[str, int, str, str | None]]:
    """Each hyperparameter that differs: how many values, these or their bounds, and what was selected."""
    best = comparison.rows[comparison.best or 0].values
    for key in (key for key in comparison.columns if key not in REPETITIONS):
        values = list(dict.fromkeys(row.values.get(key) for row in comparison.rows))
        numbers = [value for value in map(plain_value, values) if is_number(value)]
        bounds = f"{min(numbers):g} to {max(numbers):g}" if len(numbers) == len(values) > 2 else ""
        yield key, len(values), bounds or join_first(values, _SHOWN), best.get(key)


def _list_searches(paths: Sequence[Path]) -> Iterable[str]:
    sweeps: list[Path] = []
    for path in paths:
        list(find_runs(path, sweeps=sweeps))
    for sweep in dict.fromkeys(sweeps):
        for words in Journal.open(sweep, repair=False).commands:
            yield shlex.join(["assay", "train", "-m", *words])


def _describe_model(record: RunRecord) -> tuple[str, tuple[int, ...]]:
    size = tuple(record.model[key] for key in ("trainable_parameters", "parameters") if record.model)
    return str(record.choices.get("model") or record.objects.get("model")), size


def _add_up(runs: Sequence[Run], records: Mapping[Path, RunRecord], configs: ConfigValues) -> Totals:
    """Runs, seconds and device-seconds by device, however the runs ended; `auto` is all GPUs of a machine."""
    used: Totals = {}
    for run in runs:
        machine: Mapping[str, Any] = records[run.path].machine if run.path in records else {}
        gpus = [] if value_of(run, "trainer.accelerator", configs) == "cpu" else machine.get("gpus", [])
        asked = plain_value(value_of(run, "trainer.devices", configs))
        nodes = plain_value(value_of(run, "trainer.num_nodes", configs))
        listed = asked.count(",") + 1 if str(asked)[:1] == "[" else max(1, len(gpus))
        count = (asked if is_whole(asked) and asked > 0 else listed) * (nodes if is_whole(nodes) else 1)
        device = str(gpus[0] if gpus else machine.get("cpu", "unknown"))
        number, time, hours = used.get(device, (0, 0, 0))
        used[device] = number + 1, time + run.seconds, hours + count * run.seconds
    return used


def _name_source(run: Run, configs: ConfigValues) -> str:
    places = (value_of(run, f"data.source.{key}", configs) for key in ("path", "root"))
    return " ".join(filter(None, (str(run.choices.get("data")), *places)))
