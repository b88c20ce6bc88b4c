"""What a process does that a fork server has forked, from its first moment to its last."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.sweep.job_spec import JobSpec


def work(job_spec: JobSpec, result: int) -> None:
    """Run a job, and leave its outcome.

    Args:
        job_spec: The attempt.
        result: Descriptor of the file that takes the outcome.
    """
    from assay.sweep.worker.run_job import run_job_spec

    process = os.getpid()
    outcome = run_job_spec(job_spec)
    if os.getpid() == process:  # not for a process that the job has forked and not kept to itself
        with suppress(OSError):
            os.write(result, outcome.to_json().encode())


def check(connection: int) -> None:
    """Check jobs; see `assay.sweep.worker.check_process.serve`.

    Args:
        connection: Descriptor of the socket to the driver.
    """
    from assay.sweep.worker.check_process import serve

    serve(connection)


def live(body: Callable[[], None]) -> NoReturn:
    """Do something and end as a program does, without going back to the frames of the fork server.

    What the fork server held when it forked is left to it: taking down torch's two hundred libraries of
    operations alone costs a job 0.03 s.
    """
    import atexit
    import threading
    import weakref

    for inherited in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # no public way to list them
        inherited.atexit = False
    try:
        body()
        threading._shutdown()  # type: ignore[attr-defined]  # waits for what is not a daemon, as a program does
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(0)
