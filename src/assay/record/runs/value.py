"""What a run says under a key: its record where that says it, else its config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from assay.errors import AssayError
from assay.record.runs.plain_value import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.record.runs.config_values import ConfigValues
    from assay.record.runs.run import Run

_SOURCE: Final = tuple(f"data.source.{name}" for name in ("path", "root", "test_path", "target"))
OF_THE_RECORD: Final = ("status", "cause", "name", "seed", "started", "seconds")
"""What a record says beside the config, under these keys."""


def value(run: Run, key: str, configs: ConfigValues) -> Any:
    """What a run says under a key: a number, text, or None where it says nothing.

    Args:
        run: Of which.
        key: A group, a key of the config, a metric, or one of `OF_THE_RECORD`; a group before a metric.
        configs: Reads what was not typed.
    """
    if key in OF_THE_RECORD:
        return getattr(run, key)
    if key in run.choices:
        return shown(run.choices[key])
    score = run.score(key)
    return value_of(run, key, configs) if score is None else score


def value_of(run: Run, key: str, configs: ConfigValues) -> str | None:
    """A value of a run's config as it was typed, else as its config has it; None where there is none.

    Args:
        run: Of which.
        key: Full key.
        configs: Reads what was not typed.
    """
    typed = run.typed.get(key)
    if typed is not None and "$" not in typed:
        return typed
    try:
        return configs.value(run, key) if run.status != "broken" else None
    except AssayError:  # its config is damaged; its record is not
        return typed


def unlike_data(runs: Iterable[Run], configs: ConfigValues) -> list[str]:
    """Kinds of data, in words, where there are several: another option, or another file or target of one.

    Data of the same contents and division are the same, whatever they are called.
    """
    each = list({(run.config_fingerprint, run.data_sha256): run for run in runs}.values())
    digests = {run.data_sha256 for run in each}
    if len(digests) < 2 and "" not in digests:
        return []
    options = sorted({str(run.choices.get("data")) for run in each})
    if len(options) > 1:
        return options
    kinds = sorted({_source(run, configs) or "as in its option" for run in each})
    return kinds if len(kinds) > 1 else []


def _source(run: Run, configs: ConfigValues) -> str:
    values = {key: value_of(run, key, configs) for key in _SOURCE}
    return ", ".join(f"{key}={text}" for key, text in values.items() if text not in (None, "null"))
