"""Everything said in a run, in its `log.txt`."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from assay.record.secrets import redact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class _Formatter(logging.Formatter):
    converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Append what is logged, and Python's warnings, to a file.

    Args:
        path: `log.txt`.
    """
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(_Formatter("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger()
    lightning = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    level = root.level
    root.addHandler(handler)
    root.setLevel(min(level, logging.INFO) if level else logging.INFO)
    for logger in lightning:  # Lightning's loggers do not hand on to the root
        logger.addHandler(handler)
    logging.captureWarnings(capture=True)
    try:
        yield
    finally:
        logging.captureWarnings(capture=False)
        for logger in lightning:
            logger.removeHandler(handler)
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
