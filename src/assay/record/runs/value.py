"""What a run says under a key: its record where that says it, else its config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from assay.errors import AssayError
from assay.record.runs.plain_value import shown

if TYPE_CHECKING:
    from assay.record.runs.config_values import ConfigValues
    from assay.record.runs.run import Run

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
