"""A finished run that is trained once more, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import AssayError

if TYPE_CHECKING:
    from collections.abc import Sequence


CODE = "code"
"""Folder of the code of the run, where that is not the checkout's."""


def run_again(run_dir: Path, again: Path, trusted: Sequence[str]) -> None:
    """Train a finished run once more, beside the code that was brought back for it."""
    from omegaconf import open_dict

    from assay.record.run_record import RunRecord
    from assay.run.resume import change
    from assay.run.saved_config import read_config
    from assay.run.train import prove, run_job
    from assay.targets.trust import check_external_values, trust

    record = RunRecord.load(run_dir)
    config = change(
        again, read_config(run_dir, trusted, must_be_whole=True), record.interpolations, []
    ).config
    with open_dict(config):
        config.logger = {}  # nobody else's log is to hold this run
    check_external_values(config, trust(()))
    proof = prove(config, record.overrides)
    run_job(
        *(config, record.overrides, record.choices, proof),
        raise_errors=False,
        data_sha256=record.data_sha256,
        micro_batch=record.micro_batch,
    )
    code = again.parent / CODE
    if code.is_dir():
        _check_origin(code, [*config.trusted_packages])


def _check_origin(code: Path, packages: Sequence[str]) -> None:
    """Refuse what was not trained with the code that was brought back."""
    for name in packages:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is not None and not Path(file).resolve().is_relative_to(code.resolve()):
            raise AssayError(
                f"{name} was imported from {Path(file).parent}, which is not the code of the run",
                hint=f"uninstall {name}, or install the version of the run",
            )
