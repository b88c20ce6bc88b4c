"""What Lightning and torch say that is no news to somebody who composes runs from config."""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MEANT = (
    r".*is smaller than the logging interval",  # every epoch is logged anyway
    r".*does not have many workers",  # what fits in memory needs none
    r".*`srun` command is available on your system but is not used",  # the ranks need none
    r".*LeafSpec.* is deprecated",  # Lightning 2.6 with torch 2.15
    r".*Total length of `list` across ranks is zero",  # a config may ask for no validation or test subset
    r"Checkpoint directory .* exists and is not empty",  # it is the run's own
    r"Found \d+ module\(s\) in eval mode at the start",  # norms that a fine-tuning has frozen
    r".*dataloader is not resumable",  # the position is computed from the loop's progress
)


_TALKATIVE = {
    "lightning.pytorch": logging.WARNING,
    "lightning.fabric": logging.WARNING,
    "torch._subclasses.fake_tensor": logging.CRITICAL,  # what fails on fake tensors is reported otherwise
}


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Lightning's advertising and its hints on things that are meant as they are from the terminal."""
    levels = {name: logging.getLogger(name).level for name in _TALKATIVE}
    with warnings.catch_warnings():
        for message in _MEANT:
            warnings.filterwarnings("ignore", message=message)
        for name, level in _TALKATIVE.items():
            logging.getLogger(name).setLevel(level)
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)
