"""The process of one rank of a distributed job; `assay.run.ranks` starts it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from assay.process.children import end_with_parent


def main() -> None:
    """One rank: run the job of the directory named on the command line; what is trusted comes after it."""
    end_with_parent()
    from assay.run.train import run_rank

    code = run_rank(Path(sys.argv[1]), sys.argv[2:])
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # all is written; what is left is Python's own end
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
