"""`record.json`: what a run was and how it ended."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, final, get_args, get_origin, get_type_hints

from assay.errors import AssayError
from assay.files.atomic import write_text
from assay.files.checksum import json_is_whole, seal_json
from assay.files.symlinks import read_whole
from assay.record.outcome import Cause, Outcome, Status, of_exception, reason_of, stopped_by
from assay.record.secrets import redact, redact_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SCHEMA_VERSION = 1
FILE = "record.json"
_NOT_FINITE = ("nan", "inf", "-inf")


@final
@dataclass
class RunRecord:
    """One run; `docs/record.md` describes each field."""

    run_id: str
    name: str
    status: Status
    started: str
    seed: int
    fingerprint: str
    config_fingerprint: str
    overrides: list[str] = field(default_factory=list)
    choices: dict[str, Any] = field(default_factory=dict)
    set_by: dict[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    finished: str | None = None
    seconds: float = 0.0
    git: dict[str, Any] | None = None
    patch_sha256: str = ""
    lock_sha256: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    data_sha256: str = ""
    weights_sha256: str = ""
    files: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    matrices: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    directions: dict[str, str] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    model: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    cause: Cause = ""
    signal: str = ""
    resumed: list[Any] = field(default_factory=list)
    interpolations: dict[str, str] = field(default_factory=dict)
    loggers: dict[str, str] = field(default_factory=dict)
    micro_batch: dict[str, int] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    baseline: dict[str, Any] = field(default_factory=dict)
    threshold: dict[str, Any] = field(default_factory=dict)
    evaluations: list[Any] = field(default_factory=list)
    schema_version: int = SCHEMA_VERSION

    @property
    def outcome(self) -> Outcome:
        """How the run ended; once no process of it lives, one that says `running` has been killed."""
        kept: Any = {"metrics": self.metrics, "best": self.best, "seconds": self.seconds}
        if self.status == "running":
            return Outcome("failed", "killed", "a process of the run died", **kept)
        return Outcome(
            self.status, self.cause, self.reason, self.signal, warnings=list(self.warnings), **kept
        )

    def interrupted_by(self, signal: str) -> None:
        """Say that a signal has interrupted the run."""
        self.status, self.reason, self.signal = "interrupted", stopped_by(signal), signal

    def failed_by(self, error: BaseException) -> None:
        """Say that an exception has ended the run."""
        self.status, self.reason, self.cause = "failed", reason_of(error), of_exception(error)

    def save(self, run_dir: Path) -> None:
        """Replace `record.json` whole, without secrets."""
        # Redacted as a tree: in the text, a secret that is a number would take the JSON along.
        plain = finite(redact_tree(asdict(self)))
        text = json.dumps(plain, indent=2, allow_nan=False, default=lambda value: redact(str(value)))
        write_text(run_dir / FILE, seal_json(text))

    @classmethod
    def load(cls, run_dir: Path) -> RunRecord:
        """Read `record.json` back.

        Raises:
            AssayError: There is none, or it is not what `save` wrote.
        """
        path = run_dir / FILE
        try:
            content = read_whole(path, 256 << 20)
            text = content.decode()
            plain = _DECODER.decode(text)
        except FileNotFoundError as error:
            if not run_dir.exists():
                raise AssayError(
                    f"there is no run directory {run_dir}", hint="assay ls lists runs"
                ) from error
            raise AssayError(f"{run_dir} is not a run directory: it has no {FILE}") from error
        except (ValueError, OSError, RecursionError) as error:
            raise AssayError(f"{path} cannot be read: {error}") from error
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if version != SCHEMA_VERSION:
            raise AssayError(f"{path} has schema version {version!r}; this assay reads {SCHEMA_VERSION}")
        if any(f'"{name}"' in text for name in _NOT_FINITE):  # few are, and a matrix has thousands of numbers
            plain |= {name: numbers(plain[name]) for name in ("metrics", "best", "matrices") if name in plain}
        plain.pop("sha256", None)
        problem = _problem(plain)
        if problem:
            raise AssayError(f"{path} is damaged: {problem}")
        if not json_is_whole(content):
            raise AssayError(f"{path} is damaged: it is not as its own SHA-256 says")
        return cls(**plain)


def now() -> str:
    """The time, as a record says it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


_ENTRY: dict[str, Any] = {
    **dict.fromkeys(("at", "checkpoint", "patch_sha256", "lock_sha256"), str),
    **dict.fromkeys(("overrides", "notes", "lost"), list),
    **dict.fromkeys(("changed", "packages", "machine", "before"), dict),
    "from_step": int,
    "git": (dict, NoneType),
}
"""Types of what an entry of `resumed` says."""


def _problem(plain: dict[str, Any]) -> str:
    """What in a record's JSON is not as `RunRecord` says; empty when all is."""
    wanted, required = _fields()
    if plain.keys() - wanted.keys():
        return f"unknown {sorted(plain.keys() - wanted.keys())}"
    if required - plain.keys():
        return f"missing {sorted(required - plain.keys())}"
    wrong = next((name for name, value in plain.items() if not wanted[name](value)), "")
    if wrong:
        return f"{wrong} is {plain[wrong]!r:.80}"
    wrong_entries = (entry for entry in plain.get("resumed", ()) if not _is_entry(entry))
    return next((f"resumed holds {entry!r:.80}" for entry in wrong_entries), "")


def _is_entry(value: Any) -> bool:
    """Whether something is what `resumed` holds, as far as anything reads it."""
    return isinstance(value, dict) and all(
        isinstance(value[name], kinds) for name, kinds in _ENTRY.items() if name in value
    )


@functools.cache
def _fields() -> tuple[dict[str, Callable[[Any], bool]], set[str]]:
    """Whether something is a value of a field, for every field; and the fields without a default."""
    hints = get_type_hints(RunRecord)
    required = {
        own.name for own in fields(RunRecord) if own.default is MISSING and own.default_factory is MISSING
    }
    return {own.name: _judge(hints[own.name]) for own in fields(RunRecord)}, required


def _judge(hint: Any) -> Callable[[Any], bool]:
    """Whether a value is of a type, as a function: thousands of records of 35 fields are read at a time."""
    origin, arguments = get_origin(hint), get_args(hint)
    kinds = _kinds(arguments[-1] if origin in (dict, list) else hint)
    if origin is None:
        return lambda value: type(value) in kinds
    if origin is Literal:
        return lambda value: type(value) is str and value in arguments
    if origin in (dict, list):
        # Compared as sets of types: a record holds hundreds of packages.
        return lambda value: (
            type(value) is origin
            and (Any in kinds or set(map(type, value.values() if origin is dict else value)) <= kinds)
        )
    judges = [_judge(kind) for kind in arguments]  # a union
    return lambda value: any(judge(value) for judge in judges)


def _kinds(hint: Any) -> set[type]:
    return {int, float} if hint is float else {hint}


def finite(value: Any) -> Any:
    """Numbers as JSON can hold them: it has no NaN and no infinity, which are written as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def numbers(value: Any) -> Any:
    """Numbers as `finite` was given them."""
    if isinstance(value, dict):
        return {key: numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [numbers(item) for item in value]
    return float(value) if value in _NOT_FINITE else value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _whole(digits: str) -> int:
    """A whole number that everybody can compute with: floats and data frames hold no larger ones."""
    number = int(digits)
    if abs(number) >= 1 << 63:
        raise ValueError(f"{digits:.20}… is too large a number")
    return number


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=_whole)
"""One for all: to make one takes as long as to read a record."""
