"""Many jobs by Hydra's own multirun: its sweeper expands them, its launcher runs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console
from rich.markup import escape

from assay.check.all_jobs import check_all
from assay.check.job import check_job
from assay.config.compose import PRIMARY, choices, complete, compose_with, job_config, loader, trust_for
from assay.config.composition_error import composition_error
from assay.config.hydra_node import check_hydra
from assay.config.origin import located, overrides_of
from assay.config.sweep import compose_sweep
from assay.errors import AssayError
from assay.run import RunResult, run_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omegaconf import DictConfig


def multirun(
    overrides: Sequence[str], config_dir: Path | None = None, jobs: Sequence[DictConfig] | None = None
) -> list[RunResult]:
    """Run every job of a sweep; a job that fails does not stop the others.

    Args:
        overrides: As typed, sweeps such as `seed=1,2,3` among them.
        config_dir: The user's folder of config groups.
        jobs: What `compose_sweep` made of them, where that is known already.

    Returns:
        One result a job, in order.

    Raises:
        AssayError: The config of a job cannot run here; nothing has run then.
    """
    if jobs is None:
        jobs = compose_sweep(overrides, config_dir)
        for composed in jobs:
            with located(overrides_of(composed), config_dir):
                check_job(job_config(composed))
    reports = check_all(jobs, config_dir)
    results: list[RunResult] = []
    console = Console(highlight=False, soft_wrap=True)

    def job(config: DictConfig) -> float | None:
        hydra = cast("DictConfig", HydraConfig.get())
        own = [str(override) for override in hydra.overrides.task]
        complete(config, hydra, trusted, hydra.runtime.output_dir)
        console.rule(f"[bold]job {hydra.job.num}[/bold]  {escape(' '.join(own))}", align="left", style="dim")
        try:
            with located(own, config_dir):
                report = reports[int(hydra.job.num)]
                result = run_job(config, own, choices(hydra), raise_errors=False, report=report)
        except AssayError as error:
            result = RunResult(Path(config.run_dir), "failed", overrides=own, reason=error.message)
            console.print(f"[bold red]error:[/bold red] {escape(str(error))}")
        results.append(result)
        if result.status == "interrupted":
            raise KeyboardInterrupt
        return None

    with loader(config_dir) as hydra:
        trusted = trust_for(hydra, overrides)
        # Hydra makes its sweeper, launcher and callbacks from this config, which is none of the jobs'.
        check_hydra(compose_with(hydra, overrides, RunMode.MULTIRUN).hydra)
        try:
            hydra.multirun(
                config_name=PRIMARY,
                task_function=job,
                overrides=list(overrides),
                with_log_configuration=False,
            )
        except KeyboardInterrupt:
            console.print("stopped by hand; the jobs after this one were not started")
        except (HydraException, OmegaConfBaseException) as error:
            raise composition_error(error, overrides, hydra.config_loader) from error
    return results
