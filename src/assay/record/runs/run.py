"""What a value that was typed stands for: a number, true, false, nothing, or text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, final

from assay.config.serialize import NOT_IDENTITY, REPETITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from assay.record.outcome import Cause, Status


_WORDS: Final = {"true": True, "false": False, "null": None}


def plain_value(value: Any) -> Any:
    """Text as what it reads as; a list as text, so that it can be compared and be a key.

    Args:
        value: Text, or a value of a config.

    >>> plain_value("1e-3"), plain_value("7"), plain_value("True"), plain_value("adam"), plain_value([1, 2])
    (0.001, 7, True, 'adam', '[1,2]')
    """
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
    """A value as it is typed.

    >>> shown([32, "a"]), shown({"p": 0.5}), shown(True), shown(None), shown(1e-05)
    ('[32,a]', '{p:0.5}', 'true', 'null', '1e-05')
    """
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
    """A run directory in short: ten thousand of them fit into a few tens of megabytes.

    Attributes:
        path: The run directory.
        status: As in the record; `failed` with cause `killed` for one that says `running` while no process
            writes it, `broken` where the record cannot be read.
        cause: Kind of the failure.
        reason: How it ended, when not well; why it cannot be read.
        name: The experiment's.
        started: UTC, ISO 8601.
        seconds: Spent in the run, over all segments.
        seed: Of the run.
        fingerprint: What decides its outcome in the config.
        config_fingerprint: The same without seed and fold; what repetitions share.
        typed: What was typed, by key, the last one first to count; see `typed_values`.
        choices: Option of each config group.
        metrics: Last value of each scalar.
        best: `monitor`, `value`, `epoch` of the best checkpoint.
        directions: `min` or `max` for each metric that says which is better.
        data_sha256: Of the data's contents and division.
        code: Commit, and the SHA-256 of what was not committed; empty where it is not known.
        warnings: What the test says of a model that is of no use.
        interpolations: What was written as `${…}` in the config, by key.
        fold: Which one it tests; None without folds.
    """

    path: Path
    status: Status | Literal["broken"]
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
        """The score of the best checkpoint where checkpoints are kept by this metric, else the last one.

        Args:
            metric: Such as `val/accuracy`.
        """
        if self.best.get("monitor") == metric:
            return float(self.best["value"])
        value = self.metrics.get(metric)
        return None if value is None else float(value)


def typed_values(overrides: Iterable[str]) -> dict[str, str]:
    """Overrides by key, without what says where a run writes to or how a sweep goes.

    Args:
        overrides: As typed, the later ones winning.

    >>> typed_values(["+model.new=1", "hydra.run.dir=x", "~scheduler", "name='my run'", "seed=1"])
    {'model.new': '1', 'scheduler': '~', 'name': 'my run', 'seed': '1'}
    """
    found = {}
    for override in overrides:
        key, given, value = override.partition("=")
        name = key.lstrip("+~")
        if name.partition(".")[0] != "hydra" and not name.startswith("hydra/"):
            left_out = key.startswith("~")
            found[name] = "~" if left_out or not given else _unquoted(value)
    return found


def is_config(key: str) -> bool:
    """Whether a key is one in which configurations differ, not where or how often they run.

    Args:
        key: Typed, or the name of a group.

    >>> is_config("optimizer.lr"), is_config("seed"), is_config("data/transform"), is_config("sweep")
    (True, False, True, False)
    """
    first = key.partition(".")[0]
    return first not in (*NOT_IDENTITY, *REPETITIONS) and key != "sweep" and not key.startswith("hydra/")


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are the same, however they were typed.

    Args:
        one: Text, or a value of a config.
        other: Another.

    >>> same_value("1e-3", 0.001), same_value("adam", "sgd"), same_value("true", True), same_value("1", True)
    (True, False, True, False)
    """
    first, second = plain_value(one), plain_value(other)
    return first == second and isinstance(first, bool) == isinstance(second, bool)


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if quoted else value
