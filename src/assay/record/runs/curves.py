"""The learning curves of a run: `metrics.csv`, which may still grow, or be somebody else's."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from assay.errors import AssayError
from assay.files.symlinks import read_whole

if TYPE_CHECKING:
    from pathlib import Path

FILE = "metrics.csv"
_LARGEST = 1 << 30
_FIRST = ("epoch", "step")


@final
@dataclass(frozen=True)
class Curve:
    """One metric over the course of a run.

    Attributes:
        steps: Optimizer steps before each value.
        epochs: Of each value, from 1; None where it was logged without one.
        values: As logged; they may be nan or infinite.
    """

    steps: list[int] = field(default_factory=list)
    epochs: list[int | None] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def read_curves(run_dir: Path) -> dict[str, Curve]:
    """Every metric that a run has logged; a last line that is still being written is left out.

    Raises:
        AssayError: There is no metrics.csv, or it is not what a run writes.
    """
    path = run_dir / FILE
    try:
        content = read_whole(path, _LARGEST)
    except FileNotFoundError as error:
        raise AssayError(f"{run_dir} has no {FILE}", hint="logger=[csv], the default, writes it") from error
    except OSError as error:
        raise AssayError(f"{path} cannot be read: {error.strerror}") from error
    # A last line without its end is still being written, or was cut off by a kill.
    lines = content[: content.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    reader = csv.reader(lines, strict=True)
    curves: dict[str, Curve] = {}
    try:
        header = next(reader, [])
        if header[:2] != list(_FIRST) or len(set(header)) < len(header):
            raise ValueError("its columns are not epoch, step and the names of metrics")
        for row in reader:
            if len(row) != len(header):
                raise ValueError(f"{len(row)} cells, and {len(header)} were expected")
            epoch, step = (int(cell) if cell else None for cell in row[:2])
            if max(abs(epoch or 0), abs(step or 0)) >= 1 << 63:
                raise ValueError("its epoch or step is too large a number")
            for name, cell in zip(header[2:], row[2:], strict=True):
                if cell:
                    curve = curves.setdefault(name, Curve())
                    curve.values.append(float(cell))
                    curve.steps.append(step or 0)
                    curve.epochs.append(epoch)
    except (ValueError, csv.Error) as error:
        raise AssayError(f"{path}:{max(1, reader.line_num)} is damaged: {error}") from error
    return curves
