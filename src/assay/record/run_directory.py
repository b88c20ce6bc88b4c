"""Names within a run directory, and finding run directories."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from assay.errors import AssayError
from assay.record.atomic import write_text
from assay.record.run_record import FILE
from assay.record.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator


@final
@dataclass(frozen=True)
class RunDirectory:
    """One run's files.

    Attributes:
        path: The directory.
    """

    path: Path

    @classmethod
    def create(cls, path: Path) -> RunDirectory:
        """Make a new run directory.

        Args:
            path: Where; its parents are made too.

        Raises:
            AssayError: There is a run already, or the place cannot be written to.
        """
        if (path / FILE).exists():
            raise AssayError(f"{path} already holds a run", hint="choose another hydra.run.dir, or remove the old run")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AssayError(f"the run directory {path} cannot be made: {error.strerror}", hint="hydra.run.dir=SOMEWHERE/ELSE") from error
        return cls(path)

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def metrics(self) -> Path:
        """Table of the logged points."""
        return self.path / "metrics.csv"

    @property
    def log(self) -> Path:
        """Everything said."""
        return self.path / "log.txt"

    def write(self, name: str, text: str) -> None:
        """Write one text file, without secrets.

        Args:
            name: `config.yaml`, `overrides.yaml` or `code.patch`.
            text: The content.
        """
        write_text(self.path / name, redact(text))


def find_runs(root: Path) -> Iterator[Path]:
    """Every run directory below a folder; a directory with a record is a run and is not searched further.

    Args:
        root: Such as `outputs`.
    """
    pending = [str(root)]
    while pending:
        folder = pending.pop()
        below: list[str] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == FILE:
                    yield Path(folder)
                    below = []
                    break
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
        pending += below
