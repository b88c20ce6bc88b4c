"""What is kept from the terminal, and that nothing else is."""

from __future__ import annotations

import logging
import warnings
from contextlib import suppress

from assay.build.trainer import quiet


def test_only_what_is_meant_as_it_is_is_kept_back() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet():
            warnings.warn("The 'train_dataloader' does not have many workers", stacklevel=1)
            warnings.warn("a tensor was not contiguous", stacklevel=1)
        warnings.warn("does not have many workers", stacklevel=1)
    said = [str(one.message) for one in caught]
    assert said == [
        "a tensor was not contiguous",
        "does not have many workers",
    ]


def test_loggers_are_as_before_also_after_an_error() -> None:
    logger = logging.getLogger("lightning.pytorch")
    before = logger.level
    with suppress(KeyError), quiet():
        assert logger.level == logging.WARNING
        raise KeyError
    assert logger.level == before
