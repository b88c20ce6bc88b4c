"""What a launcher is given to run: plain data, so that it reaches another process or machine as it is."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, final


@final
@dataclass(frozen=True)
class JobSpec:
    """One attempt at one job of a sweep.

    Attributes:
        number: Of the job, from 0.
        attempt: From 1.
        run_dir: Where it writes.
        config: The composed job as `assay.config.serialize.to_text` writes it.
        overrides: What stands for this job in the sweep, such as `optimizer.lr=0.1`.
        choices: Which option of each group.
        spec: What the data is, as the check found it; empty where the check had to read the data.
        resume: Go on with the run that lies in `run_dir`.
        output: File that takes what the job prints.
        cwd: Directory in which it runs.
        environment: Variables it gets beside those of the sweep's own process; None takes one away.
        processes: It starts, one per device.
        gpus: It needs; 0 for a job that runs on the CPU.
        threads: Of each of its processes.
        memory_gb: It may take at most; None for any amount.
        trial: Where it reports its score after each validation and asks whether to go on; see
            `assay.callbacks.pruning.Pruning`. None outside a study.
    """

    number: int
    attempt: int
    run_dir: str
    config: str
    overrides: list[str]
    choices: dict[str, Any]
    spec: dict[str, Any] = field(default_factory=dict)
    resume: bool = False
    output: str = ""
    cwd: str = "."
    environment: dict[str, str | None] = field(default_factory=dict)
    processes: int = 1
    gpus: int = 0
    threads: int = 1
    memory_gb: float | None = None
    trial: dict[str, Any] | None = None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """Read `to_json` back.

        Args:
            text: One line of JSON.

        >>> job_spec = JobSpec(0, 1, "sweep/0", "{}", ["seed=1"], {"data": "digits"})
        >>> JobSpec.from_json(job_spec.to_json()) == job_spec
        True
        """
        return cls(**json.loads(text))
