"""Files of predictions in a folder beside their table, such as masks: all of them or none."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from assay.errors import AssayError, ConfigError, cannot_write
from assay.files.atomic import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.task.prediction.prediction_batch import PredictionBatch


@final
class Beside:
    """Writes the files of predictions.

    Args:
        folder: That they will lie in; `writing_beside` gives it its name.
        unfinished: That they lie in until then.
        what: They hold.

    Attributes:
        folder: As given.
        what: As given.
    """

    def __init__(self, folder: Path, unfinished: Path, what: str) -> None:
        self.folder, self._unfinished, self.what = folder, unfinished, what
        self._names: set[str] = set()
        self._is_finished = False

    def add(self, inputs: Sequence[str], found: PredictionBatch[Any]) -> list[str]:
        """Write a file for each prediction, called as its input.

        Args:
            inputs: What each is of, as the table has it.
            found: As many.

        Returns:
            Where each will lie, as seen from the table.
        """
        return [
            self._write(Path(name).stem, found.file_of(at), found.file_suffix)
            for at, name in enumerate(inputs)
        ]

    def _write(self, stem: str, content: bytes, suffix: str) -> str:
        name, number = f"{stem}{suffix}", 1
        while name.casefold() in self._names:  # which some file systems hold for the same
            number += 1
            name = f"{stem}_{number}{suffix}"
        self._names.add(name.casefold())
        (self._unfinished / name).write_bytes(content)
        return f"{self.folder.name}/{name}"

    def finish(self) -> None:
        """Put the files where they will be, if there are any: before the table that names them."""
        if self._names:
            self.folder.mkdir(parents=True)
            self._unfinished.rename(self.folder)  # an empty folder is replaced
            self._is_finished = True

    def undo(self) -> None:
        """Take away what `finish` has put there."""
        if self._is_finished:
            shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def writing_beside(table: Path, what: str) -> Iterator[Beside]:
    """Open a folder of files beside a table, which `Beside.finish` puts there; nothing is left of a failure.

    Args:
        table: The table.
        what: The files hold, such as `mask`.

    Raises:
        ConfigError: There is such a folder already, whose files would be taken for these.
        AssayError: It cannot be written.
    """
    folder = table.with_name(f"{table.stem}_{what}s")
    if os.path.lexists(folder):
        raise ConfigError(
            f"{folder} is there already, with other predictions",
            key="--out",
            hint="remove it, or choose another name",
        )
    existing = next(one for one in folder.absolute().parents if one.is_dir())
    try:
        with temporary_folder(existing / folder.name) as unfinished:
            beside = Beside(folder, unfinished, what)
            try:
                yield beside
            except BaseException:
                beside.undo()
                raise
    except OSError as error:
        why = cannot_write(error) or error.strerror or str(error)
        raise AssayError(f"{folder} cannot be written: {why}", hint="nothing was left there") from error
