"""`encoder.json` of a run: what its table's columns are turned into, as plain data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.data.tabular.table_encoder import TableEncoder
from assay.errors import AssayError, first_line
from assay.files.atomic import write_text
from assay.files.sealed import json_is_whole, seal_json
from assay.files.symlinks import read_whole

if TYPE_CHECKING:
    from pathlib import Path

    from assay.data.samples import Encoder

FILE = "encoder.json"


def write_encoder(run_dir: Path, encoder: Encoder | None) -> None:
    """Keep what a table's encoder has learned.

    Args:
        run_dir: The run directory.
        encoder: Of the run's data; one of somebody's own is not kept.
    """
    if isinstance(encoder, TableEncoder):
        plain = json.dumps(encoder.as_plain(), indent=2, ensure_ascii=False)
        write_text(run_dir / FILE, seal_json(plain))


def read_encoder(run_dir: Path, *, of_table: bool = False) -> TableEncoder | None:
    """The encoder of a run's table; None where the run has none.

    Args:
        run_dir: Run directory, perhaps somebody else's.
        of_table: The run was trained on a table, so that it must have one.

    Raises:
        AssayError: The file is damaged, or missing.
    """
    path = run_dir / FILE
    try:
        data = read_whole(path)
        whole = json_is_whole(data)
        plain: Any = json.loads(data) if whole else None
        if isinstance(plain, dict) and isinstance(plain.get("columns"), list):
            return TableEncoder.from_plain(plain)
    except FileNotFoundError as error:
        if of_table:
            raise AssayError(
                f"{path} is not there: what the columns of the run's table are turned into is not known",
                hint="restore it from a copy",
            ) from error
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise AssayError(f"{path} cannot be read: {first_line(error)}") from error
    raise AssayError(
        f"{path} is damaged or was changed: it is not as its SHA-256 says", hint="restore it from a copy"
    )
