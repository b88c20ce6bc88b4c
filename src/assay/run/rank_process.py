"""The process of one rank of a distributed job; `assay.run.ranks` starts it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from assay.process.children import end_with_parent
from assay.process.stop_signals import STOP_SIGNALS


def main() -> None:
    """One rank: run the job of the directory named on the command line; what is trusted comes after it."""
    end_with_parent()
    from assay.run.train import run_rank

    code = run_rank(Path(sys.argv[1]), sys.argv[2:])
    for number in STOP_SIGNALS:  # all is written; what is left is Python's own end
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
