"""Every job of a sweep is checked before the first one starts; what jobs have in common is looked at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, final

from omegaconf import OmegaConf

from assay.check.error_summary import each
from assay.check.job import check_job
from assay.check.static.monitor import check_asked_for
from assay.compose.origin import located
from assay.config.fingerprint import fingerprint_of
from assay.config.value import LARGEST_SEED, check_whole_number
from assay.quoting import reads_as_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from assay.compose.job_composer import Job
    from assay.sweep.checker import Checked
    from assay.sweep.objective import Objective


@final
class Checking:
    """Checks jobs: names and values here, without torch; what needs torch where torch is.

    Args:
        prove: Does what needs torch.
        scores: That each job must have, and the keys that ask for them.
        aims: What the jobs are compared by.
        config_dir: The user's folder of config groups, to say where a wrong value stands.
    """

    def __init__(
        self,
        prove: Callable[[Job], Checked],
        scores: Mapping[str, str],
        config_dir: Path | None,
        aims: Sequence[Objective] = (),
    ) -> None:
        self._prove, self._scores, self._config_dir, self._aims = prove, scores, config_dir, aims
        self._seen: set[tuple[str, str]] = set()
        self._proven: dict[str, Checked] = {}

    def names(self, jobs: Mapping[int, Job]) -> None:
        """Refuse what can be seen without torch.

        Args:
            jobs: By number.

        Raises:
            ConfigError: Of the first one that is wrong: most words are typed for all of them.
        """
        for job in jobs.values():
            self._names(job)

    def all(self, jobs: Mapping[int, Job]) -> dict[int, Checked]:
        """Check each job as far as that can be done before it runs.

        Args:
            jobs: By number.

        Raises:
            AssayError: Of several jobs each is named, with its error.
        """
        return each(jobs, self.one, lambda job: job.overrides)

    def one(self, job: Job) -> Checked:
        """Check one job.

        Args:
            job: Composed.

        Raises:
            AssayError: It cannot run.
        """
        alike = _but_for_the_seed(job)
        if alike in self._proven:
            check_whole_number("seed", job.config.get("seed"), 0, LARGEST_SEED)
            return self._proven[alike]
        with located(list(job.overrides), self._config_dir):
            self._names(job)
            checked = self._prove(job)
            check_asked_for(checked.scores, self._scores)
            for aim in self._aims:
                aim.check(checked.directions)
        if alike and not checked.data_read:
            self._proven[alike] = checked
        return checked

    def _names(self, job: Job) -> None:
        """Look at the job, unless every value in it has been seen in a job like it."""
        # A number is no mistyped word: what is wrong with it is seen soon enough.
        words = (override for override in job.overrides if not reads_as_number(override.partition("=")[2]))
        new = {(job.shared, override) for override in words} | {(job.shared, "")}
        if new <= self._seen:
            return
        with located(list(job.overrides), self._config_dir):
            config = OmegaConf.create(job.config)
            OmegaConf.set_struct(config, True)
            check_job(config)
        self._seen |= new


def _but_for_the_seed(job: Job) -> str:
    """Names a job and those that differ from it in the seed alone; empty where more depends on the seed."""
    text = json.dumps(job.config, default=str)
    inside = text.count("${seed}") - (job.config.get("data", {}).get("seed") == "${seed}")
    return "" if inside else fingerprint_of(job.config, without=("seed",))
