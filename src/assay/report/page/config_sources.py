"""Where each value of a run's config came from, as far as the run directory tells; nothing is composed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.record.run_record import RunRecord

_INTO_TRAINER = ("trainer", "device", "precision")


def config_sources(values: Mapping[str, str], record: RunRecord) -> list[tuple[str, str, str, str]]:
    """Key, value, where it came from, and in which of four ways: `typed`, `follows`, `option` or `default`.

    Args:
        values: Value by full key.
        record: Of the run.
    """
    again = (str(word) for entry in record.resumed for word in entry.get("overrides", ()))
    typed = _typed([*record.overrides, *again])
    return [(key, value, *_source(key, typed, record)) for key, value in values.items()]


def _source(key: str, typed: Mapping[str, str], record: RunRecord) -> tuple[str, str]:
    whole = key.partition("[")[0]
    parts = whole.split(".")
    for end in range(len(parts), 0, -1):
        above = ".".join(parts[:end])
        if above in typed and above not in record.choices:
            return typed[above], "typed"
    if whole in record.interpolations:
        return record.interpolations[whole], "follows"
    if parts[0] == "spec":
        return "the data", "follows"
    for end in range(len(parts), 0, -1):
        above = ".".join(parts[:end])
        if above in record.set_by and above not in record.choices:
            option = record.set_by[above]
            return option, "typed" if option.partition("=")[0] in typed else "option"
    groups = _INTO_TRAINER if parts[0] == "trainer" else (f"{parts[0]}/{'/'.join(parts[1:2])}", parts[0])
    chosen = [(group, record.choices[group]) for group in groups if record.choices.get(group)]
    if not chosen:
        return "default", "default"
    if parts[0] != "trainer":
        chosen = chosen[:1]
    by_hand = any(group in typed for group, _ in chosen)
    told = (f"{group}={_text(option)}{_chosen_by(group, record)}" for group, option in chosen)
    return " ".join(told), "typed" if by_hand else "option"


def _chosen_by(group: str, record: RunRecord) -> str:
    return f" of {record.set_by[group]}" if group in record.set_by else ""


def _typed(overrides: Sequence[str]) -> dict[str, str]:
    """What was typed, by the key or group before the equals sign."""
    return {override.partition("=")[0].lstrip("+~").partition("@")[0]: override for override in overrides}


def _text(option: Any) -> str:
    return f"[{','.join(map(str, option))}]" if isinstance(option, list) else str(option)
