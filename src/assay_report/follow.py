"""`--follow`: runs are shown again after each change, until no process writes them any more."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from assay.errors import AssayError, ConfigError
from assay.record.run_lock import is_written
from assay.terminal import Console
from assay_analysis.read_runs import find_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Follow = Annotated[
    bool, typer.Option("--follow", help="Update after each change until no run is running.")
]
_TICK = 1.0
"""Seconds between two looks, at least."""
REWRITTEN_AFTER = 600.0
"""Seconds after which runs are shown again without a change, so that a page which grows old has no writer."""
_WATCHED = ("record.json", "metrics.csv", "journal.jsonl")


def check_form(form: str) -> None:
    """Refuse --follow where one document is expected."""
    if form != "table":
        raise ConfigError(
            f"shows tables and pages only, not {form}", key="--follow", hint="leave out --follow"
        )


def follow(paths: Sequence[Path], show: Callable[[bool], Path | None]) -> None:
    """Show runs, and again after each change while one of them is running.

    Args:
        paths: Runs, sweeps, or folders of either.
        show: Is told whether any is running; returns the file that it wrote.

    Raises:
        AssayError: Another process has written the file since.
    """
    shown = None
    file = None
    written = None
    drawn = 0.0
    is_running = True
    try:
        while is_running:
            start = time.monotonic()
            state = _look(paths)
            is_running = any(is_held for is_held, *_ in state.values())
            if state != shown or start > drawn + REWRITTEN_AFTER:
                if file is not None and _stamp(file) not in (None, written):
                    hint = "--out FILE writes it somewhere else"
                    raise AssayError(f"{file} was written by another process", hint=hint)
                file = show(is_running)
                written = file and _stamp(file)
                shown = state
                drawn = start
            if is_running:
                time.sleep(max(_TICK, time.monotonic() - start))  # at most half of a core
    except KeyboardInterrupt:
        if file is not None:
            show(False)  # a page that nobody rewrites does not reload
        raise


def follow_text(paths: Sequence[Path], print_to: Callable[[Console], None]) -> None:
    """Follow runs with a text: replaced on a terminal, elsewhere printed again where it has changed."""
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    text = ""

    def show(_: bool) -> None:
        nonlocal text
        before = text
        drawing = Console(highlight=False)  # whose output is not the live one's
        with drawing.capture() as capture:
            print_to(drawing)
        text = capture.get()
        if live is not None:
            live.update(Text.from_ansi(text), refresh=True)
        elif text != before:
            console.print(text, markup=False, soft_wrap=True)

    with (
        Live(console=console, auto_refresh=False)
        if console.is_terminal
        else nullcontext() as live
    ):
        follow(paths, show)


def _look(paths: Sequence[Path]) -> dict[Path, tuple[object, ...]]:
    """Of each run and sweep whether a process writes it, and how its files stand."""
    sweeps: list[Path] = []
    runs = [run for path in paths for run in find_runs(path, broken=True, sweeps=sweeps)]
    return {
        folder: (is_written(folder), *(_stamp(folder / name) for name in _WATCHED))
        for folder in (*runs, *sweeps)
    }


def _stamp(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written or replaced; None where there is none."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
