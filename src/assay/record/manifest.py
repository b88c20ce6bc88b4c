"""Whether the files of a run directory are those that the run wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.files.checksum import digest_of, sha256
from assay.files.symlinks import RESULTS, TEXTS

if TYPE_CHECKING:
    from pathlib import Path

_FILES = (*TEXTS, "metrics.csv", *RESULTS)


def files_of(run_dir: Path) -> dict[str, str]:
    """SHA-256 of each file that says what a run was and what came of it, by its name in the run directory.

    Of checkpoints the sum that is listed beside them, which was taken as they were written.

    Args:
        run_dir: Of a run that has ended.
    """
    sums = {}
    for name in [*_FILES, *sorted(path.name for path in run_dir.glob("code.*.patch"))]:
        if (run_dir / name).is_file():
            with (run_dir / name).open("rb") as file:
                sums[name] = digest_of(file)
    for path in sorted((run_dir / "checkpoints").glob("*.ckpt")):
        if not path.is_symlink():
            sums[f"checkpoints/{path.name}"] = sha256(path)
    return sums


def changed_since(run_dir: Path, files: dict[str, str]) -> list[str]:
    """Files of a run that are no longer what the run wrote, or gone; checkpoints are read."""
    changed = []
    for name, digest in files.items():
        path = run_dir / name
        if not path.is_file():
            changed.append(name)
            continue
        with path.open("rb") as file:
            if digest_of(file) != digest:
                changed.append(name)
    return changed
