"""The command line, as a process."""

import sys

ASSAY = (sys.executable, "-c", "from assay.cli.app import main; main()")
