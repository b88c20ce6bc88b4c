"""The overrides by which the jobs of a sweep differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from assay.record.journal import JobRecord

INNER_FOLDS: Final = "data.split.inner_folds"
"""How many inner folds choose a configuration; null in the jobs that test what they chose."""
_LONG: Final = 8
"""Characters of a number that nobody has typed."""


def varying(jobs: Iterable[JobRecord]) -> list[dict[str, str]]:
    """Overrides that not all jobs share, by key, one dictionary per job.

    >>> from assay.record.journal import JobRecord
    >>> jobs = [JobRecord(0, "", ("data=iris", "seed=1")), JobRecord(1, "", ("data=iris", "seed=2"))]
    >>> varying(jobs)
    [{'seed': '1'}, {'seed': '2'}]
    """
    typed = [dict(_pair(override) for override in job.overrides) for job in jobs]
    keys = {key: None for values in typed for key in values}
    shared = {key for key in keys if len({values.get(key) for values in typed}) == 1}
    if len(typed) == 1:  # alone, everything that was typed stands for it
        shared = set()
    return [{key: values[key] for key in keys if key not in shared and key in values} for values in typed]


def fold_of(overrides: Iterable[str]) -> int | None:
    """Which fold a job tests; None for one without folds.

    >>> fold_of(["seed=1", "fold=2"]), fold_of(["seed=1", "fold=null"])
    (2, None)
    """
    typed = dict(_pair(override) for override in overrides).get("fold", "")
    return int(typed) if typed.isdecimal() else None


def in_short(values: Mapping[str, str]) -> dict[str, str]:
    """Values as they are shown: numbers that were drawn, with four significant digits.

    Args:
        values: As typed, by key.

    >>> in_short({"optimizer.lr": "0.004903618401148253", "seed": "1"})
    {'optimizer.lr': '0.004904', 'seed': '1'}
    """
    return {key: _in_short(value) for key, value in values.items()}


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+"), value


def _in_short(value: str) -> str:
    try:
        return value if len(value) <= _LONG else f"{float(value):.4g}"
    except ValueError:
        return value
