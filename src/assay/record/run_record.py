"""`record.json`: what a run was and how it ended."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, final, get_args

from assay.errors import AssayError
from assay.record.atomic import write_text
from assay.record.secrets import redact

SCHEMA_VERSION = 1
FILE = "record.json"
Status = Literal["running", "finished", "failed", "interrupted"]


@final
@dataclass
class RunRecord:
    """One run; `docs/record.md` describes each field.

    Attributes:
        run_id: Name of the run directory.
        name: The experiment's name.
        status: `running` until it ended.
        started: UTC, ISO 8601.
        seed: Of the run.
        fingerprint: SHA-256 of what decides the outcome in the config.
        overrides: What was typed.
        choices: Option of each group.
        tags: The user's.
        finished: UTC, ISO 8601.
        seconds: From start to end.
        git: See `assay.record.provenance.git_state`; None outside a repository.
        patch_sha256: Of `code.patch`; empty without one.
        packages: Version of every installed distribution.
        machine: See `assay.record.provenance.machine`.
        data_sha256: Of the data's contents and division.
        metrics: Last value of each scalar; values that are not finite as the strings `nan`, `inf`, `-inf`.
        matrices: Confusion matrices and the like, as nested lists.
        best: `monitor`, `value`, `epoch` of the best checkpoint.
        checkpoints: File name of each role, relative to `checkpoints/`.
        model: `parameters`, `trainable_parameters`.
        reason: How it ended, when not well: exception and message.
        schema_version: Of this format.
    """

    run_id: str
    name: str
    status: Status
    started: str
    seed: int
    fingerprint: str
    overrides: list[str] = field(default_factory=list)
    choices: dict[str, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    finished: str | None = None
    seconds: float = 0.0
    git: dict[str, Any] | None = None
    patch_sha256: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    data_sha256: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    matrices: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    model: dict[str, int] = field(default_factory=dict)
    reason: str = ""
    schema_version: int = SCHEMA_VERSION

    def save(self, run_dir: Path) -> None:
        """Replace `record.json` whole.

        Args:
            run_dir: The run directory.
        """
        text = json.dumps(_finite(asdict(self)), indent=2, allow_nan=False, default=str)
        write_text(run_dir / FILE, redact(text) + "\n")

    @classmethod
    def load(cls, run_dir: Path) -> RunRecord:
        """Read `record.json` back.

        Args:
            run_dir: The run directory.

        Raises:
            AssayError: There is none, or it is not what `save` wrote.
        """
        path = run_dir / FILE
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise AssayError(f"{run_dir} is no run directory: it has no {FILE}") from error
        except (ValueError, OSError) as error:
            raise AssayError(f"{path} cannot be read: {error}") from error
        if not isinstance(plain, dict) or plain.get("schema_version") != SCHEMA_VERSION:
            version = plain.get("schema_version") if isinstance(plain, dict) else None
            raise AssayError(f"{path} has schema version {version}; this assay reads {SCHEMA_VERSION}")
        known = {one.name for one in fields(cls)}
        unknown, missing = set(plain) - known, {"run_id", "name", "status", "started", "seed", "fingerprint"} - set(plain)
        if unknown or missing or plain["status"] not in get_args(Status):
            raise AssayError(f"{path} is damaged: unknown {sorted(unknown)}, missing {sorted(missing)}, status {plain.get('status')!r}")
        return cls(**{**plain, "metrics": {name: _number(value) for name, value in plain.get("metrics", {}).items()}})


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def _number(value: Any) -> Any:
    return float(value) if value in ("nan", "inf", "-inf") else value
