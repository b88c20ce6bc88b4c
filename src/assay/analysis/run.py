"""What a value that was typed stands for: a number, true, false, nothing, or text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from assay.config.serialize import NOT_IDENTITY, REPETITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from assay.record.outcome import Cause, JobStatus


_WORDS: Final = {"true": True, "false": False, "null": None}


def plain_value(value: Any) -> Any:
    """Text as what it reads as; a list as text, so that it can be compared and be a key."""
    if not isinstance(value, str):
        return value if value is None or isinstance(value, bool | int | float) else shown(value)
    if value.lower() in _WORDS:
        return _WORDS[value.lower()]
    try:
        # `1_000` is text to Hydra, and a number to Python.
        return value if "_" in value else int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return value


def shown(value: Any) -> str:
    """A value as it is typed."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{shown(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(shown, value)) + "]"
    return str(value)


@final
@dataclass(frozen=True, slots=True)
class Run:
    """A run directory in short: ten thousand of them fit into a few tens of megabytes."""

    path: Path
    status: JobStatus
    cause: Cause = ""
    reason: str = ""
    name: str = ""
    started: str = ""
    seconds: float = 0.0
    seed: int = 0
    fingerprint: str = ""
    config_fingerprint: str = ""
    typed: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, Any] = field(default_factory=dict)
    directions: Mapping[str, str] = field(default_factory=dict)
    data_sha256: str = ""
    code: str = ""
    warnings: tuple[str, ...] = ()
    interpolations: Mapping[str, str] = field(default_factory=dict)
    fold: int | None = None

    def score(self, metric: str) -> float | None:
        """The score of the best checkpoint where checkpoints are kept by this metric, else the last one."""
        if self.best.get("monitor") == metric:
            return float(self.best["value"])
        value = self.metrics.get(metric)
        return None if value is None else float(value)


def typed_values(overrides: Iterable[str]) -> dict[str, str]:
    """Overrides by key, without what says where a run writes to or how a sweep goes."""
    found = {}
    for override in overrides:
        key, given, value = override.partition("=")
        name = key.lstrip("+~")
        if name.partition(".")[0] != "hydra" and not name.startswith("hydra/"):
            left_out = key.startswith("~")
            found[name] = "~" if left_out or not given else _unquoted(value)
    return found


def is_config(key: str) -> bool:
    """Whether a key is one in which configurations differ, not where or how often they run."""
    first = key.partition(".")[0]
    return first not in (*NOT_IDENTITY, *REPETITIONS) and key != "sweep" and not key.startswith("hydra/")


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are the same, however they were typed."""
    first, second = plain_value(one), plain_value(other)
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value
