"""A rank of a distributed job, in a process of its own."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from assay.process import STOP_SIGNALS
from assay_cluster.children import end_with_parent


def run_rank(run_dir: str, *trusted: str) -> None:
    """Run the job of a directory, as one of several processes."""
    try:
        from assay_cluster.processes import run_rank as run

        code = run(Path(run_dir), trusted)
    except (
        KeyboardInterrupt
    ):  # at once: the launcher ends the others, who would wait for this one
        code = 130
    finally:  # all is written, also where Lightning has called exit; what is left is Python's own end
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def main() -> None:
    """Be the rank that the command line names."""
    end_with_parent()
    run_rank(*sys.argv[1:])


if __name__ == "__main__":
    main()
