"""In what configurations differ: what was typed, and where that does not say it, what their configs hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from assay.config.group_packages import PACKAGES
from assay.errors import AssayError
from assay.record.runs.config_values import value
from assay.record.runs.plain_value import plain_value, shown
from assay.record.runs.run import is_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.record.runs.config_values import ConfigValues
    from assay.record.runs.run import Run

_MOST: Final = 6
"""Columns for what nobody has typed."""
_FINGERPRINT: Final = "config"
Values = list[dict[str, str | None]]


def config_columns(
    runs: Sequence[Run], asked: Sequence[str], configs: ConfigValues
) -> tuple[list[str], Values, list[str]]:
    """Keys in which configurations differ, the values of each, and what there is to say about them.

    Args:
        runs: One of each configuration.
        asked: Keys to show in their place.
        configs: Reads what was not typed.
    """
    if asked:
        return list(asked), [{key: _text(value(run, key, configs)) for key in asked} for run in runs], []
    keys = [key for key in _candidates(runs) if _differs(key, runs, configs)]
    if len(runs) == 1:
        keys = [key for key in runs[0].typed if is_config(key)]
    values = [{key: _text(value(run, key, configs)) for key in keys} for run in runs]
    if len({run.config_fingerprint for run in runs}) < len(runs) and len({run.seed for run in runs}) > 1:
        keys = [*keys, "seed"]
        values = [{**own, "seed": str(run.seed)} for run, own in zip(runs, values, strict=True)]
    names = {run.typed.get("name") for run in runs}
    if len(names) > 1:
        keys = ["name", *keys]
        values = [{"name": run.name, **own} for run, own in zip(runs, values, strict=True)]
    notes: list[str] = []
    for alike in _alike(values, runs):
        more, left_out = _untyped(
            list({runs[number].config_fingerprint: runs[number] for number in alike}.values()), configs
        )
        for number in alike:
            values[number] |= {key: more[key][runs[number].config_fingerprint] for key in more}
        keys += [key for key in more if key not in keys]
        if left_out:
            notes.append(f"rows that were typed alike differ in {left_out} more keys; `assay diff` names all")
    return keys, [{key: own.get(key) for key in keys} for own in values], notes


def _candidates(runs: Sequence[Run]) -> list[str]:
    """Groups, then what was typed; no experiment that only some have: what differs are its values."""
    groups = dict.fromkeys(key for run in runs for key in run.choices)
    typed = dict.fromkeys(key for run in runs for key in run.typed if key not in groups)
    without = {
        key
        for key in groups
        if PACKAGES.get(key) == "_global_" and not all(run.choices.get(key) for run in runs)
    }
    return [key for key in (*groups, *typed) if is_config(key) and key not in without]


def _differs(key: str, runs: Sequence[Run], configs: ConfigValues) -> bool:
    """Whether runs differ in a key; configs are read up to the first that does."""
    first = value(runs[0], key, configs) if runs else None
    others = (value(run, key, configs) for run in runs)
    return any(other != first and plain_value(other) != plain_value(first) for other in others)


def _alike(values: Values, runs: Sequence[Run]) -> list[list[int]]:
    """Rows of different configurations that cannot be told apart by their columns."""
    together: dict[Any, list[int]] = {}
    for number, own in enumerate(values):
        together.setdefault(tuple(map(plain_value, own.values())), []).append(number)
    return [
        numbers
        for numbers in together.values()
        if len({runs[number].config_fingerprint for number in numbers}) > 1
    ]


def _untyped(runs: Sequence[Run], configs: ConfigValues) -> tuple[dict[str, dict[str, str | None]], int]:
    """In what configs differ that were typed alike: values by key and identity, and how many are left out."""
    try:
        all_values = {run.config_fingerprint: configs.all_of(run) for run in runs}
        follow = set.intersection(*(set(run.interpolations) for run in runs))
    except AssayError:
        return {_FINGERPRINT: {run.config_fingerprint: run.config_fingerprint[:8] for run in runs}}, 0
    keys = dict.fromkeys(key for own in all_values.values() for key in own)
    differ = [
        key
        for key in keys
        if is_config(key) and key not in follow and len({own.get(key) for own in all_values.values()}) > 1
    ]
    found = {key: {mark: own.get(key) for mark, own in all_values.items()} for key in differ[:_MOST]}
    apart = {tuple(own.get(key) for key in found) for own in all_values.values()}
    if len(apart) < len(runs):
        found[_FINGERPRINT] = {run.config_fingerprint: run.config_fingerprint[:8] for run in runs}
    return found, max(0, len(differ) - _MOST)


def _text(found: Any) -> str | None:
    return None if found is None else shown(found)
