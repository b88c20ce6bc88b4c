"""One job, from config to finished record."""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from assay import ranks
from assay.assemble import Assembly, assemble
from assay.check.device import check_device
from assay.check.signature import check_signatures
from assay.config.compose import compose, job_config
from assay.config.fingerprint import fingerprint
from assay.errors import AssayError
from assay.record.log_file import log_file
from assay.record.run_directory import RunDirectory
from assay.record.run_record import RunRecord
from assay.restore import read_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger("assay")


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes:
        run_dir: Where everything about it lies.
        status: `finished`, `failed` or `interrupted`.
        metrics: Last value of each scalar, such as `test/accuracy`.
        best: Monitored metric, its value and the epoch of the best checkpoint; empty without one.
        overrides: What was typed.
        seconds: From start to end.
        reason: How it ended, when not well.
    """

    run_dir: Path
    status: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    seconds: float = 0.0
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """0 for a finished run, 130 for one stopped by hand, 1 otherwise."""
        return {"finished": 0, "interrupted": 130}.get(self.status, 1)


def train(
    overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, raise_errors: bool = True
) -> RunResult:
    """Compose, train, test and record one experiment.

    Args:
        overrides: As on the command line: `["data=wine", "model=mlp", "optimizer.lr=0.01"]`.
        config_dir: Your own folder of config groups; `./conf` where there is one.
        raise_errors: Let an exception of the training through, after it was recorded; otherwise the result tells of it.

    Returns:
        The scores, and where the run directory is.

    Raises:
        AssayError: The config, the data or the device cannot be used; nothing was written.
    """
    composed = compose(overrides, Path(config_dir) if config_dir else None)
    return run_job(job_config(composed), overrides, choices(composed.hydra), raise_errors=raise_errors)


def run_job(
    config: DictConfig, overrides: Sequence[str], chosen: Mapping[str, Any], *, raise_errors: bool
) -> RunResult:
    """Run a composed job in this process, or on several where its device asks for that.

    Args:
        config: The job.
        overrides: What was typed.
        chosen: Which option of each group.
        raise_errors: As for `train`.

    Raises:
        AssayError: As for `train`.
    """
    run_dir = Path(config.run_dir)
    check_device(config.trainer)
    check_signatures(config)
    processes = ranks.count(config)
    if processes > 1:
        prepare(config)
        begin(run_dir, config, overrides, chosen)
        ranks.launch(run_dir, processes)
        return result_of(run_dir)
    assembly = assemble(config)
    record = begin(run_dir, assembly.config, overrides, chosen)
    execute(assembly, run_dir, record, raise_errors=raise_errors)
    return result_of(run_dir)
