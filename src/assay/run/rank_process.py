"""The process of one rank of a distributed job; `assay.run.ranks` starts it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from assay.process import STOP_SIGNALS, end_with_parent


def main() -> None:
    """One rank: run the job of the directory named on the command line; what is trusted comes after it."""
    try:
        end_with_parent()
        from assay.run.execute import run_rank

        code = run_rank(Path(sys.argv[1]), sys.argv[2:])
    except KeyboardInterrupt:  # at once: the launcher ends the others, who would wait for this one
        code = 130
    finally:  # all is written, also where Lightning has called exit; what is left is Python's own end
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
