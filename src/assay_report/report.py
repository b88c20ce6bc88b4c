"""`assay report`: the page of a run, a sweep or several runs, and its figures as pictures."""

from __future__ import annotations

import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, final

from assay.errors import ConfigError, explain_write_errors
from assay.figure import to_frame
from assay.files.atomic import write_bytes
from assay.record.run_record import FILE
from assay_analysis.comparison import csv_text
from assay_report.draw import to_png
from assay_report.page import write
from assay_report.run_page import run_page
from assay_report.sweep_page import is_sweep, read_contents, sweep_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.figure import Figure
    from assay_report.page import Page


_START = b"<!doctype html>\n<html lang="
"""Of every page."""


@final
@dataclass(frozen=True)
class Report:
    """What was written.

    Attributes:
        of: What it is a report of: `run`, `sweep` or `runs`.
        title: Of whom.
        page: The HTML file.
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
    paths: Sequence[Path],
    out: Path | None = None,
    png: Path | None = None,
    csv: Path | None = None,
    *,
    reloads_for: float = 0.0,
) -> Report:
    """Write a report, which the browser reloads for some seconds where it will be rewritten."""
    file = out or (paths[0] if len(paths) == 1 else Path()) / "report.html"
    check_overwrite(file)
    for option, folder in (("--png", png), ("--csv", csv)):
        if folder is not None and folder.exists() and not folder.is_dir():
            raise ConfigError(
                f"{folder} is not a folder", key=option, hint=f"{option} {folder.parent}"
            )
    run_dir = paths[0]
    if len(paths) == 1 and (run_dir / FILE).exists() and not is_sweep(run_dir):
        page = run_page(run_dir)
    else:
        page = sweep_page(read_contents(paths), file.absolute().parent)
    pictures = _write_each(page, png, ".png", to_png)
    tables = _write_each(page, csv, ".csv", _csv)
    with explain_write_errors(file, "--out FILE writes it somewhere else"):
        write(replace(page, reloads_for=reloads_for), file)
    names = [figure.name for figure in page.figures]
    return Report(page.kind.lower(), page.title, file, names, pictures, tables)


def _csv(figure: Figure) -> bytes:
    return csv_text(to_frame(figure)).encode(errors="backslashreplace")


def _write_each(
    page: Page,
    folder: Path | None,
    suffix: str,
    draw: Callable[[Figure], bytes],
) -> list[Path]:
    files = {}
    if folder is not None:
        files = {folder / f"{fig.name}{suffix}": fig for fig in page.figures}
    for path, figure in files.items():
        with explain_write_errors(
            path, f"--{suffix.removeprefix('.')} DIR writes it somewhere else"
        ):
            write_bytes(path, draw(figure))
    return list(files)


def check_overwrite(file: Path) -> None:
    """Refuse to replace a file that is not a report: it may be data, or the run's own record."""
    if file.is_dir() or file.suffix != ".html":
        name = file.with_suffix(".html")
        raise ConfigError(
            f"{file}: expected a name that ends in .html", key="--out", hint=f"--out {name}"
        )
    try:
        is_other = not stat.S_ISREG(file.stat().st_mode)  # a pipe would never end
        if not is_other:
            with file.open("rb") as opened:
                is_other = opened.read(len(_START)) not in (b"", _START)
    except OSError:  # nothing is there, or the error is reported when it is written
        return
    if is_other:
        message = f"{file} exists and is not a report; refusing to overwrite"
        raise ConfigError(message, hint="--out FILE writes it somewhere else")
