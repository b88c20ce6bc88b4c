"""Which runs are looked at: `--where model=resnet18`, `--where 'test/accuracy>0.9'`."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any, Final

from assay.config.did_you_mean import did_you_mean
from assay.errors import ConfigError
from assay.record.runs.config_values import OF_THE_RECORD, value
from assay.record.runs.plain_value import plain_value
from assay.record.runs.run import same_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.record.runs.config_values import ConfigValues
    from assay.record.runs.run import Run

_WRITTEN: Final = re.compile(r"\s*([^=<>!]+?)\s*(!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def meeting(runs: Sequence[Run], conditions: Sequence[str], configs: ConfigValues) -> list[Run]:
    """The runs that meet every condition; of those that cannot be read, none unless it is asked for them.

    Args:
        runs: From `read_runs`.
        conditions: `KEY=VALUE`, or with `!=`, `<`, `<=`, `>`, `>=`. The key is a group, a key of the
            config, a metric, or one of `OF_THE_RECORD`.
        configs: Reads what was not typed.

    Raises:
        ConfigError: A condition cannot be read, or no run has such a key.
    """
    kept = list(runs)
    for condition in conditions:
        parts = _WRITTEN.fullmatch(condition)
        if parts is None:
            raise ConfigError(
                f"{condition!r} is not a condition",
                key="--where",
                hint="--where model=mlp, or --where 'test/accuracy>0.9'",
            )
        key, sign, text = parts[1], parts[2], parts[3].strip().strip("'\"")
        values = {run.path: value(run, key, configs) for run in runs}
        if all(one is None for one in values.values()):
            raise no_such_key(key, runs, "--where")
        kept = [run for run in kept if _holds(values[run.path], sign, text)]
    return kept


def no_such_key(key: str, runs: Sequence[Run], option: str) -> ConfigError:
    """What is said where no run has a key.

    Args:
        key: As typed.
        runs: All of them.
        option: That it was typed for.
    """
    known = [name for run in runs for name in (*run.choices, *run.typed, *run.metrics)]
    near = did_you_mean(key, dict.fromkeys((*known, *OF_THE_RECORD)))
    return ConfigError(
        f"no run has {key!r}", key=option, hint=near or "a group, a full key of the config, or a metric"
    )


def _holds(found: Any, sign: str, text: str) -> bool:
    if sign in ("=", "!="):
        same = found is not None and (same_value(found, text) or str(found) == text)
        return same == (sign == "=")
    number, bound = plain_value(found), plain_value(text)
    both = (number, bound)
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in both):
        both = (str(found), text)
        if found is None or not isinstance(bound, str):
            return False
    return _ORDERS[sign](*both)
