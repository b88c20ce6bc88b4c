"""`record.json`: what a run was and how it ended."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from assay.errors import AssayError
from assay.files.atomic import write_text
from assay.files.checksum import json_is_whole, seal_json
from assay.files.symlinks import read_whole
from assay.record.outcome import Cause, Outcome, Status, of_exception, reason_of, stopped_by
from assay.record.secrets import redact_tree

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION: Final = 1
FILE: Final = "record.json"
_NOT_FINITE: Final = ("nan", "inf", "-inf")


@final
class RunRecord(msgspec.Struct, forbid_unknown_fields=True):
    """One run; `docs/record.md` describes each field."""

    run_id: str
    name: str
    status: Status
    started: str
    seed: int
    fingerprint: str
    config_fingerprint: str
    fold: int | None = None
    overrides: list[str] = []
    choices: dict[str, Any] = {}
    tags: list[str] = []
    finished: str | None = None
    seconds: float = 0.0
    git: dict[str, Any] | None = None
    patch_sha256: str = ""
    packages: dict[str, str] = {}
    machine: dict[str, Any] = {}
    data_sha256: str = ""
    weights_sha256: str = ""
    files: dict[str, str] = {}
    metrics: dict[str, float] = {}
    matrices: dict[str, Any] = {}
    best: dict[str, Any] = {}
    directions: dict[str, str] = {}
    checkpoints: dict[str, str] = {}
    model: dict[str, int] = {}
    reason: str = ""
    cause: Cause = ""
    signal: str = ""
    resumed: list[dict[str, Any]] = []
    interpolations: dict[str, str] = {}
    loggers: dict[str, str] = {}
    micro_batch: dict[str, int] = {}
    objects: dict[str, str] = {}
    notes: list[str] = []
    warnings: list[str] = []
    baseline: dict[str, Any] = {}
    threshold: dict[str, Any] = {}
    evaluations: list[Any] = []
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
        plain = finite(redact_tree(msgspec.to_builtins(self, str_keys=True, enc_hook=str)))
        write_text(run_dir / FILE, seal_json(json.dumps(plain, indent=2, allow_nan=False)))

    @classmethod
    def load(cls, run_dir: Path) -> RunRecord:
        """Read `record.json` back.

        Raises:
            AssayError: There is none, or it is not what `save` wrote.
        """
        path = run_dir / FILE
        try:
            content = read_whole(path, 256 << 20)
            plain = msgspec.json.decode(content)
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
        if any(f'"{name}"'.encode() in content for name in _NOT_FINITE):  # few; a matrix has many numbers
            plain |= {name: numbers(plain[name]) for name in ("metrics", "best", "matrices") if name in plain}
        for name in ("sha256", "set_by", "lock_sha256"):  # the latter two as earlier versions wrote them
            plain.pop(name, None)
        try:
            record = msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise AssayError(f"{path} is damaged: {error}") from error
        if not json_is_whole(content):
            raise AssayError(f"{path} is damaged: it is not as its own SHA-256 says")
        return record


def now() -> str:
    """The time, as a record says it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


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
