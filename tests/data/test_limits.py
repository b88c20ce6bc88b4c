from __future__ import annotations

import re
from typing import Any

import pytest

from assay.data.limits import NAMES, check_limits
from assay.errors import ConfigError

FINE = {"batch_size": 64, "eval_batch_size": 512, "num_workers": 2, "split.val": 0.1, "split.test": 0.2}


@pytest.mark.parametrize(
    "values",
    [{}, FINE, {"batch_size": 1, "num_workers": 0, "imbalance": 1}, {"split.val": 0, "split.test": 0}],
)
def test_what_is_taken(values: dict[str, Any]) -> None:
    check_limits(dict.fromkeys(NAMES) | values)
    check_limits(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "data.batch_size: 0 was given; a whole number of at least 1 was expected"),
        ({"eval_batch_size": True}, "data.eval_batch_size: True was given"),
        ({"num_workers": 2000}, "data.num_workers: 2000 was given; a whole number from 0 to 1024"),
        ({"prefetch_factor": 1.5}, "data.prefetch_factor: 1.5 was given"),
        *(({"split.val": share}, f"data.split.val: {share} was given") for share in (1.0, -0.1, True, "x")),
        ({"split.val": 0.5, "split.test": 0.5}, "data.split.val, data.split.test: 0.5 and 0.5 leave nothing"),
        *(({"imbalance": ratio}, f"data.imbalance: {ratio} was given") for ratio in (0.0, -1.0, 1.5, "x")),
    ],
    ids=str,
)
def test_what_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_limits(dict.fromkeys(NAMES) | values)
