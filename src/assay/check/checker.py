"""A job is checked before it runs, and so are many; what they have in common is looked at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from assay.check.job import check_job
from assay.compose.compose import compose_job
from assay.compose.origin import located
from assay.config.serialize import LARGEST_SEED, check_whole_number, fingerprint_of
from assay.errors import AssayError, ConfigError, ProcessError
from assay.quoting import reads_as_number
from assay.record.provenance import check_clean
from assay.record.run_directory import refuse_existing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.check.prove import Prover
    from assay.check.report import Proof, Report
    from assay.compose.compose import Job

Failure = tuple[int, "Sequence[str]", AssayError]
"""Number of a job, its overrides, and why it cannot run."""
_MOST: Final = 10
"""Different errors to show."""


@final
class Checker:
    """Checks jobs: names and values first, without torch, then all the rest."""

    def __init__(
        self,
        config_dir: Path | None = None,
        *,
        curve: bool = False,
        prove: Callable[[Job], Proof] | None = None,
        accept: Callable[[Report], None] = lambda _: None,
    ) -> None:
        self._config_dir, self._curve, self._accept = config_dir, curve, accept
        self._prove = prove or self._prove_here
        self._prover: Prover | None = None
        self._words: set[tuple[str, str]] = set()
        self._named: set[tuple[str, str]] = set()
        self._proven: dict[str, Report] = {}

    def job(self, overrides: Sequence[str]) -> Job:
        """Compose a job and refuse what can be seen without torch: a mistyped word costs no wait."""
        job = compose_job(overrides, self._config_dir)
        self.names({0: job})
        refuse_existing(Path(job.config["run_dir"]))
        if job.config.get("enforce_clean_git"):
            check_clean(Path.cwd())
        return job

    def names(self, jobs: Mapping[int, Job]) -> None:
        """Refuse what can be seen without torch; a job whose every word was seen before is left for later."""
        for job in jobs.values():
            # A number is not a mistyped word: what is wrong with it is seen soon enough.
            words = (one for one in job.overrides if not reads_as_number(one.partition("=")[2]))
            new = {(job.shared, word) for word in (*words, "")} - self._words
            if new:
                with located(job.overrides, self._config_dir):
                    self._check_names(job)
                self._words |= new

    def all(self, jobs: Mapping[int, Job]) -> dict[int, Report]:
        """Check jobs one after another, whatever becomes of each."""
        reports: dict[int, Report] = {}
        failures: list[Failure] = []
        for number, job in jobs.items():
            try:
                reports[number] = self.report(job)
            except ProcessError:
                raise
            except AssayError as error:
                failures.append((number, job.overrides, error))
        if failures:
            raise failures[0][2] if len(jobs) == 1 else summary_of(failures, len(jobs)) from failures[0][2]
        return reports

    def report(self, job: Job) -> Report:
        """Check a job; what another one has told that differs in the seed alone is not asked again."""
        alike = _but_for_the_seed(job)
        if alike not in self._proven:
            report = self.check(job).report
            if alike and not report.data_read:
                self._proven[alike] = report
            return report
        with located(job.overrides, self._config_dir):
            check_whole_number("seed", job.config.get("seed"), 0, LARGEST_SEED)
        return replace(
            self._proven[alike], overrides=job.overrides, name=str(job.config["name"]), seconds=0.0
        )

    def check(self, job: Job) -> Proof:
        """Check a job whose run gets what was made for that."""
        with located(job.overrides, self._config_dir):
            self._check_names(job)
            proof = self._prove(job)
            self._accept(proof.report)
        return proof

    def _check_names(self, job: Job) -> None:
        key = (job.fingerprint, str(job.config["run_dir"]))
        if key not in self._named:
            check_job(job.to_config())
            self._named.add(key)

    def _prove_here(self, job: Job) -> Proof:
        if self._prover is None:
            from assay.check.prove import Prover  # it imports torch

            self._prover = Prover()
        return self._prover.prove(job.to_config(), job.overrides, curve=self._curve)


def _but_for_the_seed(job: Job) -> str:
    """Names a job and those that differ from it in the seed alone; empty where more depends on the seed."""
    text = json.dumps(job.config, default=str)
    inside = text.count("${seed}") - (job.config.get("data", {}).get("seed") == "${seed}")
    return "" if inside else fingerprint_of(job.config, without=("seed",))


def summary_of(failures: Sequence[Failure], total: int) -> AssayError:
    """One error for all; those with the same message are told once."""
    by_message: dict[str, list[Failure]] = {}
    for failure in failures:
        by_message.setdefault(str(failure[2]), []).append(failure)
    lines = [f"{len(failures)} of {total} jobs cannot run; none was started"]
    for message, same in list(by_message.items())[:_MOST]:
        number, own, _ = same[0]
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        lines.append(f"job {number}{others} ({' '.join(own)})")
        lines.extend(f"  {line}" for line in message.splitlines())
    if len(by_message) > _MOST:
        lines.append(f"… and {len(by_message) - _MOST} other errors")
    error = ConfigError("\n".join(lines))
    error.exit_code = max(failure[2].exit_code for failure in failures)
    return error
